"""Calls that answer a question about the data of tensors, traced without leaving the graph.

``torch.equal``, ``torch.allclose``, ``torch.is_nonzero``, their methods and ``x.item()`` end
Dynamo's graph. While mended code is captured whole, the answer is computed by tensor operations and
taken out as a symbolic number (``bcmend.runtime.scalars``); elsewhere, and for arguments that are
not plain tensors, Dynamo does what it always does.

Extends ``TensorVariable`` by methods that Dynamo looks up by name (``method_equal`` for
``x.equal(y)``), and its table of handlers for torch's functions (torch/_dynamo/variables/torch.py).
A handler that returns ``None`` leaves the call to Dynamo.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch._dynamo import graph_break_hints
from torch._dynamo.exc import unimplemented
from torch._dynamo.utils import cmp_name_to_op_mapping
from torch._dynamo.variables import (
    BaseListVariable,
    BuiltinVariable,
    ConstantVariable,
    ListVariable,
    TensorVariable,
    TorchInGraphFunctionVariable,
    object_protocol,
)
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    free_unbacked_symbols,
)

from bcmend.runtime import callees, calls, lower, scalars
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.unmerged import Unmerged

__all__ = ["install"]

Answer = Callable[..., VariableTracker | None]


def _equal(tx: Any, input: TensorVariable, other: TensorVariable) -> VariableTracker | None:
    """``torch.equal``: the same sizes, and the same elements; NaN equals nothing."""
    one, two = example_of(input), example_of(other)
    if one.dtype is not two.dtype or one.device != two.device:
        return None
    if free_unbacked_symbols(one) or free_unbacked_symbols(two):
        return None
    if one.dim() != two.dim() or any(a != b for a, b in zip(one.shape, two.shape, strict=True)):
        return constant(False)
    same = calls.function(tx, torch.eq, input.as_proxy(), other.as_proxy())
    return calls.function(tx, torch.all, same.as_proxy())


def _allclose(
    tx: Any,
    input: TensorVariable,
    other: TensorVariable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> VariableTracker | None:
    """``torch.allclose``, which is ``torch.isclose`` of every element, in ATen too."""
    one, two = example_of(input), example_of(other)
    if one.dtype is not two.dtype or one.device != two.device or rtol < 0 or atol < 0:
        return None
    if free_unbacked_symbols(one) or free_unbacked_symbols(two):
        return None
    try:
        torch.broadcast_shapes(one.shape, two.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    close = calls.function(tx, torch.isclose, input.as_proxy(), other.as_proxy(), **options)
    return calls.function(tx, torch.all, close.as_proxy())


def _is_nonzero(tx: Any, input: TensorVariable) -> VariableTracker | None:
    """``torch.is_nonzero``; a tensor of more or less than one element is an error."""
    count = example_of(input).numel()
    if not isinstance(count, int) or count != 1:
        return None
    return calls.function(tx, torch.ne, input.as_proxy(), 0)


def _answered(
    answer: Answer, tx: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> VariableTracker | None:
    """Return the answer as a Python bool that Dynamo knows, or ``None`` to leave it to Dynamo."""
    if not scalars.may_take(tx):
        return None
    try:
        bound = inspect.signature(answer).bind(tx, *arguments, **keywords)
    except TypeError:
        return None
    given = {name: _plain(value) for name, value in list(bound.arguments.items())[1:]}
    if any(value is None for value in given.values()):
        return None
    result = answer(tx, **given)
    return scalars.take(tx, result) if isinstance(result, TensorVariable) else result


def _plain(value: VariableTracker) -> Any:
    """Return a plain tensor as it is, a number as itself, and ``None`` for anything else."""
    value = value.realize()
    if type(value) is TensorVariable:
        example = example_of(value)
        fine = example.layout is torch.strided and not example.is_quantized
        return value if fine and not example.is_nested else None
    number = value.as_python_constant() if value.is_python_constant() else None
    return number if isinstance(number, (bool, int, float)) else None


# What Dynamo calls


def _of_method(answer: Answer) -> Callable[..., VariableTracker | None]:
    def method(
        variable: TensorVariable, tx: Any, *arguments: Any, **keywords: Any
    ) -> VariableTracker | None:
        return _answered(answer, tx, (variable, *arguments), keywords)

    return method


def _of_function(answer: Answer) -> Callable[..., VariableTracker | None]:
    def function(
        called: VariableTracker, tx: Any, *arguments: Any, **keywords: Any
    ) -> VariableTracker | None:
        return _answered(answer, tx, arguments, keywords)

    return function


_DYNAMOS_ITEM: Final = TensorVariable.method_item


def _item(variable: TensorVariable, tx: Any, *arguments: Any, **keywords: Any) -> Any:
    taken = None
    if not arguments and not keywords and scalars.may_take(tx):
        taken = scalars.take(tx, variable)
    return _DYNAMOS_ITEM(variable, tx, *arguments, **keywords) if taken is None else taken


_DYNAMOS_LIST: Final = TensorVariable.method_tolist

#: Each number of a list is an operation of its own.
_LISTED_AT_MOST: Final = 64


def _tolist(variable: TensorVariable, tx: Any) -> Any:
    """``x.tolist()`` of a few numbers, each taken out as ``item`` does."""
    count = example_of(variable).numel()
    is_few = isinstance(count, int) and count <= _LISTED_AT_MOST
    if is_few and type(variable) is TensorVariable and scalars.may_take(tx):
        found = _listed(tx, variable)
        if found is not None:
            return found
    try:
        return _DYNAMOS_LIST(variable, tx)
    except GuardOnDataDependentSymNode as error:
        unimplemented(
            gb_type="bcmend: a list of a length that only the data tell",
            context=f"tolist of {variable}",
            explanation="Dynamo lists the items of a tensor one by one.",
            hints=[*graph_break_hints.FUNDAMENTAL],
            from_exc=error,
        )


def _listed(tx: Any, variable: TensorVariable) -> VariableTracker | None:
    example = example_of(variable)
    if not example.dim():
        return scalars.take(tx, variable)
    items = [
        _listed(tx, calls.function(tx, operator.getitem, variable.as_proxy(), at))
        for at in range(int(example.shape[0]))
    ]
    found = [each for each in items if each is not None]
    is_whole = len(found) == len(items)
    return ListVariable(found, mutation_type=ValueMutationNew()) if is_whole else None


_DYNAMOS_NOT: Final = BuiltinVariable.call_not_
_DYNAMOS_OPERATION: Final = BuiltinVariable._handle_insert_op_in_graph


def _not(variable: BuiltinVariable, tx: Any, operand: VariableTracker) -> Any:
    """``not number``, where Dynamo would ask for the number itself."""
    unknown = isinstance(operand, SymNodeVariable) and free_unbacked_symbols(operand.sym_num)
    if not unknown or not scalars.may_take(tx):
        return _DYNAMOS_NOT(variable, tx, operand)
    assert isinstance(operand, SymNodeVariable)
    proxy = operand.as_proxy()
    if not isinstance(operand.sym_num, torch.SymBool):
        proxy = SymNodeVariable.create(tx, proxy != 0).as_proxy()
    return SymNodeVariable.create(
        tx, tx.output.create_proxy("call_function", torch.sym_not, (proxy,), {})
    )


_DYNAMOS_NUMBERS: Final = BuiltinVariable._comparison_with_symnode


def _numbers_compared(
    self: BuiltinVariable, tx: Any, left: VariableTracker, right: VariableTracker
) -> VariableTracker:
    """Compare numbers, of which one or both may be truths."""
    sides = left.realize(), right.realize()
    for side in sides:
        if isinstance(side, Unmerged):
            side.ask()
    if any(map(_is_truth, sides)):
        left, right = (_as_number(tx, each) for each in sides)
    return _DYNAMOS_NUMBERS(self, tx, left, right)


def _is_truth(value: VariableTracker) -> bool:
    if isinstance(value, SymNodeVariable):
        return isinstance(value.sym_num, torch.SymBool)
    return isinstance(value, ConstantVariable) and type(value.value) is bool


def _as_number(tx: Any, value: VariableTracker) -> VariableTracker:
    """Return 1 for a truth and 0 for its contrary, as Python compares them; torch does not."""
    if not _is_truth(value):
        return value
    if isinstance(value, ConstantVariable):
        return constant(int(value.value))
    arguments = (value.as_proxy(), 1, 0)
    proxy = tx.output.create_proxy("call_function", torch.sym_ite, arguments, {})
    return SymNodeVariable.create(tx, proxy)


def _operation(variable: BuiltinVariable, tx: Any, arguments: Any, keywords: Any) -> Any:
    """``not tensor``, where Dynamo would put Python's own ``not`` into the graph."""
    taken = None
    if variable.fn is operator.not_ and not keywords and scalars.may_take(tx):
        taken = _not_tensor(tx, arguments[0].realize())
    return _DYNAMOS_OPERATION(variable, tx, arguments, keywords) if taken is None else taken


