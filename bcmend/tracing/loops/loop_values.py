"""The values that a loop carries: the live-ins of its jump that an iteration changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat, fx_graph, snapshots
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import TensorValue, Value, example_of, fake_mode_of, kind_of_number
from bcmend.tracing.effects.memory_form import difference
from bcmend.tracing.effects.operator_runs import stand_in
from bcmend.tracing.loops.open_ranges import OpenIterator, number_in, with_number
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.sites.refusal import NotThisWay
from bcmend.tracing.two_forms import late_tensors, open_numbers, sides
from bcmend.tracing.two_forms.late_tensors import is_same
from bcmend.tracing.two_forms.sides import Open


class CarriedChange(Enum):
    """What an iteration makes of a live-in."""

    NONE = auto()
    TENSOR = auto()
    NUMBER = auto()
    RANGE = auto()


@dataclass(frozen=True, slots=True)
class Carried:
    """What a loop carries, by position among the live-ins of its jump.

    ``numbers`` are those of open iterators too; ``gradients`` says whether an iteration has any.
    """

    tensors: tuple[int, ...]
    numbers: tuple[int, ...]
    ranges: tuple[int, ...]
    gradients: bool

    def and_also(self, position: int, change: CarriedChange) -> Carried:
        """Return the same with one more live-in."""
        if change is CarriedChange.TENSOR:
            return replace(self, tensors=(*self.tensors, position))
        if change is CarriedChange.NUMBER:
            return replace(self, numbers=(*self.numbers, position))
        raise NotThisWay("some turns change a variable that others leave alone")


class MoreChanges(BaseException):
    """An iteration changes more than the first one: ``total += i`` while ``i`` is 0.

    ``carried`` is what it changes in all. No ``Exception``, since it passes through the tracing of
    the iteration.
    """

    def __init__(self, carried: Carried) -> None:
        super().__init__("an iteration changes more")
        self.carried = carried


def with_one_form(tx: compat.Tracer, values: Sequence[Value]) -> list[Value]:
    """Return live-ins of a loop, with one form for each number that a branch has left in two.

    What is a tensor on some paths and a constant on others becomes one tensor and one constant.
    """
    found = []
    for value in values:
        known, one = value.realize(), None
        if sides.is_open(known):
            one = open_numbers.joined(tx, known) or late_tensors.joined(tx, known)
        found.append(value if one is None else one)
    return found


def late_in(values: Sequence[Value]) -> dict[int, Open]:
    """Return live-ins that are a tensor on some paths and else a constant, by position."""
    known = enumerate(each.realize() for each in values)
    return {at: each for at, each in known if sides.is_open(each) and late_tensors.is_told(each)}


def apart(
    tx: compat.Tracer,
    values: Sequence[Value],
    late: Mapping[int, Open],
    before: Sequence[Value] = (),
) -> list[Value]:
    """Return live-ins with two in the place of each late tensor: whether it is one, and the tensor.

    Where it is none, any other does for the tensor: the one ``before``, of live-ins apart. Raises
    ``Refusal`` where a live-in that was a late tensor is something else.
    """
    found: list[Value] = []
    for position, value in enumerate(values):
        if position not in late:
            found.append(value)
            continue
        known = late_tensors.read(value.realize())
        *_, constant = late[position].sides
        if known is None or not (known.constant is None or is_same(known.constant, constant)):
            raise NotThisWay("a turn makes something else of a tensor")
        truth = known.truth
        if isinstance(truth, bool):
            truth = fx_graph.function(tx, torch.full, (), truth, dtype=torch.bool)
        found += [truth, known.tensor or before[len(found) + 1]]
    return found


def together(values: Sequence[Value], late: Mapping[int, Open]) -> list[Value]:
    """Return live-ins from what ``apart`` has made of them."""
    found: list[Value] = []
    left = iter(values)
    for value in left:
        phi = late.get(len(found))
        if phi is None:
            found.append(value)
        else:
            found.append(sides.like(phi, value, [next(left), phi.sides[1]]))
    return found


def what_changes(before: Sequence[Value], after: Sequence[Value], *, gradients: bool) -> Carried:
    """Return what an iteration changes. Raises ``Refusal`` for what cannot be carried."""
    if len(before) != len(after):
        raise NotThisWay("a turn needs other variables than the turn before")
    changes = [_change_of(*each) for each in zip(before, after, strict=True)]
    tensors, numbers, ranges = (
        tuple(position for position, change in enumerate(changes) if change is wanted)
        for wanted in (CarriedChange.TENSOR, CarriedChange.NUMBER, CarriedChange.RANGE)
    )
    if len(ranges) > 1:
        raise NotThisWay("a turn goes over two ranges")
    return Carried(tensors, numbers, ranges, gradients)


def _change_of(one: Value, other: Value) -> CarriedChange:
    one, other = one.realize(), other.realize()
    if isinstance(one, compat.RangeIteratorVariable) and one is other:
        return CarriedChange.RANGE
    if isinstance(one, OpenIterator) and isinstance(other, OpenIterator):
        return CarriedChange.NUMBER
    if snapshots.is_consumable(one):
        raise NotThisWay("a turn takes items from an iterator")
    if one is not other and _has_two_forms([one, other]):
        raise NotThisWay("a variable has a value of another kind on each side of a branch")
    if _is_same(one, other):
        return CarriedChange.NONE
    if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
        _require_one_kind(one, other)
        if difference(example_of(one), example_of(other)):
            raise NotThisWay("a tensor has another shape, dtype or device after a turn")
        return CarriedChange.TENSOR
    kinds = [kind_of_number(one), kind_of_number(other)]
    if None in kinds:
        raise NotThisWay("a turn changes something that is neither a tensor nor a number")
    if kinds[0] is not kinds[1]:
        raise NotThisWay("a turn makes a fraction of an integer, or an integer of a fraction")
    return CarriedChange.NUMBER


#: What the operator has for numbers of Python's; Inductor and backward take no numbers.
_DTYPES: Final[dict[type, torch.dtype]] = {int: torch.int64, float: torch.float64}


def _require_one_kind(one: TensorValue, other: TensorValue) -> None:
    """Refuse what is an array of numpy on one side alone; to the graph both are tensors."""
    kinds = {isinstance(each, compat.NumpyNdarrayVariable) for each in (one, other)}
    if len(kinds) > 1:
        raise NotThisWay("a turn makes an array of a tensor, or a tensor of an array")


def _has_two_forms(values: list[Value]) -> bool:
    """Return whether one of them, or what it holds, is a lazy phi."""
    found: list[Value] = []

    def note(variable: Value) -> None:
        if isinstance(variable, LazyPhi):
            found.append(variable)

    compat.VariableTracker.visit(note, values)
    return bool(found)


def _is_same(one: Value, other: Value) -> bool:
    if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
        # ``x += 1`` gives ``x`` another node, but leaves it the same tensor.
        return one is other or example_of(one) is example_of(other)
    if not (one.is_python_constant() and other.is_python_constant()):
        return one is other
    left, right = one.as_python_constant(), other.as_python_constant()
    return type(left) is type(right) and repr(left) == repr(right)


class _UnknownItem(compat.VariableTracker):
    """The number of an iteration: a body that reads it differs between iterations."""


class _Endless(compat.IteratorVariable):
    """Stands for the range that a loop goes over: there is always another number."""

    @methods.implements(methods.ITERNEXT)
    def _next(self, tx: compat.Tracer) -> Value:
        return _UnknownItem()


def exhausted(variable: Any) -> Value:
    return containers.exhausted_range(variable.start, variable.stop, variable.step)


def stand_ins(
    tx: compat.Tracer, tracer: Any, inputs: Sequence[Value], carried: Carried, entered: list[Proxy]
) -> list[Value]:
    """Return the live-ins of an iteration, with inputs of its graph for what is carried."""
    entering = list(inputs)
    for position in carried.tensors:
        known: Any = inputs[position].realize()
        with fake_mode_of(tx):
            example = stand_in(example_of(known))
        if carried.gradients and (example.is_floating_point() or example.is_complex()):
            example.requires_grad_(True)
        proxy = tracer.create_graph_input(f"carried_{position}", torch.Tensor, example)
        entered.append(proxy)
        entered_as = compat.wrap_fx_proxy(tx, proxy, example_value=example)
        entering[position] = fx_graph.in_kind_of(tx, known, entered_as)
    for position in carried.numbers:
        before = inputs[position].realize()
        kind = kind_of_number(number_in(before))
        assert kind is not None
        with fake_mode_of(tx):
            example = torch.zeros((), dtype=_DTYPES[kind])
        proxy = tracer.create_graph_input(f"number_{position}", torch.Tensor, example)
        entered.append(proxy)
        tensor = compat.wrap_fx_proxy(tx, proxy, example_value=example)
        count = out_of_the_operator(tx, number_in(before), tensor)
        if kind is int:
            scalars.count_from(tx, count)
        entering[position] = with_number(before, count)
    for position in carried.ranges:
        entering[position] = _Endless(mutation_type=compat.ValueMutationNew())
    return entering


def in_the_operator(tx: compat.Tracer, value: Value, carried: Carried) -> TensorValue:
    """Return the tensor for a carried value."""
    if isinstance(value, compat.TensorVariable):
        return value
    if kind_of_number(value) is float:
        return _fraction(tx, value, carried)
    return scalars.integer_tensor(tx, value)


def _fraction(tx: compat.Tracer, value: Value, carried: Carried) -> TensorValue:
    """Return a double with the value of a floating number, through which no gradient flows."""
    tensor = float_tensors.of_number(tx, value, float)
    return fx_graph.method(tx, "detach", tensor) if carried.gradients else tensor


def out_of_the_operator(tx: compat.Tracer, before: Value, value: Value) -> Value:
    """Return a carried value in the kind that it has in the program."""
    if isinstance(before, compat.TensorVariable) or not isinstance(value, compat.TensorVariable):
        carried: Value = fx_graph.in_kind_of(tx, before, value)
        return carried
    number = scalars.take(tx, value)
    if number is None:
        raise NotThisWay("a turn leaves a number that no tensor can hold")
    return number


def carried_values(
    after: Sequence[Value], before: Sequence[Value], carried: Carried
) -> list[Value]:
    """Return the carried live-ins of the next iteration.

    Raises ``MoreChanges`` if others have changed too, and ``Refusal`` for what cannot be carried.
    """
    if len(after) != len(before):
        raise NotThisWay("a turn needs other variables than the turn before")
    values = []
    for position in (*carried.tensors, *carried.numbers):
        value = number_in(after[position].realize())
        known = before[position]
        if isinstance(known, compat.TensorVariable):
            if not isinstance(value, compat.TensorVariable):
                raise NotThisWay("a turn makes something else of a tensor")
            _require_one_kind(known, value)
            if difference(example_of(known), example_of(value)):
                raise NotThisWay("a tensor has another shape, dtype or device after a turn")
        elif kind_of_number(value) is not kind_of_number(number_in(known.realize())):
            raise NotThisWay("a turn makes something else of a number")
        values.append(value)
    found = carried
    for position, (one, other) in enumerate(zip(before, after, strict=True)):
        is_carried = position in carried.tensors or position in carried.numbers
        if not is_carried and not _is_same(one.realize(), other.realize()):
            found = found.and_also(position, _change_of(one, other))
    if found is not carried:
        raise MoreChanges(found)
    return values
