"""0-d tensors with exactly the values of floating numbers that are computed from tensors.

A symbolic float is a double wherever Python computes it, but Inductor hands it to its kernels in
single precision, and no higher-order operator takes one as an operand. So a number that leaves the
graph, or enters an arm, goes as a tensor of type float64: the one that was kept when the number was
taken, with the arithmetic of the program done again on it. Where that arithmetic is not known to
give each bit of Python's, the symbolic number itself becomes the tensor.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx import Node, Proxy

from bcmend.runtime import calls, scalars, unread
from bcmend.runtime.entries import before_arms
from bcmend.runtime.merge import example_of

__all__ = ["as_tensor", "install"]

_SAME: Final = {
    operator.add: operator.add,
    operator.iadd: operator.add,
    operator.sub: operator.sub,
    operator.isub: operator.sub,
    operator.mul: operator.mul,
    operator.imul: operator.mul,
    operator.neg: operator.neg,
    operator.abs: torch.abs,
}
_DIVISIONS: Final = frozenset([operator.truediv, operator.itruediv])
#: Up to here every integer is a double.
_EXACT: Final = 2**53


def as_tensor(tx: Any, number: Proxy) -> TensorVariable:
    """Return a 0-d tensor of type float64, or bool, with the value of a symbolic number."""
    if isinstance(number.node.meta["example_value"], torch.SymBool):
        return _call(tx, torch.scalar_tensor, number, dtype=torch.bool)
    return _computed(tx, number) or _as_it_is(tx, number)


def _computed(tx: Any, number: Proxy) -> TensorVariable | None:
    """Return the tensor of a number that was kept, or is computed again; ``None`` if none is."""
    number = before_arms(tx, number)
    kept = scalars.tensor_behind(tx, number)
    if kept is not None:
        return _as_double(tx, kept)
    node = number.node
    is_float = isinstance(node.meta.get("example_value"), torch.SymFloat)
    if not is_float or node.op != "call_function":
        return None
    if node.target is torch.sym_float:
        return _computed(tx, _outside(number, node.args[0]))
    operands = [_operand(tx, _outside(number, each)) for each in node.args]
    if any(each is None for each in operands):
        return None
    if node.target in _DIVISIONS:
        return _quotient(tx, number, *operands)
    return _call(tx, _SAME[node.target], *operands) if node.target in _SAME else None


def _outside(number: Proxy, operand: Any) -> Any:
    return Proxy(operand, number.tracer) if isinstance(operand, Node) else operand


def _operand(tx: Any, operand: Any) -> Any:
    """Return an operand of arithmetic as a double; ``None`` if it may not be one."""
    if isinstance(operand, Proxy):
        computed = _computed(tx, operand)
        return None if computed is None else computed.as_proxy()
    is_exact = type(operand) is float or (type(operand) is int and abs(operand) <= _EXACT)
    return operand if is_exact else None


def _quotient(tx: Any, number: Proxy, one: Any, other: Any) -> TensorVariable | None:
    """Divide; where Python raises, or rounds only once what are two roundings here, it decides."""
    if not isinstance(other, Proxy) and other == 0:
        return None
    quotient = _call(tx, operator.truediv, one, other)
    doubtful = [_call(tx, operator.eq, other, 0)] if isinstance(other, Proxy) else []
    for each in number.node.all_input_nodes:
        if isinstance(each.meta["example_value"], torch.SymInt):
            kept = scalars.tensor_behind(tx, before_arms(tx, _outside(number, each)))
            assert kept is not None
            size = _call(tx, torch.abs, kept.as_proxy())
            doubtful.append(_call(tx, operator.gt, size.as_proxy(), _EXACT))
    if doubtful:
        own = _as_it_is(tx, number).as_proxy()
    for doubt in doubtful:
        quotient = _call(tx, torch.where, doubt.as_proxy(), own, quotient.as_proxy())
    return quotient


def _as_double(tx: Any, tensor: TensorVariable) -> TensorVariable:
    if example_of(tensor).dtype is torch.float64:
        return tensor
    return _call(tx, torch.Tensor.to, tensor.as_proxy(), torch.float64)


def _as_it_is(tx: Any, number: Proxy) -> TensorVariable:
    return _call(tx, torch.scalar_tensor, number, dtype=torch.float64)


def _call(tx: Any, function: Any, *arguments: Any, **named: Any) -> TensorVariable:
    result = calls.function(tx, function, *arguments, **named)
    result.as_proxy().node.meta[unread.KEPT] = True  # taken out again where nobody reads it
    return result


_DYNAMOS_TENSOR: Final = SymNodeVariable.as_tensor


def _of_variable(variable: SymNodeVariable, tx: Any, dtype: Any) -> TensorVariable:
    """Let a number leave the graph as what it is, where the graph has its tensor."""
    if variable._tensor_var is None and dtype is torch.float64:
        computed = _computed(tx, variable.as_proxy())
        if computed is not None:
            variable._tensor_var = computed
    return _DYNAMOS_TENSOR(variable, tx, dtype)


def install() -> None:
    """Let Dynamo hand out the numbers of mended code so."""
    SymNodeVariable.as_tensor = _of_variable  # type: ignore[method-assign, assignment]