def _not_tensor(tx: Any, operand: VariableTracker) -> VariableTracker | None:
    if type(operand) is not TensorVariable or example_of(operand).numel() != 1:
        return None
    return scalars.take(tx, lower.negated(tx, lower.as_predicate(tx, operand)))


def _of_numbers(before: Any) -> Any:
    """Return what computes with a number, for one that may be a truth."""

    def compute(self: Any, tx: Any, *given: Any) -> Any:
        if scalars.may_take(tx):
            others = [each.realize() for each in given if isinstance(each, VariableTracker)]
            self, *others = _as_numbers(tx, [self, *others])
            given = (*others, *given[len(others) :])
        return before(self, tx, *given)

    return compute


_ARITHMETIC: Final = (
    "add", "subtract", "multiply", "true_divide", "floor_divide", "remainder",
    "negative", "positive", "absolute", "int",
)  # fmt: skip


def _as_numbers(tx: Any, operands: list[Any]) -> list[Any]:
    """Return operands of which truths are numbers, if all of them are numbers or truths."""
    are_numbers = all(isinstance(each, (SymNodeVariable, ConstantVariable)) for each in operands)
    if not are_numbers or not any(map(_is_truth, operands)):
        return operands
    return [_as_number(tx, each) for each in operands]


_DYNAMOS_PLACE: Final = BaseListVariable.getitem_const


