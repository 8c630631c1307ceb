"""Decide how two values of Dynamo's, one from each arm, become one.

Reads pairs of variable trackers and produces a plan: a function from the merged tensors to the
merged value, plus the list of tensor pairs that have to be merged. Knows nothing of how tensors are
merged. Raises ``CannotMerge`` where no single value would equal what eager has on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._dynamo.current_scope_id import current_scope_id
from torch._dynamo.variables import (
    ConstantVariable,
    ConstDictVariable,
    ListVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import AttributeMutationNew, ValueMutationNew, VariableTracker
from torch._dynamo.variables.lists import DequeVariable, ListIteratorVariable, SizeVariable
from torch._dynamo.variables.misc import ExceptionVariable, StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.user_defined import (
    DefaultDictVariable,
    FrozenDataClassVariable,
    OrderedDictVariable,
    UserDefinedDictVariable,
    UserDefinedExceptionObjectVariable,
    UserDefinedObjectVariable,
)
from torch.fx.experimental.symbolic_shapes import statically_known_true

from bcmend.runtime import containers

__all__ = ["CannotMerge", "Merger", "Pair", "difference", "is_made_inside"]

Build = Callable[[Sequence[VariableTracker]], VariableTracker]


#: Objects that Dynamo makes again after the graph from what is stored in them.
_OBJECTS: Final = (
    UserDefinedObjectVariable,
    UserDefinedDictVariable,
    OrderedDictVariable,
    DefaultDictVariable,
    FrozenDataClassVariable,
    UserDefinedExceptionObjectVariable,
)


class CannotMerge(Exception):
    """The two sides have no common form."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tensors (or equal symbolic numbers) to become one; ``None`` where a side has no value."""

    then_value: Any
    else_value: Any

    @property
    def present(self) -> Any:
        """Return a side that has a value."""
        return self.else_value if self.then_value is None else self.then_value

    @property
    def is_number(self) -> bool:
        return isinstance(self.present, SymNodeVariable)


def example_of(value: TensorVariable) -> torch.Tensor:
    """Return the fake tensor behind ``value``."""
    example = value.as_proxy().node.meta["example_value"]
    assert isinstance(example, torch.Tensor)
    return example


