"""What torch's operations want to know of numbers and sizes that only the data tell.

``torch.arange(n)`` and ``x.view(b, h, w)`` read the number in a tensor, once for each place. In
mended code, while a call is captured whole, the number is taken out before the call, so that it is
the same number at every place, and a constant where it is known. ``x.squeeze()`` and ``x.max()``
do something else for sizes of one, or of zero, which a graph would do as for any other; there the
graph asserts that the size is not that. Extends Dynamo's models of torch's functions and of methods
of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._dynamo import graph_break_hints
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import (
    ListVariable,
    TensorVariable,
    TorchInGraphFunctionVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.lists import SizeVariable

from bcmend.runtime import item_reads, scalars, sizes
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
    torch._C._nn.pad: 1,
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


#: What takes sizes that are one away, and what fails where there is nothing: a compiled graph
#: would do neither where only the data tell the size.
_TAKES_ONES_AWAY: Final = frozenset(["squeeze", "squeeze_"])
_FAILS_IF_EMPTY: Final = frozenset("max min amax amin argmax argmin median nanmedian mode".split())


def _require_other_sizes(
    tx: Any, name: str, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
) -> None:
    """Have a call made in plain Python if it is given a size for which no graph is traced."""
    if name not in _TAKES_ONES_AWAY | _FAILS_IF_EMPTY or not args:
        return
    number, tensor = int(name in _TAKES_ONES_AWAY), args[0].realize()
    if not isinstance(tensor, TensorVariable) or not scalars.may_take(tx):
        return
    if number == 0 and tx.output.current_tracer.parent is not None:
        return  # the condition of the arm may see to it that there is something
    sizes_given = _sizes_meant(example_of(tensor), [*args[1:2], *kwargs.values()])
    if not all(sizes.settle(tx, each, number) for each in sizes_given):
        unimplemented(
            gb_type="bcmend: a size that only the data tell",
            context=name,
            explanation=f"What `{name}` does depends on whether a size is {number}, which only the"
            " data tell.",
            hints=[*graph_break_hints.FUNDAMENTAL],
        )


def _require_item(
    tx: Any, name: str, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
) -> None:
    """Have the graph look whether there is the item that ``select`` is to give."""
    if name != "select" or not args:
        return
    given = dict(zip(("input", "dim", "index"), args, strict=False)) | kwargs
    tensor, at, place = (given.get(each) for each in ("input", "dim", "index"))
    if tensor is None or at is None or place is None or not at.is_python_constant():
        return
    tensor, known = tensor.realize(), at.as_python_constant()
    if isinstance(tensor, TensorVariable) and type(known) is int:
        item_reads.require_item(tx, tensor, known, place.realize())


def _sizes_meant(example: torch.Tensor, given: Sequence[VariableTracker]) -> Sequence[Any]:
    """Return the sizes of the dimensions that a call names; all of them where it names none."""
    if any(isinstance(each.realize(), TensorVariable) for each in given):
        return ()  # the larger of two tensors, number by number
    for each in given:
        known = each.as_python_constant() if each.is_python_constant() else None
        named = known if isinstance(known, (tuple, list)) else (known,)
        if all(type(one) is int and -example.dim() <= one < example.dim() for one in named):
            return [example.shape[one] for one in named]
    return example.shape


_DYNAMOS_FUNCTION: Final = TorchInGraphFunctionVariable.call_function
_DYNAMOS_METHOD: Final = TensorVariable.call_method


def _call_function(
    self: Any, tx: Any, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    name = str(getattr(self.value, "__name__", ""))
    if getattr(torch, name, None) is self.value:
        _require_other_sizes(tx, name, args, kwargs)
        _require_item(tx, name, args, kwargs)
    first = _first_number(self.value)
    if first is not None and scalars.may_take(tx):
        args = [*args[:first], *_numbers(tx, args[first:])]
        kwargs = _with_numbers(tx, kwargs)
    return _DYNAMOS_FUNCTION(self, tx, list(args), kwargs)


def _first_number(function: Any) -> int | None:
    try:
        return _FUNCTIONS.get(function)
    except TypeError:  # unhashable
        return None


def _with_numbers(tx: Any, given: dict[str, VariableTracker]) -> dict[str, VariableTracker]:
    return {name: value if name in _OTHERS else _number(tx, value) for name, value in given.items()}


def _call_method(
    self: Any,
    tx: Any,
    name: str,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    _require_other_sizes(tx, name, [self, *args], kwargs)
    _require_item(tx, name, [self, *args], kwargs)
    if name in _METHODS and scalars.may_take(tx):
        args, kwargs = _numbers(tx, args), _with_numbers(tx, kwargs)
    return _DYNAMOS_METHOD(self, tx, name, args, kwargs)


def install() -> None:
    """Let Dynamo ask here first."""
    TorchInGraphFunctionVariable.call_function = _call_function  # type: ignore[method-assign]
    TensorVariable.call_method = _call_method  # type: ignore[method-assign]
