"""Decide how two values of Dynamo's, one from each arm, become one.

Produces a plan: a function from the merged tensors to the merged value, plus the list of tensor
pairs to merge. Raises ``Refusal`` where no single value would equal what eager has on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import sympy
import torch

from bcmend.dynamo import compat, shape_env, values
from bcmend.dynamo.models import constants, containers, exceptions, objects, texts
from bcmend.dynamo.slots import pushed
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    example_of,
    is_of_derived_class,
    is_unbacked,
)
from bcmend.tracing.effects.memory_form import difference
from bcmend.tracing.heap.same import is_same
from bcmend.tracing.numbers.arm_selections import Selected
from bcmend.tracing.search import strict
from bcmend.tracing.sites.locations import Location
from bcmend.tracing.sites.phi import Build, Merged, Phi
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite

_Planned = TypeVar("_Planned")

#: Containers of which one is made of two, and that only by their items differ.
_JOINED: Final = (compat.TupleVariable, compat.ListVariable, compat.ConstDictVariable)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tensors (or equal symbolic numbers) to become one; ``None`` where a side has no value.

    ``selected`` gives one of them the size of the other, which a mask has selected in its arm.
    """

    then_value: Any
    else_value: Any
    selected: Selected | None = None

    @property
    def sides(self) -> tuple[Any, Any]:
        return self.then_value, self.else_value

    @property
    def values(self) -> list[Any]:
        """Return the sides that have a value."""
        return [side for side in self.sides if side is not None]

    @property
    def present(self) -> Any:
        """Return a side that has a value, and the size of what becomes of the pair."""
        is_else = self.then_value is None or (self.selected and not self.selected.then_side)
        return self.else_value if is_else else self.then_value

    @property
    def is_number(self) -> bool:
        return isinstance(self.present, compat.SymNodeVariable)


