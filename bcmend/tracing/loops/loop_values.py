"""The values that a loop carries: the live-ins of its jump that an iteration changes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from typing import Any, Final

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat, fx_graph, snapshots
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    example_of,
    fake_mode_of,
    is_of_derived_class,
    kind_of_number,
)
from bcmend.tracing.effects.memory_form import difference
from bcmend.tracing.effects.operator_runs import stand_in
from bcmend.tracing.heap.same import is_same
from bcmend.tracing.loops.open_ranges import OpenIterator, number_in, with_number
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt
from bcmend.tracing.two_forms import holders, late_tensors, open_numbers, parts, sides


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

    What is a tensor, or a tuple, on some paths and a constant on others becomes one of each.
    """
    return [_with_one_form(tx, value) for value in values]


def _with_one_form(tx: compat.Tracer, value: Value) -> Value:
    if parts.has_parts(value):
        leaves = list(parts.leaves_of(value))
        found = [_with_one_form(tx, each) for each in leaves]
        if all(map(operator.is_, leaves, found)) or _is_held_elsewhere(tx, value):
            return value
        return parts.made_like(value, found)
    known, one = value.realize(), None
    if sides.is_open(known):
        one = open_numbers.joined(tx, known) or late_tensors.joined(tx, known)
    return value if one is None else one


def _is_held_elsewhere(tx: compat.Tracer, value: Value) -> bool:
    """Return whether anything but one live-in may hold a list or a dictionary in it."""
    held = list(parts.changeable_in(value))
    return isinstance(attempt(lambda: holders.require_held_once(tx, held, ())), Refusal)


class _Parts:
    """Containers among live-ins, each with what it holds in its place."""

    def __init__(self, values: Sequence[Value], parted_at: Collection[int]) -> None:
        self._forms = {at: values[at].realize() for at in parted_at}

    def count(self, live_ins: int) -> int:
        """Return how many values there are for the first live-ins."""
        forms = [self._forms[at] for at in range(live_ins) if at in self._forms]
        return live_ins + sum(len(list(parts.leaves_of(each))) - 1 for each in forms)

    def of(self, tx: compat.Tracer, values: Sequence[Value]) -> list[Value]:
        found: list[Value] = []
        for position, value in enumerate(values):
            form = self._forms.get(position)
            if form is None:
                found.append(value)
            elif parts.are_alike(form, value):
                found += parts.leaves_of(value)
            else:
                raise NotThisWay("a turn makes something else of a container")
        made = [each for at in self._forms for each in parts.changeable_in(values[at])]
        holders.require_held_once(tx, made, found)
        return found

    def together(self, values: Sequence[Value]) -> list[Value]:
        return _together(values, self._forms, parts.made_like)


class _Late:
    """What is a tensor, or a container, on some paths, with its parts in its place.

    The first tells whether it is that. Where it is not, any others do.
    """

    def __init__(self, values: Sequence[Value]) -> None:
        known = enumerate(each.realize() for each in values)
        self._forms: dict[int, Any] = {
            at: each for at, each in known if sides.is_open(each) and late_tensors.is_told(each)
        }

    def count(self, live_ins: int) -> int:
        """Return how many values there are for the first live-ins."""
        return live_ins + sum(_parts_of(each) for at, each in self._forms.items() if at < live_ins)

    def of(
        self, tx: compat.Tracer, values: Sequence[Value], before: Sequence[Value]
    ) -> list[Value]:
        found: list[Value] = []
        for position, value in enumerate(values):
            form = self._forms.get(position)
            found += [value] if form is None else _told(tx, form, value, before[len(found) :])
        late = [values[at].realize() for at in self._forms]
        held: list[Any] = [each.sides[0] if isinstance(each, LazyPhi) else each for each in late]
        holders.require_held_once(tx, [e for one in held for e in parts.changeable_in(one)], found)
        return found

    def together(self, values: Sequence[Value]) -> list[Value]:
        return _together(values, self._forms, _late_like)


