"""Arithmetic and comparisons of floats out of tensors that torch simplifies as of real numbers.

To sympy, in which torch writes symbolic numbers, ``v - v`` and ``v * 0`` are zero, ``v == v`` is
true, and ``v + 0.1 - 0.1`` is ``v``. That is wrong of NaN and of infinity, and of rounded numbers.
Where an operation leaves less than it was given, it is done once more on the tensors of the
numbers, and what it gives is a number of its own, of which torch knows nothing. So is what ``not``
gives: where ``v > 1`` is false, ``v <= 1`` may be false as well.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.fx import Node, Proxy

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.models.real_numbers import expression_of, floats_in, parts_of
from bcmend.dynamo.values import TensorValue, Value
from bcmend.tracing.numbers import float_tensors, predicates, scalars
from bcmend.tracing.numbers.dead_numbers import COMPARISONS, NEGATIONS
from bcmend.tracing.sites import capture_mode

_JOINED: Final[dict[Any, Callable[..., Any]]] = {
    operator.and_: torch.logical_and,
    operator.iand: torch.logical_and,
    operator.or_: torch.logical_or,
    operator.ior: torch.logical_or,
    **dict.fromkeys(NEGATIONS, torch.logical_not),
}
_REDONE: Final[dict[Any, Callable[..., Any]]] = {
    **float_tensors.ARITHMETIC,
    **_JOINED,
    **{each: each for each in COMPARISONS},
}


@hooks.around(
    compat.SymNodeVariable,
    methods.CREATE,
    "operations of floats out of tensors that torch simplifies",
    gate=hooks.first,
)
def _create(
    inner: Any, tx: compat.Tracer, proxy: Proxy, sym_num: Any = None, **options: Any
) -> Value:
    node = proxy.node
    target: Any = node.target
    if node.op == "call_function" and target in _REDONE and capture_mode.in_mended_code(tx):
        given = [
            each.meta["example_value"] if isinstance(each, Node) else each for each in node.args
        ]
        if _may_be_simplified(given):
            found = target(*given) if sym_num is None else sym_num
            if _is_simplified(target, found, given):
                return _redone(tx, proxy)
    created: Value = inner(tx, proxy, sym_num, **options)
    return created


def _may_be_simplified(given: Sequence[Any]) -> bool:
    """Return whether an operation has a floating number out of a tensor among its operands.

    Or a truth of one; integers are what sympy takes them for, though they were floats before.
    """
    return any(not isinstance(each, torch.SymInt) and floats_in(each) for each in given)


def _is_simplified(target: Any, found: Any, given: Sequence[Any]) -> bool:
    """Return whether torch wrote less for a result than for what it is computed from."""
    if target in NEGATIONS:
        return True
    if target in _JOINED and not all(isinstance(each, torch.SymBool) for each in given):
        return False  # one of them is a constant
    expressions = [*map(expression_of, given)]
    if target in (operator.mul, operator.imul) and not {1, -1}.isdisjoint(expressions):
        return False
    return parts_of(expression_of(found)) < sum(map(parts_of, expressions))


def _redone(tx: compat.Tracer, proxy: Proxy) -> Value:
    """Do an operation on the tensors of its operands, and take the number out of the result."""
    node = proxy.node
    operands = [_operand(tx, proxy, each) for each in node.args]
    if any(each is None for each in operands):
        handlers.break_graph(
            "an operation of floating numbers",
            str(node.target),
            "Torch computes with it as with real numbers, and the numbers have no tensors in which"
            " the operation is exact.",
            hints=["Compute with the tensors."],
        )
    node.graph.erase_node(node)
    found = float_tensors.called_beside(tx, _REDONE[node.target], *operands)
    number = scalars.take(tx, found)
    assert number is not None
    return number


def _operand(tx: compat.Tracer, proxy: Proxy, operand: Any) -> Any:
    """Return what stands for an operand among tensors; ``None`` if nothing does exactly."""
    is_arithmetic = proxy.node.target in float_tensors.ARITHMETIC
    if not isinstance(operand, Node):
        return _constant(operand, is_arithmetic=is_arithmetic)
    tensor = _tensor(tx, Proxy(operand, proxy.tracer), is_arithmetic=is_arithmetic)
    return None if tensor is None else tensor.as_proxy()


def _constant(number: Any, *, is_arithmetic: bool) -> Any:
    if type(number) is int and is_arithmetic:
        try:
            return float(number)  # as Python does; Inductor has zero for what is zero times NaN
        except OverflowError:
            return None
    is_exact = type(number) is not int or abs(number) <= scalars.EXACT_IN_DOUBLE
    return number if is_exact and type(number) in (float, int, bool) else None


def _tensor(tx: compat.Tracer, number: Proxy, *, is_arithmetic: bool) -> TensorValue | None:
    example = number.node.meta["example_value"]
    if isinstance(example, torch.SymFloat):
        return float_tensors.as_tensor(tx, number)
    variable = compat.SymNodeVariable(number, example)
    if isinstance(example, torch.SymBool):
        return predicates.as_predicate(tx, variable)
    if not is_arithmetic:
        return None
    whole = scalars.integer_tensor(tx, variable)
    return float_tensors.called_beside(tx, torch.Tensor.to, whole, torch.float64)