@dataclass(slots=True)
class Merger:
    """Collects the tensor pairs of one branch.

    Attributes:
        belongs: whether a tensor was made inside an arm, and so does not exist outside it.
        outer_form: the tensor of the main trace that a value is by another name; else the value.
        tensor_behind: the tensor that a number of an arm was taken out of, if it is stored.
        take: takes a number out of a tensor of the main trace.
        effects: Dynamo's side effects in the main trace.
        made: attributes of objects that the arms made, by the identity of the object.
        pairs: what has to be merged, in the order of the merged tensors that a plan expects.
        plans: what arms made and has been adopted, by identity, so that it stays one object.
        joined: the containers that were merged, likewise, by the identities of both sides, and how
            many pairs there were then.
        created: what values of one side have become that an entry of a table is created of.
        apart: the values, by identity (tensors by that of what stands for them), that are not
            merged: one side has one of them where the other has two.
        kept: the tensors from before that one side leaves as they are, likewise.
        fixed: gives the values that data-dependent symbols have on each side, by its condition.
        note_tuple: is given each tuple that was made of two.
        selected: gives what makes two tensors one size, where a mask has selected one of them in
            its arm, and stand-ins for both.
        adopting: the containers, by identity, of which the items are being adopted.
        has_appended: whether a list is known to which one side appends.
    """

    belongs: Callable[[Value], bool]
    outer_form: Callable[[Value], Value] = lambda value: value
    tensor_behind: Callable[[compat.SymNodeVariable], TensorValue | None] = lambda number: None
    take: Callable[[TensorValue], Value | None] = lambda value: None
    effects: Any = None
    made: Mapping[int, Mapping[Location, Value]] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    plans: dict[int, tuple[Value, Build]] = field(default_factory=dict)
    joined: dict[tuple[int, int], tuple[Value, Value, Build, int]] = field(default_factory=dict)
    created: dict[Value, Value] = field(default_factory=dict)
    apart: frozenset[int] = frozenset()
    kept: dict[int, TensorValue] = field(default_factory=dict)
    fixed: Callable[[], tuple[Mapping[Any, int], Mapping[Any, int]]] = lambda: ({}, {})
    note_tuple: Callable[[Value], None] = lambda merged: None
    selected: Callable[[TensorValue, TensorValue], Any] = lambda one, other: None
    adopting: list[int] = field(default_factory=list)
    has_appended: bool = False

    def torn(self) -> frozenset[int]:
        """Return the containers of one side that have become more than one object."""
        sides = [side for one, other, _, _ in self.joined.values() for side in (one, other)]
        known = Counter(id(side) for side in sides if type(side) is not compat.TupleVariable)
        known.update(self.plans.keys() & known.keys())
        return frozenset(key for key, count in known.items() if count > 1)

    def object_of(self, side: Value, merged: Value) -> Value:
        """Return the very object that a side has; ``merged`` if only its arm has it."""
        if self._is_older_tuple(side):
            return side
        is_older = isinstance(side, compat.TensorVariable) and not self.belongs(side)
        return side if is_older else self.created.get(side, merged)

    def _is_older_tuple(self, value: Value) -> bool:
        """Return whether a tuple holds nothing that an arm has made."""
        known: Any = value.realize()
        if type(known) is not compat.TupleVariable:
            return False
        return known.source is not None or all(map(self._is_older, known.items))

    def _is_older(self, value: Value) -> bool:
        value = value.realize()
        if isinstance(value, (compat.TensorVariable, compat.SymNodeVariable)):
            return not self.belongs(value)
        if type(value) in (compat.TupleVariable, compat.ConstantVariable):
            return type(value) is compat.ConstantVariable or self._is_older_tuple(value)
        is_from_before = value.mutation_type is not None and not is_made_inside(value)
        return is_from_before or value.source is not None

    def attempt(self, plan: Callable[[], _Planned]) -> _Planned | Refusal:
        """Return what ``plan`` does, or why it refuses, with nothing left of what it planned."""
        count, adopted = len(self.pairs), len(self.plans)
        found = attempt(plan)
        if isinstance(found, Refusal):
            del self.pairs[count:]
            for key in list(self.plans)[adopted:]:  # they read pairs that are not there any more
                del self.plans[key]
            self.joined = {key: each for key, each in self.joined.items() if each[-1] <= count}
        return found

    def merge(self, one: Value, other: Value) -> Build:
        """Plan the value that is ``one`` where the condition holds and ``other`` where not."""
        one, other = self.outer_form(one.realize()), self.outer_form(other.realize())
        return self.adopt(one) if one is other else self._merge_different(one, other)

    def _merge_different(self, one: Value, other: Value) -> Build:
        if isinstance(one, Phi) or isinstance(other, Phi):
            raise Refusal("arms-differ", "a value that is chosen when the graph has run")
        if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
            return self._merge_tensors(one, other)
        if type(one) is type(other) and type(one) in _JOINED:
            return self._join(one, other)
        if _is_constant(one) and _is_constant(other):
            are_objects = one.mutation_type is not None and type(one) is type(other)
            return self._join(one, other) if are_objects else _merge_constants(one, other)
        if (number := self._number_of_both(one, other)) is not None:
            return self._number(number, one, other)
        if type(one) is not type(other):
            raise Refusal(
                "arms-differ", f"{_describe(one)} on one side, {_describe(other)} on the other"
            )
        if one.source is not None and one.source == other.source:
            return lambda merged: one
        raise Refusal("arms-differ", f"two different objects of type {_describe(one)}")

    def _number_of_both(self, one: Value, other: Value) -> Value | None:
        """Return the number that both sides have, be it since the condition of one holds."""
        forms = [_form_of_number(each) for each in (one, other)]
        if None in forms:
            return None
        if forms[0] == forms[1]:
            is_known = type(other) is compat.ConstantVariable
            return other if is_known or self._is_older(other) else one
        for number, symbols in zip((other, one), self.fixed(), strict=True):
            is_equal = symbols and len({each.xreplace(symbols) for each in forms}) == 1
            is_of_arm = isinstance(number, compat.SymNodeVariable) and self.belongs(number)
            if is_equal and not is_of_arm:
                return number
        if isinstance(one, compat.SymNodeVariable) and isinstance(other, compat.SymNodeVariable):
            raise Refusal("arms-differ", "numbers that depend on the data differ")
        return None

    def _number(self, number: Any, one: Any, other: Any) -> Build:
        """Plan the number that both sides have; each computes it where both are of arms."""
        if self._is_older(number) or not is_unbacked(number):
            return self.adopt(number)
        first, second = (self.tensor_behind(each) for each in (one, other))
        if first is None or second is None:
            raise Refusal("arms-differ", "a number taken out of a tensor inside an arm")
        return self._taken(number, self.merge(first, second))

    def adopt(self, value: Value, *, then_side: bool | None = None) -> Build:
        """Plan to bring a value that only one side has into the main trace."""
        value = self.outer_form(value.realize())
        if not (is_made_inside(value) or type(value) is compat.TupleVariable):
            return self._adopted(value, then_side)
        if id(value) not in self.plans:
            if id(value) in self.adopting:
                raise Refusal("arms-differ", "a new container that holds itself")
            with pushed(self.adopting, id(value)):
                adopted = self._adopted(value, then_side)
            self.plans[id(value)] = value, _once(adopted)
        return self.plans[id(value)][1]

    def _adopt_all(self, parts: Iterable[Value], then_side: bool | None) -> list[Build]:
        return [self.adopt(part, then_side=then_side) for part in parts]

    def _adopted(self, value: Any, then_side: bool | None) -> Build:
        if isinstance(value, Phi):
            return value.adopt_into(self, then_side)
        if isinstance(value, (compat.TensorVariable, compat.SymNodeVariable)):
            return self._adopt_leaf(value, then_side)
        is_made = is_made_inside(value)
        if type(value) is compat.ListVariable and not is_made:
            if id(value) not in self.adopting:  # it may hold itself
                with pushed(self.adopting, id(value)):
                    self._adopt_all(value.items, then_side)
            return lambda merged: value
        if type(value) in (compat.ListVariable, compat.TupleVariable, compat.SizeVariable):
            rebuilt = _rebuilt(value, self._adopt_all(value.items, then_side))
            return (lambda merged: value) if self._is_older_tuple(value) else rebuilt
        if value.source is None and values.is_named_tuple(value):
            return _rebuilt(value, self._adopt_all(value.items, then_side))
        if is_made:
            return self._adopt_made(value, then_side)
        if type(value) is compat.ExceptionVariable and value.source is None:
            return self._adopt_exception(value, then_side)
        if isinstance(value, compat.StringFormatVariable):
            template, names = texts.template_of(value), texts.named_arguments_of(value)
            arguments = self._adopt_all(texts.arguments_of(value), then_side)
            keywords = self._adopt_all(names.values(), then_side)
            return lambda merged: texts.text_of(
                template,
                _built(arguments, merged),
                dict(zip(names, _built(keywords, merged), strict=True)),
            )
        return lambda merged: value

    def _adopt_leaf(
        self, value: TensorValue | compat.SymNodeVariable, then_side: bool | None
    ) -> Build:
        if not self.belongs(value):
            if isinstance(value, compat.TensorVariable):
                self.kept[id(example_of(value))] = value
            return lambda merged: value
        if is_unbacked(value):
            return self._adopt_number(value, then_side)
        return self._leaf(Pair(value, None) if then_side is not False else Pair(None, value))

    def _adopt_number(self, value: compat.SymNodeVariable, then_side: bool | None) -> Build:
        """Plan to bring the tensor along, and to take the number out of it once more."""
        tensor = self.tensor_behind(value)
        if tensor is None:
            raise Refusal("arms-differ", "a number taken out of a tensor inside an arm")
        return self._taken(value, self.adopt(tensor, then_side=then_side))

    def _taken(self, value: Any, plan: Build) -> Build:
        """Plan to take a number of an arm out of the tensor that comes along for it."""
        limits = shape_env.limits_of(value)
        if shape_env.may_overflow(limits):
            raise Refusal("arms-differ", "a number that may be more than 64 bits hold")

        def build(merged: Merged) -> Value:
            number = self.take(plan(merged))  # type: ignore[arg-type]
            assert number is not None
            shape_env.limit(number, limits)
            return number

        return build

    def _adopt_made(self, value: Any, then_side: bool | None) -> Build:
        if type(value) is compat.DequeVariable:
            parts = self._adopt_all(value.items, then_side)
            return lambda merged: containers.new_deque_like(value, _built(parts, merged))
        if type(value) in containers.DICTIONARIES:
            return _rebuilt(value, self._adopt_all(value.items.values(), then_side))
        if type(value) in (*objects.FROM_ATTRIBUTES, *containers.OBJECTS_BY_ITEMS):
            return self._adopt_object(value, then_side)
        if containers.contents_of(value) is value:
            return self._adopt_contents(value, then_side)
        items = value.items if type(value) is compat.ListIteratorVariable else ()
        return _moved_out(value, self._adopt_all(items, then_side))

    def _adopt_contents(self, value: Any, then_side: bool | None) -> Build:
        """Plan to keep an object that an arm made and that is itself the model of its items."""
        plans = self._adopt_all(containers.items_held(value), then_side)

        def build(merged: Merged) -> Value:
            objects.make_of_this_scope(value)
            containers.fill(value, _built(plans, merged))
            made: Value = value
            return made

        return build

    def _adopt_exception(self, value: compat.ExceptionVariable, then_side: bool | None) -> Build:
        """Plan to keep the model of an exception: what is known of it is known of that."""
        if id(value) in self.plans:
            return self.plans[id(value)][1]
        self.plans[id(value)] = value, lambda merged: value  # for an exception in its own context
        self.plans[id(value)] = value, _once(self._exception_plan(value, then_side))
        return self.plans[id(value)][1]

    def _exception_plan(self, value: compat.ExceptionVariable, then_side: bool | None) -> Build:
        parts = self._adopt_all(exceptions.arguments_of(value), then_side)
        related = self._adopt_all(exceptions.related_to(value), then_side)

        def build(merged: Merged) -> Value:
            exceptions.set_merged_arguments(value, _built(parts, merged))
            _built(related, merged)
            return value

        return build

    def _adopt_object(self, value: Any, then_side: bool | None) -> Build:
        self.plans[id(value)] = value, lambda merged: value  # for what holds it and is in it
        stores = self.made.get(id(value), {})
        plans = self._adopt_all(stores.values(), then_side)
        first = self._adopt_all(objects.arguments_of_new(value), then_side)
        items_plan = self._contents_plan(value, then_side)

        def build(merged: Merged) -> Any:
            objects.make_of_this_scope(value)
            if first:
                objects.set_arguments_of_new(value, _built(first, merged))
            if items_plan is not None:
                items_plan(merged)
            self.effects.id_to_variable[id(value.value)] = value
            self.effects.keepalive.append(value.value)
            for location, plan in zip(stores, plans, strict=True):
                self.effects.store_attr(value, location.key, plan(merged), location.store)
            return value

        return build

    def _contents_plan(self, value: Any, then_side: bool | None) -> Callable[[Merged], Any] | None:
        """Plan what an object that an arm made holds beside its attributes."""
        contents = containers.contents_of(value)
        if contents is value:
            return self._adopt_contents(value, then_side)
        if contents is not None:
            plan = self.adopt(contents, then_side=then_side)
            return lambda merged: containers.set_contents(value, plan(merged))
        is_exception = isinstance(value, compat.ExceptionVariable)
        return self._exception_plan(value, then_side) if is_exception else None

    def _leaf(self, pair: Pair) -> Build:
        same = (
            position
            for position, known in enumerate(self.pairs)
            if is_same(known.then_value, pair.then_value)
            and is_same(known.else_value, pair.else_value)
        )
        position = next(same, len(self.pairs))
        if position == len(self.pairs):
            self.pairs.append(pair)
        return lambda merged: merged[position]

    def _merge_tensors(self, one: TensorValue, other: TensorValue) -> Build:
        if any(map(is_of_derived_class, (one, other))) and one.python_type() != other.python_type():
            raise Refusal("arms-differ", "tensors of different classes")
        if one.as_proxy().node is other.as_proxy().node and not self.belongs(one):
            return lambda merged: one
        if type(one) is not type(other):
            raise Refusal("arms-differ", "tensors of different kinds")
        if type(one) is compat.NumpyNdarrayVariable and not all(map(self.belongs, (one, other))):
            raise Refusal("arms-differ", "an array from before, of which no merged one is a part")
        if any(isinstance(example_of(side), torch.nn.Parameter) for side in (one, other)):
            raise Refusal("arms-differ", "a parameter, which no merged tensor is")
        if not self.apart.isdisjoint((id(example_of(one)), id(example_of(other)))):
            raise Refusal("alias-changed", "tensors that share memory on one side only")
        found = self.selected(one, other)
        found = found if found is not None and self.belongs(found[0].mask) else None
        examples = (example_of(one), example_of(other)) if found is None else found[1:]
        visible = difference(*examples)
        if visible:
            raise Refusal("arms-differ", visible)
        return self._leaf(Pair(one, other, found and found[0]))

    def _join(self, one: Any, other: Any) -> Build:
        """Plan one container of two that the arms have made, and the same one each time."""
        if not self.apart.isdisjoint((id(one), id(other))):
            raise Refusal("alias-changed", "a container that is one object on one side only")
        key = id(one), id(other)
        if key not in self.joined:
            plan = self._plan_of_containers(one, other)
            self.joined[key] = one, other, _once(plan), len(self.pairs)
        return self.joined[key][2]

    def _plan_of_containers(self, one: Any, other: Any) -> Build:
        if type(one) in (compat.ListVariable, compat.TupleVariable):
            return self._merge_sequences(one, other)
        if type(one) is compat.ConstDictVariable:
            return self._merge_dictionaries(one, other)
        items = [each for side in (one, other) for each in getattr(side, "items", ())]
        if any(_has_identity(each) for each in items):
            raise Refusal("arms-differ", f"two different objects of type {_describe(one)}")
        return _merge_constants(one, other)

    def _merge_sequences(self, one: Any, other: Any) -> Build:
        count, others = len(one.items), len(other.items)
        if count != others:
            raise Refusal("arms-differ", f"{count} items on one side, {others} on the other")
        if type(one) is compat.ListVariable and not (is_made_inside(one) and is_made_inside(other)):
            raise Refusal("arms-differ", "two different lists")
        rebuilt = _rebuilt(one, list(map(self.merge, one.items, other.items)))
        return rebuilt if type(one) is compat.ListVariable else self._noted(rebuilt)

    def _noted(self, build: Build) -> Build:
        def build_and_note(merged: Merged) -> Value:
            built = build(merged)
            self.note_tuple(built)
            return built

        return build_and_note

    def _merge_dictionaries(self, one: Any, other: Any) -> Build:
        items, others = one.items, other.items
        if not containers.have_same_keys(items, others):
            raise Refusal("arms-differ", "dictionaries with different keys")
        if not (is_made_inside(one) and is_made_inside(other)):
            raise Refusal("arms-differ", "two different dictionaries")
        return _rebuilt(one, [self.merge(items[key], others[key]) for key in items])


