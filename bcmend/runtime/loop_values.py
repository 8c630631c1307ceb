"""What a loop carries from turn to turn.

Reads the live-ins of the jump at which a loop is left, before a turn and after it; says which of
them a turn changes, and gives a turn inputs of its graph in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.iter import IteratorVariable
from torch._dynamo.variables.lists import RangeIteratorVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx import Proxy

from bcmend.runtime import scalars, snapshots
from bcmend.runtime.merge import difference, example_of
from bcmend.runtime.open_ranges import OpenIterator, number_in, with_number
from bcmend.runtime.unmerged import Unmerged

__all__ = [
    "Carried",
    "MoreChanges",
    "NoLoop",
    "carried_values",
    "exhausted",
    "in_the_operator",
    "out_of_the_operator",
    "stand_ins",
    "what_changes",
]


@dataclass(frozen=True, slots=True)
class Carried:
    """What a loop carries from turn to turn, by position among the live-ins.

    ``numbers`` are those of open iterators too; ``gradients`` says whether a turn has any.
    """

    tensors: tuple[int, ...]
    numbers: tuple[int, ...]
    ranges: tuple[int, ...]
    gradients: bool

    def and_also(self, position: int, kind: str) -> Carried:
        """Return the same with one more live-in."""
        if kind == "tensor":
            return replace(self, tensors=(*self.tensors, position))
        if kind == "number":
            return replace(self, numbers=(*self.numbers, position))
        raise NoLoop("a value that a turn changes now and then")


class NoLoop(Exception):
    """A turn does something that ``torch.while_loop`` has no form for."""


class MoreChanges(BaseException):
    """A turn changes more than the first one has shown, ``total += i`` while ``i`` is 0.

    ``carried`` is what it changes in all. No ``Exception``, since it passes through the tracing of
    the turn.
    """

    def __init__(self, carried: Carried) -> None:
        super().__init__("a turn changes more")
        self.carried = carried


def what_changes(
    before: Sequence[VariableTracker], after: Sequence[VariableTracker], *, gradients: bool
) -> Carried:
    """Return what a turn changes. Raises ``NoLoop`` for what cannot be carried."""
    kinds: dict[str, list[int]] = {"tensor": [], "number": [], "range": [], "same": []}
    if len(before) != len(after):
        raise NoLoop("other live-ins")
    for position, (one, other) in enumerate(zip(before, after, strict=True)):
        kinds[_kind_of_change(one.realize(), other.realize())].append(position)
    if len(kinds["range"]) > 1:
        raise NoLoop("two ranges")
    tensors, numbers, ranges = (tuple(kinds[each]) for each in ("tensor", "number", "range"))
    return Carried(tensors, numbers, ranges, gradients)


def _kind_of_change(one: VariableTracker, other: VariableTracker) -> str:
    if isinstance(one, RangeIteratorVariable) and one is other:
        return "range"
    if isinstance(one, OpenIterator) and isinstance(other, OpenIterator):
        return "number"
    if snapshots.is_consumable(one):
        raise NoLoop("an iterator")
    if one is not other and _has_two_forms([one, other]):
        raise NoLoop("a value that has two forms")
    if _is_same(one, other):
        return "same"
    if isinstance(one, TensorVariable) and isinstance(other, TensorVariable):
        if difference(example_of(one), example_of(other)):
            raise NoLoop("a tensor of another form")
        return "tensor"
    if _is_number(one) and _is_number(other):
        return "number"
    raise NoLoop("a Python value")


def _has_two_forms(values: list[VariableTracker]) -> bool:
    """Whether one of them, or what it holds, is left with one form on each side of a branch."""
    found: list[VariableTracker] = []

    def note(variable: VariableTracker) -> None:
        if isinstance(variable, Unmerged):
            found.append(variable)

    VariableTracker.visit(note, values)
    return bool(found)


def _is_number(value: VariableTracker) -> bool:
    if isinstance(value, SymNodeVariable):
        return isinstance(value.sym_num, torch.SymInt)
    return value.is_python_constant() and type(value.as_python_constant()) is int


def _is_same(one: VariableTracker, other: VariableTracker) -> bool:
    if isinstance(one, TensorVariable) and isinstance(other, TensorVariable):
        # ``x += 1`` gives ``x`` another node, but leaves it the same tensor.
        return one is other or example_of(one) is example_of(other)
    return one is other or _is_same_constant(one, other)


def _is_same_constant(one: VariableTracker, other: VariableTracker) -> bool:
    if not (one.is_python_constant() and other.is_python_constant()):
        return False
    left, right = one.as_python_constant(), other.as_python_constant()
    return type(left) is type(right) and repr(left) == repr(right)


class _UnknownItem(VariableTracker):
    """The number of a turn: a body that looks at it is not the same in every turn."""


class _Turns(IteratorVariable):
    """Stands for the range that a loop goes over: there is always another turn."""

    def tp_iternext_impl(self, tx: Any) -> VariableTracker:
        return _UnknownItem()


def exhausted(variable: Any) -> VariableTracker:
    return RangeIteratorVariable(variable.start, variable.stop, variable.step, 0)


def stand_ins(
    tx: Any, tracer: Any, inputs: Sequence[VariableTracker], carried: Carried, entered: list[Proxy]
) -> list[VariableTracker]:
    """Return the live-ins of a turn with inputs of its graph for what it changes."""
    entering = list(inputs)
    for position in carried.tensors:
        known: Any = inputs[position].realize()
        example = _fresh(tx, example_of(known), gradients=carried.gradients)
        proxy = tracer.create_graph_input(f"carried_{position}", torch.Tensor, example)
        entered.append(proxy)
        entering[position] = wrap_fx_proxy(tx, proxy, example_value=example)
    for position in carried.numbers:
        before = inputs[position].realize()
        example = _fresh_number(tx)
        proxy = tracer.create_graph_input(f"number_{position}", torch.Tensor, example)
        entered.append(proxy)
        stand_in = wrap_fx_proxy(tx, proxy, example_value=example)
        count = out_of_the_operator(tx, number_in(before), stand_in)
        scalars.count_from(tx, count)
        entering[position] = with_number(before, count)
    for position in carried.ranges:
        entering[position] = _Turns(mutation_type=ValueMutationNew())
    return entering


def _fresh_number(tx: Any) -> torch.Tensor:
    with tx.fake_mode:
        return torch.zeros((), dtype=torch.int64)


def in_the_operator(tx: Any, value: VariableTracker, carried: Carried) -> TensorVariable:
    """Return what stands for a carried value: a tensor for a number.

    Inductor and the backward of the operator take nothing else.
    """
    if isinstance(value, TensorVariable):
        return value
    if carried.gradients and isinstance(value, SymNodeVariable):
        counted = scalars.counted(tx, value)
        if counted is None:
            raise NoLoop("a number that is more than counted, where gradients flow")
        return counted
    return scalars.integer_tensor(tx, value)


def out_of_the_operator(
    tx: Any, before: VariableTracker, value: VariableTracker
) -> VariableTracker:
    """Return a carried value as the program has it."""
    if isinstance(before, TensorVariable) or not isinstance(value, TensorVariable):
        return value
    number = scalars.take(tx, value)
    if number is None:
        raise NoLoop("a number that cannot be taken out")
    return number


def _fresh(tx: Any, example: torch.Tensor, *, gradients: bool) -> torch.Tensor:
    with tx.fake_mode, torch.no_grad():
        fresh = torch.empty_strided(
            example.size(), example.stride(), dtype=example.dtype, device=example.device
        )
    if gradients and (fresh.is_floating_point() or fresh.is_complex()):
        fresh.requires_grad_(True)
    return fresh


def carried_values(
    after: Sequence[VariableTracker], before: Sequence[VariableTracker], carried: Carried
) -> list[VariableTracker]:
    """Return the live-ins of the next turn that are carried. Raises ``NoLoop`` for others."""
    if len(after) != len(before):
        raise NoLoop("other live-ins")
    values = []
    for position in (*carried.tensors, *carried.numbers):
        value = number_in(after[position].realize())
        known = before[position]
        if isinstance(known, TensorVariable):
            if not isinstance(value, TensorVariable):
                raise NoLoop("a tensor becomes something else")
            if difference(example_of(known), example_of(value)):
                raise NoLoop("a tensor of another form")
        elif not _is_number(value):
            raise NoLoop("a number becomes something else")
        values.append(value)
    moving = {*carried.tensors, *carried.numbers}
    found = carried
    for position, (one, other) in enumerate(zip(before, after, strict=True)):
        if position not in moving and not _is_same(one.realize(), other.realize()):
            found = found.and_also(position, _kind_of_change(one.realize(), other.realize()))
    if found is not carried:
        raise MoreChanges(found)
    return values