@dataclass(slots=True)
class Merger:
    """Collects the tensor pairs of one branch.

    Attributes:
        belongs: whether a tensor was made inside an arm, and so does not exist outside it.
        outer_form: the tensor of the main trace that a value is by another name; else the value.
        tensor_behind: the tensor that a number of an arm was taken out of, if it is kept.
        take: takes a number out of a tensor of the main trace.
        effects: Dynamo's side effects in the main trace.
        made: attributes of objects that the arms made, by the identity of the object.
        pairs: what has to be merged, in the order of the merged tensors that a plan expects.
        plans: what arms made and has been adopted, by identity, so that it stays one object.
    """

    belongs: Callable[[VariableTracker], bool]
    outer_form: Callable[[VariableTracker], VariableTracker] = lambda value: value
    tensor_behind: Callable[[SymNodeVariable], TensorVariable | None] = lambda value: None
    take: Callable[[TensorVariable], VariableTracker | None] = lambda value: None
    effects: Any = None
    made: Mapping[int, tuple[dict[str, VariableTracker], dict[str, Any]]] = field(
        default_factory=dict
    )
    pairs: list[Pair] = field(default_factory=list)
    plans: dict[int, tuple[VariableTracker, Build]] = field(default_factory=dict)

    def merge(self, one: VariableTracker, other: VariableTracker) -> Build:
        """Plan the value that is ``one`` where the condition holds and ``other`` where not."""
        one, other = self.outer_form(one.realize()), self.outer_form(other.realize())
        if one is other:
            return self.adopt(one)
        return self._merge_different(one, other)

    def _merge_different(self, one: VariableTracker, other: VariableTracker) -> Build:
        if any(hasattr(side, "adopt_into") for side in (one, other)):
            raise CannotMerge("a value that is chosen when the graph has run")
        if isinstance(one, TensorVariable) and isinstance(other, TensorVariable):
            return self._merge_tensors(one, other)
        if type(one) is type(other) and type(one) in (ListVariable, TupleVariable):
            return self._merge_sequences(one, other)
        if type(one) is type(other) is ConstDictVariable:
            return self._merge_dictionaries(one, other)
        if _is_constant(one) and _is_constant(other):
            return _merge_constants(one, other)
        if isinstance(one, SymNodeVariable) and isinstance(other, SymNodeVariable):
            if one.sym_num is other.sym_num or statically_known_true(one.sym_num == other.sym_num):
                return self.adopt(one)
            raise CannotMerge("numbers that depend on the data differ")
        if type(one) is not type(other):
            raise CannotMerge(f"{_describe(one)} on one side, {_describe(other)} on the other")
        if one.source is not None and one.source == other.source:
            return lambda merged: one
        raise CannotMerge(f"two different objects of type {_describe(one)}")

    def adopt(self, value: VariableTracker, *, then_side: bool | None = None) -> Build:
        """Plan to bring a value that only one side has into the main trace."""
        value = self.outer_form(value.realize())
        if not is_made_inside(value):
            return self._adopted(value, then_side)
        if id(value) not in self.plans:
            self.plans[id(value)] = value, _once(self._adopted(value, then_side))
        return self.plans[id(value)][1]

    def _adopted(self, value: VariableTracker, then_side: bool | None) -> Build:
        if hasattr(value, "adopt_into"):  # a stand-in of ``unmerged``, which builds on this module
            plan: Build = value.adopt_into(self, then_side)
            return plan
        if isinstance(value, (TensorVariable, SymNodeVariable)):
            return self._adopt_leaf(value, then_side)
        if type(value) in (ListVariable, TupleVariable, SizeVariable):
            parts = [self.adopt(item, then_side=then_side) for item in _sequence_items(value)]
            if is_made_inside(value) or type(value) is not ListVariable:
                return _rebuild_sequence(type(value), parts)
            return lambda merged: value
        if value.source is None and containers.is_named_tuple(value):
            items = containers.items_in(value) or []
            return _rebuild_named([self.adopt(x, then_side=then_side) for x in items], value)
        if is_made_inside(value):
            return self._adopt_made(value, then_side)
        if type(value) is ExceptionVariable and value.source is None:
            return self._adopt_exception(value, then_side)
        if isinstance(value, StringFormatVariable):
            arguments = [self.adopt(item, then_side=then_side) for item in value.sym_args]
            keywords = {
                key: self.adopt(item, then_side=then_side) for key, item in value.sym_kwargs.items()
            }
            return lambda merged: StringFormatVariable.create(
                value.format_string,
                [plan(merged) for plan in arguments],
                {key: plan(merged) for key, plan in keywords.items()},
            )
        return lambda merged: value

    def _adopt_leaf(self, value: TensorVariable | SymNodeVariable, then_side: bool | None) -> Build:
        if not self.belongs(value):
            return lambda merged: value
        if isinstance(value, SymNodeVariable) and _is_unbacked(value):
            return self._number_taken_out(value, then_side)
        return self._leaf(Pair(value, None) if then_side is not False else Pair(None, value))

    def _adopt_made(self, value: VariableTracker, then_side: bool | None) -> Build:
        if type(value) is DequeVariable:
            return self._adopt_deque(value, then_side)
        if type(value) is ConstDictVariable:
            plans = {key: self.adopt(item, then_side=then_side) for key, item in _dict_items(value)}
            return lambda merged: _new_dict(value, {k: p(merged) for k, p in plans.items()})
        if type(value) in _OBJECTS:
            return self._adopt_object(value, then_side)
        items = list(value.items) if type(value) is ListIteratorVariable else []
        return _moved_out(value, [self.adopt(item, then_side=then_side) for item in items])

    def _adopt_exception(self, value: ExceptionVariable, then_side: bool | None) -> Build:
        """Keep the model of an exception: what is known of it is known of that."""
        if id(value) in self.plans:
            return self.plans[id(value)][1]
        self.plans[id(value)] = value, lambda merged: value  # for an exception in its own context
        parts = [self.adopt(each, then_side=then_side) for each in value.args]
        others = [value.__context__, value.__cause__]
        related = [self.adopt(each, then_side=then_side) for each in others]

        def build(merged: Sequence[VariableTracker]) -> VariableTracker:
            value.args = [part(merged) for part in parts]
            for plan in related:
                plan(merged)
            return value

        self.plans[id(value)] = value, _once(build)
        return self.plans[id(value)][1]

    def _adopt_deque(self, value: Any, then_side: bool | None) -> Build:
        parts = [self.adopt(item, then_side=then_side) for item in value.items]
        return lambda merged: DequeVariable(
            [part(merged) for part in parts], value.maxlen, mutation_type=ValueMutationNew()
        )

    def _adopt_object(self, value: Any, then_side: bool | None) -> Build:
        self.plans[id(value)] = value, lambda merged: value  # for what holds it and is in it
        stores, kinds = self.made.get(id(value), ({}, {}))
        plans = {name: self.adopt(held, then_side=then_side) for name, held in stores.items()}
        first = [self.adopt(each, then_side=then_side) for each in value.init_args or ()]
        items = vars(value).get("_base_vt")
        items_plan = None if items is None else self.adopt(items, then_side=then_side)

        def build(merged: Sequence[VariableTracker]) -> VariableTracker:
            value.mutation_type = AttributeMutationNew(value.mutation_type.cls_source)
            if first:
                value.init_args = [plan(merged) for plan in first]
            if items_plan is not None:
                value._base_vt = items_plan(merged)
            self.effects.id_to_variable[id(value.value)] = value
            self.effects.keepalive.append(value.value)
            for name, plan in plans.items():
                self.effects.store_attr(value, name, plan(merged), kinds[name])
            made: VariableTracker = value
            return made

        return build

    def _number_taken_out(self, value: SymNodeVariable, then_side: bool | None) -> Build:
        """Plan to bring the tensor along, and to take the number out of it once more."""
        tensor = self.tensor_behind(value)
        if tensor is None:
            raise CannotMerge("a number taken out of a tensor inside an arm")
        plan = self.adopt(tensor, then_side=then_side)

        def build(merged: Sequence[VariableTracker]) -> VariableTracker:
            number = self.take(plan(merged))  # type: ignore[arg-type]
            assert number is not None
            return number

        return build

    def _leaf(self, pair: Pair) -> Build:
        for index, known in enumerate(self.pairs):
            if known.then_value is pair.then_value and known.else_value is pair.else_value:
                return lambda merged: merged[index]
        self.pairs.append(pair)
        position = len(self.pairs) - 1
        return lambda merged: merged[position]

    def _merge_tensors(self, one: TensorVariable, other: TensorVariable) -> Build:
        if one.as_proxy().node is other.as_proxy().node and not self.belongs(one):
            return lambda merged: one
        if type(one) is not type(other):
            raise CannotMerge("tensors of different kinds")
        if any(isinstance(example_of(side), torch.nn.Parameter) for side in (one, other)):
            raise CannotMerge("a parameter, which no merged tensor is")
        visible = difference(example_of(one), example_of(other))
        if visible:
            raise CannotMerge(visible)
        return self._leaf(Pair(one, other))

    def _merge_sequences(self, one: VariableTracker, other: VariableTracker) -> Build:
        items, others = _sequence_items(one), _sequence_items(other)
        if len(items) != len(others):
            raise CannotMerge(f"{len(items)} items on one side, {len(others)} on the other")
        if type(one) is ListVariable and not (is_made_inside(one) and is_made_inside(other)):
            raise CannotMerge("two different lists")
        parts = [self.merge(left, right) for left, right in zip(items, others, strict=True)]
        return _rebuild_sequence(type(one), parts)

    def _merge_dictionaries(self, one: VariableTracker, other: VariableTracker) -> Build:
        items, others = dict(_dict_items(one)), dict(_dict_items(other))
        if list(items) != list(others):
            raise CannotMerge("dictionaries with different keys")
        if not (is_made_inside(one) and is_made_inside(other)):
            raise CannotMerge("two different dictionaries")
        plans = {key: self.merge(items[key], others[key]) for key in items}
        return lambda merged: _new_dict(one, {k: plan(merged) for k, plan in plans.items()})