@dataclass(frozen=True, slots=True)
class Join:
    """The place of a trace where the arms of a branch meet.

    ``form`` is that of the branch, ``consumed`` the iterators that an arm has advanced.
    """

    tx: compat.Tracer
    site: LiveSite
    form: int
    predicate: TensorValue
    merger: Merger
    consumed: tuple[Value, ...] = ()


def _form_of_number(value: Value) -> Any:
    """Return a number as an expression of data-dependent ones; ``None`` for other values."""
    if isinstance(value, compat.SymNodeVariable):
        node = getattr(value.sym_num, "node", None)  # none of a number that torch has found out
        if node is not None:
            return node.shape_env.simplify(node.expr)
        known = value.sym_num
    else:
        known = value.value if isinstance(value, compat.ConstantVariable) else None
    return sympy.Integer(known) if type(known) is int else None


def _is_constant(value: Value) -> bool:
    """Return whether equal values cannot be told apart; two lists that others hold can be."""
    if value.mutation_type is not None:
        return is_made_inside(value) and value.is_python_constant()
    # What has no hash shows what others change, as views of the keys of a dictionary do.
    return value.is_python_constant() and _is_hashable(value.as_python_constant())


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _has_identity(value: Any) -> bool:
    """Return whether an item of a container is an object that can be changed."""
    return isinstance(value, Value) and value.realize().mutation_type is not None


