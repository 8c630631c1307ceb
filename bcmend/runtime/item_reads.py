"""Items at places that only the data tell: ``x[row]``, ``x[row.item(), 0]``, ``x[:, column]``.

Torch reads an integer, or a tensor that holds one, as the place of an item. For a place that is
known to the data alone it has ``torch.select``, which Dynamo takes for ``x[number]``; any other
index of that kind is an error of torch's while a call is traced, or the number becomes a constant
of the graph. Here such an index is written as one ``select`` for each of these numbers, behind the
rest of the index. The result is a view, as in eager execution.

Where that is changed in place and has a history of gradients, autograd takes the view once more
while the call is traced, and torch looks for the place of that one in the graph, in vain.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch._dynamo.variables import BuiltinVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import calls, scalars, sizes
from bcmend.runtime.index_parts import Item, is_item, is_known, part_of
from bcmend.runtime.merge import example_of

__all__ = ["install", "read", "require_item"]


_IN_PLACE: Final = frozenset(
    getattr(operator, f"i{name}")
    for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
)


def read(tx: Any, tensor: TensorVariable, key: VariableTracker) -> TensorVariable | None:
    """Return ``tensor[key]``; ``None`` where Dynamo's own way is as good."""
    example = example_of(tensor)
    if isinstance(key, SymNodeVariable):
        require_item(tx, tensor, 0, key)
        return None
    if example.layout is not torch.strided:
        return None
    part = part_of(tx, example.dim(), key)
    if part is None or not any(isinstance(axis, Item) for axis in part.axes):
        return None
    items = [each.realize() for each in key.items] if type(key) is TupleVariable else [key]
    rest, numbers = [], {}
    for each, at in zip(items, _dimensions(items, example.dim()), strict=True):
        if at is None or not is_item(tx, each):
            rest.append(each)
        else:
            numbers[at] = _number(tx, each)
    if None in numbers.values():
        return None
    # Inductor takes no item at such a place of what is an item at a known place.
    for at in reversed(numbers):
        require_item(tx, tensor, at, numbers[at])
        tensor = calls.function(tx, torch.select, tensor, at, numbers[at])
    return calls.function(tx, operator.getitem, tensor, TupleVariable(rest)) if rest else tensor


def require_item(tx: Any, tensor: TensorVariable, at: int, place: Any) -> None:
    """Have the graph assert that there is an item at a place: Inductor reads memory unasked."""
    if isinstance(place, SymNodeVariable) and isinstance(place.sym_num, torch.SymInt):
        shape = example_of(tensor).shape
        if -len(shape) <= at < len(shape):
            number, size = place.sym_num, shape[at]
            sizes.claim(tx, number < size, number >= -size)


def _dimensions(items: Sequence[VariableTracker], count: int) -> Iterator[int | None]:
    """Yield for each part of an index the dimension of the tensor that it names something of."""
    named = [not (is_known(each, None) or is_known(each, ...)) for each in items]
    at = 0
    for each, names in zip(items, named, strict=True):
        yield at if names else None
        at += names
        if is_known(each, ...):
            at += count - sum(named)


def _number(tx: Any, place: VariableTracker) -> VariableTracker | None:
    """Return the place of an item as a number."""
    return scalars.take(tx, place) if isinstance(place, TensorVariable) else place


def _with_items(before: Any) -> Any:
    """Return what inserts operators into the graph, such as ``x[row]``."""

    def insert(variable: BuiltinVariable, tx: Any, arguments: Any, keywords: Any) -> Any:
        if variable.fn is operator.getitem and len(arguments) == 2 and scalars.may_take(tx):
            tensor, key = (each.realize() for each in arguments)
            found = read(tx, tensor, key) if type(tensor) is TensorVariable else None
            if found is not None:
                return found
        is_changed = variable.fn in _IN_PLACE
        with _view_taken_again(tx, arguments[0].realize()) if is_changed else nullcontext():
            return before(variable, tx, arguments, keywords)

    return insert


def _view_taken_again(tx: Any, value: VariableTracker) -> AbstractContextManager[Any]:
    """Let autograd take a view once more, whose place then is in no operation of the graph."""
    if not _is_at_a_place_of_data(value):
        return nullcontext()
    ignoring: AbstractContextManager[Any] = tx.fake_mode.shape_env.ignore_fresh_unbacked_symbols()
    return ignoring


def _is_at_a_place_of_data(value: VariableTracker) -> bool:
    if type(value) is not TensorVariable:
        return False
    example = example_of(value)
    offset = example.storage_offset() if example.layout is torch.strided else 0
    return isinstance(offset, torch.SymInt) and bool(free_unbacked_symbols(offset))


def _with_views(before: Any) -> Any:
    """Return what answers ``x[row].add_(1)``."""

    def call(
        variable: TensorVariable,
        tx: Any,
        name: str,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        is_changed = name.endswith("_") and not name.endswith("__")
        with _view_taken_again(tx, variable) if is_changed else nullcontext():
            found: VariableTracker = before(variable, tx, name, args, kwargs)
        return found

    return call


def install() -> None:
    """Let Dynamo ask here first."""
    BuiltinVariable._handle_insert_op_in_graph = _with_items(  # type: ignore[method-assign]
        BuiltinVariable._handle_insert_op_in_graph
    )
    TensorVariable.call_method = _with_views(TensorVariable.call_method)  # type: ignore[method-assign]