def _is_constant(value: VariableTracker) -> bool:
    """Whether equal values cannot be told apart; two empty lists can, where each has a holder."""
    may_be_held = value.mutation_type is not None and not is_made_inside(value)
    return not may_be_held and value.is_python_constant()


def _merge_constants(one: VariableTracker, other: VariableTracker) -> Build:
    left, right = one.as_python_constant(), other.as_python_constant()
    if left is right or (type(left) is type(right) and left == right and repr(left) == repr(right)):
        return _moved_out(one, [])
    raise CannotMerge(f"{left!r} on one side, {right!r} on the other")


def difference(one: torch.Tensor, other: torch.Tensor) -> str:
    """Say in which visible respect two tensors differ; empty if in none."""
    for what in ("dtype", "device", "layout"):
        left, right = getattr(one, what), getattr(other, what)
        if left != right:
            return f"{what} {left} on one side, {right} on the other"
    if one.layout is not torch.strided:
        return f"layout {one.layout}"
    same = one.dim() == other.dim() and all(
        statically_known_true(left == right)
        for left, right in zip(one.shape, other.shape, strict=True)
    )
    if not same:
        return f"shape {tuple(one.shape)} on one side, {tuple(other.shape)} on the other"
    for size, left, right in zip(one.shape, one.stride(), other.stride(), strict=True):
        if not statically_known_true(size == 1) and not statically_known_true(left == right):
            return f"strides {one.stride()} on one side, {other.stride()} on the other"
    return ""