def _merge_constants(one: Value, other: Value) -> Build:
    if constants.is_same(one, other):
        return _moved_out(one, [])
    left, right = one.as_python_constant(), other.as_python_constant()
    raise Refusal("arms-differ", f"{left!r} on one side, {right!r} on the other")


def _describe(value: Value) -> str:
    try:
        return value.python_type_name()
    except Exception as error:
        # ``Unsupported`` or ``NotImplementedError``: Dynamo's model does not know the type. The
        # text of a refusal names the model instead.
        strict.require_foreign(error)
        return type(value).__name__


def is_made_inside(value: Value) -> bool:
    """Return whether the arms that are being lowered made an object; tensors apart."""
    kind = value.mutation_type
    return kind is not None and kind.scope > compat.current_scope_id()


def _once(build: Build) -> Build:
    built: list[Value] = []

    def build_once(merged: Merged) -> Value:
        if not built:
            built.append(build(merged))
        return built[0]

    return build_once


def _built(plans: Iterable[Build], merged: Merged) -> list[Value]:
    return [plan(merged) for plan in plans]


def _rebuilt(model: Any, parts: Sequence[Build]) -> Build:
    """Plan a new container like ``model``."""
    if type(model) is compat.SizeVariable:
        return lambda merged: compat.SizeVariable(_built(parts, merged))
    return lambda merged: values.made_of(model, _built(parts, merged))


def _moved_out(value: Any, items: Sequence[Build]) -> Build:
    """Plan an object that an arm made, which an arm from here on may change from outside."""
    # ``items`` are what an iterator over a list goes over.

    def build(merged: Merged) -> Any:
        if isinstance(value.mutation_type, compat.ValueMutationNew):
            value.mutation_type = compat.ValueMutationNew()
        if items:
            value.items = _built(items, merged)
        return value

    return build