def _together(
    values: Sequence[Value],
    forms: Mapping[int, Value],
    made_like: Callable[[Any, Iterator[Value]], Value],
) -> list[Value]:
    """Return live-ins, each that has a form made of the next values."""
    found: list[Value] = []
    left = iter(values)
    for value in left:
        form = forms.get(len(found))
        found.append(value if form is None else made_like(form, chain([value], left)))
    return found


def _late_like(form: Any, values: Iterator[Value]) -> Value:
    first, last = form.sides
    truth = next(values)
    return sides.like(form, truth, [parts.made_like(first, values), last])


def _parts_of(form: Any) -> int:
    return len(list(parts.leaves_of(form.sides[0])))


def _told(tx: compat.Tracer, form: Any, value: Value, before: Sequence[Value]) -> list[Value]:
    """Return whether a late live-in of a form is a tensor, or a container, and what that holds."""
    first, last = form.sides
    known = late_tensors.read(value.realize())
    if known is None or not (known.constant is None or is_same(known.constant, last)):
        raise NotThisWay("a turn makes something else of a tensor")
    truth = known.truth
    if isinstance(truth, bool):
        truth = fx_graph.function(tx, torch.full, (), truth, dtype=torch.bool)
    if known.value is None:
        return [truth, *before[1 : 1 + _parts_of(form)]]
    if not parts.are_alike(first, known.value):
        raise NotThisWay("a turn makes something else of a container")
    return [truth, *parts.leaves_of(known.value)]


class Apart:
    """Live-ins for which there are several values: containers, and what is late, in them too."""

    def __init__(self) -> None:
        self._parts, self._late = _Parts((), ()), _Late(())

    def take(self, tx: compat.Tracer, values: Sequence[Value], at: Collection[int]) -> list[Value]:
        """Take live-ins apart: the containers ``at`` some, and what is late. Raises as ``of``."""
        self._parts = _Parts(values, at)
        held = self._parts.of(tx, values)
        self._late = _Late(held)
        return self._late.of(tx, held, ())

    def count(self, live_ins: int) -> int:
        """Return how many values there are for the first live-ins."""
        return self._late.count(self._parts.count(live_ins))

    def of(
        self, tx: compat.Tracer, values: Sequence[Value], before: Sequence[Value] = ()
    ) -> list[Value]:
        """Return the values for live-ins; of late ones those ``before`` if there are none now.

        Raises ``Refusal`` where a live-in has another form than at first, or holds a list or a
        dictionary that something else may hold as well.
        """
        return self._late.of(tx, self._parts.of(tx, values), before)

    def together(self, values: Sequence[Value]) -> list[Value]:
        """Return live-ins from what ``of`` has made of them."""
        return self._parts.together(self._late.together(values))


def containers_changed(before: Sequence[Value], after: Sequence[Value]) -> list[int]:
    """Return which live-ins are containers, and others like them after a turn."""
    return [
        at
        for at, (one, other) in enumerate(zip(before, after, strict=False))
        if one.realize() is not other.realize()
        and parts.has_parts(one)
        and parts.are_alike(one, other)
        and not is_same(one.realize(), other.realize())
    ]


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
    if is_same(one, other):
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
    """Refuse what is an array of numpy on one side alone; to the graph both are tensors.

    Refuse as well what is of a class derived from ``torch.Tensor``, which the operator returns none
    of.
    """
    if any(map(is_of_derived_class, (one, other))):
        raise NotThisWay("a turn changes a tensor of a class of its own")
    kinds = {isinstance(each, compat.NumpyNdarrayVariable) for each in (one, other)}
    if len(kinds) > 1:
        raise NotThisWay("a turn makes an array of a tensor, or a tensor of an array")


def _has_two_forms(values: list[Value]) -> bool:
    """Return whether one of them, or what it holds, is a lazy phi."""
    found: list[Value] = []

    def note(variable: Value) -> None:
        if isinstance(variable, LazyPhi):
            found.append(variable)

    snapshots.visit(note, values)
    return bool(found)


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
        if not is_carried and not is_same(one.realize(), other.realize()):
            found = found.and_also(position, _change_of(one, other))
    if found is not carried:
        raise MoreChanges(found)
    return values