def _describe(value: VariableTracker) -> str:
    try:
        return value.python_type_name()
    except Exception:
        return type(value).__name__


def is_made_inside(value: VariableTracker) -> bool:
    """Whether the arms that are being lowered made an object; tensors apart."""
    kind = value.mutation_type
    return kind is not None and kind.scope > current_scope_id()


def _once(build: Build) -> Build:
    built: list[VariableTracker] = []

    def build_once(merged: Sequence[VariableTracker]) -> VariableTracker:
        if not built:
            built.append(build(merged))
        return built[0]

    return build_once


def _is_unbacked(value: SymNodeVariable) -> bool:
    node = getattr(value.sym_num, "node", None)
    return node is not None and bool(
        torch.fx.experimental.symbolic_shapes.free_unbacked_symbols(value.sym_num)
    )


def _sequence_items(value: Any) -> list[VariableTracker]:
    return list(value.items)


def _dict_items(value: Any) -> list[tuple[Any, VariableTracker]]:
    return list(value.items.items())


def _rebuild_sequence(kind: type[VariableTracker], parts: list[Build]) -> Build:
    def build(merged: Sequence[VariableTracker]) -> VariableTracker:
        items = [part(merged) for part in parts]
        if kind is ListVariable:
            return ListVariable(items, mutation_type=ValueMutationNew())
        return SizeVariable(items) if kind is SizeVariable else TupleVariable(items)

    return build


def _rebuild_named(parts: list[Build], model: VariableTracker) -> Build:
    return lambda merged: containers.made_of(model, [part(merged) for part in parts])


def _moved_out(value: Any, items: list[Build]) -> Build:
    """Return an object that an arm made, which an arm from here on may change from outside.

    ``items`` are what an iterator over a list goes over.
    """

    def build(merged: Sequence[VariableTracker]) -> VariableTracker:
        if isinstance(value.mutation_type, ValueMutationNew):
            value.mutation_type = ValueMutationNew()
        if items:
            value.items = [item(merged) for item in items]
        moved: VariableTracker = value
        return moved

    return build


def _new_dict(model: Any, items: dict[Any, VariableTracker]) -> VariableTracker:
    return ConstDictVariable(items, model.user_cls, mutation_type=ValueMutationNew())


def object_behind(variable: VariableTracker, name: str = "value") -> Any:
    """Return the object that Dynamo's model stands for, kept as ``name``; ``None`` if it has none.

    A model of a list makes the list when asked.
    """
    try:
        return getattr(variable, name, None)
    except NotImplementedError:
        return None


def constant(value: object) -> VariableTracker:
    """Return Dynamo's model of a constant."""
    result = ConstantVariable.create(value)
    assert isinstance(result, VariableTracker)
    return result