def _item_at(self: BaseListVariable, tx: Any, place: VariableTracker) -> VariableTracker:
    """Read an item of a list at a place that may be a truth."""
    at = place.realize()
    if isinstance(at, SymNodeVariable) and callees.is_mended(tx):
        at = _as_number(tx, at)
    return _DYNAMOS_PLACE(self, tx, at)


_DYNAMOS_ITEMS_EQUAL: Final = object_protocol.generic_richcompare_bool
_DYNAMOS_COMPARISON: Final = SymNodeVariable.richcompare_impl


def _items_equal(tx: Any, v: VariableTracker, w: VariableTracker, op: str) -> VariableTracker:
    """Whether two items of containers are equal, a truth and no tensor, as Python has it."""
    one, other = v.realize(), w.realize()
    if (_is_size(one) or _is_size(other)) and scalars.may_take(tx):
        one, other = (_size_in(tx, each) or each for each in (one, other))
    return _DYNAMOS_ITEMS_EQUAL(tx, one, other, op)


def _is_size(value: VariableTracker) -> bool:
    return isinstance(value, SymNodeVariable) and isinstance(value.sym_num, torch.SymInt)


def _size_in(tx: Any, value: VariableTracker) -> VariableTracker | None:
    """Return the number in a tensor that is compared with a size, where no rounding comes in."""
    if type(value) is not TensorVariable or example_of(value).dtype is not torch.int64:
        return None
    return scalars.take(tx, value)


def _comparison(self: SymNodeVariable, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
    """Compare a number with a tensor, which gives a tensor; Dynamo calls it a number."""
    if not isinstance(other, TensorVariable):
        return _DYNAMOS_COMPARISON(self, tx, other, op)
    function = cmp_name_to_op_mapping[op]
    return calls.function(tx, function, self.as_proxy(), other.as_proxy())


def install() -> None:
    """Let Dynamo ask here first."""
    handlers = TorchInGraphFunctionVariable._get_handlers()
    for name, answer in (
        ("equal", _equal),
        ("allclose", _allclose),
        ("is_nonzero", _is_nonzero),
    ):
        handlers.setdefault(getattr(torch, name), _of_function(answer))
        if not hasattr(TensorVariable, f"method_{name}"):
            setattr(TensorVariable, f"method_{name}", _of_method(answer))
    for name in (f"nb_{each}_impl" for each in _ARITHMETIC):
        setattr(SymNodeVariable, name, _of_numbers(getattr(SymNodeVariable, name)))
    BaseListVariable.getitem_const = _item_at  # type: ignore[assignment, method-assign]
    object_protocol.generic_richcompare_bool = _items_equal
    SymNodeVariable.richcompare_impl = _comparison  # type: ignore[method-assign]
    BuiltinVariable.call_not_ = _not  # type: ignore[assignment, method-assign]
    BuiltinVariable._comparison_with_symnode = _numbers_compared  # type: ignore[method-assign]
    BuiltinVariable._binop_handlers.cache_clear()  # it keeps such methods
    BuiltinVariable._handle_insert_op_in_graph = _operation  # type: ignore[assignment, method-assign]
    TensorVariable.method_tolist = _tolist  # type: ignore[assignment, method-assign]
    TensorVariable.method_item = _item  # type: ignore[assignment, method-assign]
