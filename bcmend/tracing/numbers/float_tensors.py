"""0-d tensors with exactly the values of floating numbers that are computed from tensors.

Inductor passes a symbolic float to its kernels in single precision, and no higher-order operator
takes one as an operand. So a number that leaves the graph, or enters an arm, goes as a float64: the
one that was stored when the number was taken, with the arithmetic of the program done again on it.
Where that may not give each bit of Python's, the symbolic number itself becomes the tensor.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch.fx import Node, Proxy

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph, hooks
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.values import TensorValue, example_of
from bcmend.tracing.numbers import dead_numbers, scalars
from bcmend.tracing.sites.lifted_inputs import before_arms

ARITHMETIC: Final[dict[Any, Any]] = {
    **dead_numbers.STEPS,
    operator.mul: operator.mul,
    operator.imul: operator.mul,
    operator.neg: operator.neg,
    operator.abs: torch.abs,
}
_DIVISIONS: Final = frozenset([operator.truediv, operator.itruediv])


def as_tensor(tx: compat.Tracer, number: Proxy) -> TensorValue:
    """Return a 0-d tensor of type float64, or bool, with the value of a symbolic number."""
    if isinstance(number.node.meta["example_value"], torch.SymBool):
        return called_beside(tx, torch.scalar_tensor, number, dtype=torch.bool)
    return _computed(tx, number) or _as_it_is(tx, number)


def as_operand(tx: compat.Tracer, number: Proxy) -> TensorValue:
    """Return the tensor of a number for an operator that reads it, so that it stays."""
    tensor = as_tensor(tx, number)
    tensor.as_proxy().node.meta.pop(meta_keys.BESIDE_NUMBER, None)
    return tensor


def of_number(tx: compat.Tracer, number: Any, kind: type) -> TensorValue:
    """Return a 0-d tensor, of int64 or float64, of an ``int`` or a ``float``, for an operator."""
    if kind is int:
        return scalars.integer_tensor(tx, number)
    if isinstance(number, compat.SymNodeVariable):
        return as_operand(tx, number.as_proxy())
    return fx_graph.function(tx, torch.full, (), number.as_python_constant(), dtype=torch.float64)


def _computed(tx: compat.Tracer, number: Proxy) -> TensorValue | None:
    """Return the tensor of a number that was stored, or is computed again; else ``None``."""
    number = before_arms(tx, number)
    stored = scalars.tensor_behind(tx, number)
    if stored is not None:
        is_double = example_of(stored).dtype is torch.float64
        return stored if is_double else called_beside(tx, torch.Tensor.to, stored, torch.float64)
    node = number.node
    if isinstance(node.meta.get("example_value"), torch.SymInt):
        return called_beside(tx, torch.Tensor.to, _whole(tx, number), torch.float64)
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
    return (
        called_beside(tx, ARITHMETIC[node.target], *operands) if node.target in ARITHMETIC else None
    )


def comparison(tx: compat.Tracer, truth: Proxy) -> TensorValue | None:
    """Return how two floating numbers compare, of which the graph has tensors; else ``None``."""
    node = truth.node
    if node.target not in dead_numbers.COMPARISONS:
        return None
    numbers = [each for each in node.args if isinstance(each, Node)]
    if not all(isinstance(each.meta.get("example_value"), torch.SymFloat) for each in numbers):
        return None
    operands = [_operand(tx, _outside(truth, each)) for each in node.args]
    if any(each is None for each in operands):
        return None
    return fx_graph.function(tx, node.target, *operands)


def _outside(number: Proxy, operand: Any) -> Any:
    return Proxy(operand, number.tracer) if isinstance(operand, Node) else operand


def _operand(tx: compat.Tracer, operand: Any) -> Any:
    """Return an operand of arithmetic as a double; ``None`` if it may not be one."""
    if isinstance(operand, Proxy):
        computed = _computed(tx, operand)
        return None if computed is None else computed.as_proxy()
    is_exact = type(operand) is float or (
        type(operand) is int and abs(operand) <= scalars.EXACT_IN_DOUBLE
    )
    return operand if is_exact else None


def _quotient(tx: compat.Tracer, number: Proxy, one: Any, other: Any) -> TensorValue | None:
    """Divide, but as Python does where that raises, or rounds once what is rounded twice here."""
    if not isinstance(other, Proxy) and other == 0:
        return None
    if not isinstance(one, Proxy):  # of a number and a tensor torch makes a product
        one = called_beside(tx, torch.full, (), float(one), dtype=torch.float64).as_proxy()
    quotient = called_beside(tx, operator.truediv, one, other)
    doubtful = [called_beside(tx, operator.eq, other, 0)] if isinstance(other, Proxy) else []
    for each in number.node.all_input_nodes:
        if isinstance(each.meta["example_value"], torch.SymInt):
            size = called_beside(tx, torch.abs, _whole(tx, _outside(number, each)))
            doubtful.append(called_beside(tx, operator.gt, size, scalars.EXACT_IN_DOUBLE))
    if doubtful:
        own = _as_it_is(tx, number)
    for doubt in doubtful:
        quotient = called_beside(tx, torch.where, doubt, own, quotient)
    return quotient


def _whole(tx: compat.Tracer, number: Proxy) -> TensorValue:
    """Return the tensor of an integer."""
    known = compat.SymNodeVariable(number, number.node.meta["example_value"])
    return scalars.integer_tensor(tx, known)


def _as_it_is(tx: compat.Tracer, number: Proxy) -> TensorValue:
    return called_beside(tx, torch.scalar_tensor, number, dtype=torch.float64)


def called_beside(tx: compat.Tracer, function: Any, *arguments: Any, **named: Any) -> TensorValue:
    """Call a function in the graph of which a number may be taken, and else nobody reads it."""
    result = fx_graph.function(tx, function, *arguments, **named)
    # Taken out again where nobody reads it.
    result.as_proxy().node.meta[meta_keys.BESIDE_NUMBER] = True
    return result


@hooks.around(compat.SymNodeVariable, methods.AS_TENSOR, "floats that leave the graph as doubles")
def _of_variable(
    inner: Any, variable: compat.SymNodeVariable, tx: compat.Tracer, dtype: Any
) -> Any:
    """Let a number leave the graph as what it is, where the graph has its tensor."""
    known = objects.tensor_of_number(variable)
    if known is not None and fx_graph.is_erased(known):
        known = None
        objects.set_tensor_of_number(variable, None)
    if known is None and dtype is torch.float64:
        computed = _computed(tx, variable.as_proxy())
        if computed is not None:
            objects.set_tensor_of_number(variable, computed)
    return inner(variable, tx, dtype)
