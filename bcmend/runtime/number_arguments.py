"""Tensors of one integer where torch wants a number: a size, an index or the bound of a slice.

``torch.arange(n)``, ``x.view(b, h, w)`` and ``x[:, :n]`` read the number in a tensor, once for each
place. In mended code, while a call is captured whole, the number is taken out before the call, so
that it is the same number at every place, and a constant where it is known. Extends Dynamo's models
of torch's functions and of methods of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._dynamo.variables import (
    ListVariable,
    SliceVariable,
    TensorVariable,
    TorchInGraphFunctionVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.lists import SizeVariable

from bcmend.runtime import scalars
from bcmend.runtime.merge import example_of

__all__ = ["install"]

#: Arguments that are numbers, or sequences of them: the position of the first one.
_FUNCTIONS: Final = {
    torch.arange: 0,
    torch.zeros: 0,
    torch.ones: 0,
    torch.empty: 0,
    torch.rand: 0,
    torch.randn: 0,
    torch.randperm: 0,
    torch.eye: 0,
    torch.linspace: 2,
    torch.logspace: 2,
    torch.narrow: 1,
    torch.reshape: 1,
    torch.split: 1,
    torch.chunk: 1,
    torch.roll: 1,
    torch.tile: 1,
    torch.broadcast_to: 1,
    torch.unflatten: 1,
    torch.nn.functional.one_hot: 1,
    torch.nn.functional.pad: 1,
}
_METHODS: Final = frozenset(
    "view reshape expand repeat narrow split chunk roll tile broadcast_to unflatten new_zeros"
    " new_ones new_empty unfold".split()
)
#: Of the keywords these are no numbers, or tensors for all that is known.
_OTHERS: Final = frozenset(["out", "dtype", "device", "layout", "input", "self", "value"])


def _has_number(value: VariableTracker) -> bool:
    if type(value) is not TensorVariable:
        return False
    example = example_of(value)
    is_integral = not (example.is_floating_point() or example.is_complex())
    return is_integral and example.dtype is not torch.bool and example.dim() == 0


def _numbers(tx: Any, values: Sequence[VariableTracker]) -> list[VariableTracker]:
    return [_number(tx, each) for each in values]


def _number(tx: Any, value: VariableTracker) -> VariableTracker:
    """Return a value with numbers in place of tensors of one, in sequences too."""
    value = value.realize()
    if _has_number(value):
        assert isinstance(value, TensorVariable)
        return scalars.take(tx, value) or value
    if type(value) in (TupleVariable, ListVariable, SizeVariable):
        items = [each.realize() for each in value.items]  # type: ignore[attr-defined]
        if any(map(_has_number, items)):
            return TupleVariable(_numbers(tx, items))
    return value


_DYNAMOS_FUNCTION: Final = TorchInGraphFunctionVariable.call_function
_DYNAMOS_METHOD: Final = TensorVariable.call_method


def _call_function(
    self: Any, tx: Any, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    first = _first_number(self.value)
    if first is not None and scalars.may_take(tx):
        args = [*args[:first], *_numbers(tx, args[first:])]
        kwargs = _with_numbers(tx, kwargs)
    return _DYNAMOS_FUNCTION(self, tx, args, kwargs)


def _first_number(function: Any) -> int | None:
    try:
        return _FUNCTIONS.get(function)
    except TypeError:  # unhashable
        return None


def _with_numbers(tx: Any, given: dict[str, VariableTracker]) -> dict[str, VariableTracker]:
    return {
        name: value if name in _OTHERS else _number(tx, value) for name, value in given.items()
    }


def _call_method(
    self: Any,
    tx: Any,
    name: str,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    if name in _METHODS and scalars.may_take(tx):
        args, kwargs = _numbers(tx, args), _with_numbers(tx, kwargs)
    elif name in ("__getitem__", "__setitem__") and args and scalars.may_take(tx):
        args = [_with_bounds(tx, args[0].realize()), *args[1:]]
    return _DYNAMOS_METHOD(self, tx, name, args, kwargs)


def _with_bounds(tx: Any, index: VariableTracker) -> VariableTracker:
    """Return an index with numbers in place of tensors as bounds of its slices."""
    if isinstance(index, SliceVariable):
        if any(_has_number(each.realize()) for each in index.items):
            return SliceVariable(_numbers(tx, index.items), tx)
        return index
    if type(index) is TupleVariable:
        items = [each.realize() for each in index.items]
        found = [_with_bounds(tx, e) if isinstance(e, SliceVariable) else e for e in items]
        if any(one is not other for one, other in zip(items, found, strict=True)):
            return TupleVariable(found)
    return index


def install() -> None:
    """Let Dynamo ask here first."""
    TorchInGraphFunctionVariable.call_function = _call_function  # type: ignore[method-assign]
    TensorVariable.call_method = _call_method  # type: ignore[method-assign]
