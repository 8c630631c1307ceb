"""Changes that arms make to objects of the main trace, made by the main trace instead.

Reads the effects of two traced arms; plans one store for each attribute, item or cell that either
arm stores to, of a value merged from both sides (the present value where a side stores nothing).
"""

from __future__ import annotations

import copy
import dis
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.variables import (
    CellVariable,
    ConstDictVariable,
    DeletedVariable,
    ListVariable,
    NewGlobalVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.sets import SetVariable

from bcmend.runtime import iterators, lower, sinks, sites
from bcmend.runtime.arms import ArmTrace, ContainerChange
from bcmend.runtime.merge import Build, CannotMerge, Merger, constant
from bcmend.runtime.opened import PlannedOpening, plan_opening
from bcmend.runtime.sinks import Draft
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.unmerged import Choice, Stored, Unmerged

__all__ = ["Change", "Creation", "apply_changes", "plan_changes"]


@dataclass(frozen=True, slots=True)
class Creation:
    """An attribute that one side creates: stored at the end of the call, if that side was taken.

    Until then no other code may look for it (``_require_creatable`` makes sure).
    """

    variable: VariableTracker
    name: str
    build: Build
    value: VariableTracker
    taken: bool
    place: str = "attribute"  # or "item" of a dictionary, or "member" of a set


@dataclass(frozen=True, slots=True)
class Contents:
    """A container that both sides leave with the same contents."""

    variable: VariableTracker
    items: Any


@dataclass(frozen=True, slots=True)
class Change:
    """One place of the main trace that gets a merged value."""

    variable: VariableTracker
    key: Any
    build: Build
    sides: tuple[VariableTracker, VariableTracker]
    kind: Any = None  # Dynamo's kind of attribute store; None for an item of a container


@dataclass(frozen=True, slots=True)
class Storing:
    """An attribute or cell that holds both sides until a record stores the one taken."""

    variable: VariableTracker
    name: str
    kind: Any
    form: int
    sides: tuple[Build, Build]

    def apply(
        self, tx: Any, site: LiveSite, predicate: Any, merged: Sequence[VariableTracker]
    ) -> None:
        sides = (side(merged) for side in self.sides)
        kept = (side.recorded() if isinstance(side, Choice) else side for side in sides)
        choice = site, self.form, tx.output, predicate, *kept
        effects = tx.output.side_effects
        if _is_local_cell(self.variable):
            effects.store_attr(self.variable, self.name, Choice(*choice), self.kind)
            return
        is_typed = self.name in _entries(self.variable, "_buffers")
        value = Stored(*choice, place=(self.variable, self.name), is_typed=is_typed)
        effects.store_attr(self.variable, self.name, value, self.kind)
        action = sinks.function_of_records(tx, "store_choice")
        sinks.append(tx, Draft(site, action, None, value.for_record))


AnyChange = Change | Creation | Contents | PlannedOpening | Storing


def plan_changes(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    arms: tuple[ArmTrace, ArmTrace],
    form: int,
) -> list[AnyChange]:
    """Plan the stores of both arms, those of the branch in its ``form``. Raises ``CannotMerge``."""
    return [
        *_attribute_changes(tx, site, merger, arms, form),
        *_item_changes(tx, site, merger, arms, form),
    ]


def _attribute_changes(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    arms: tuple[ArmTrace, ArmTrace],
    form: int,
) -> list[AnyChange]:
    places = dict.fromkeys(place for arm in arms for place in arm.effects.attributes)
    changes: list[AnyChange] = []
    for variable, name in places:
        sides = [arm.effects.attributes.get((variable, name)) for arm in arms]
        kind = next(
            arm.effects.kinds[variable, name]
            for arm in arms
            if (variable, name) in arm.effects.kinds
        )
        if any(isinstance(side, DeletedVariable) for side in sides):
            raise CannotMerge(f"the attribute {name} is deleted on one side")
        present = _present_attribute(tx, variable, name) if None in sides else None
        one, other = (present if side is None else side for side in sides)
        if one is None or other is None:
            created = other if one is None else one
            assert created is not None
            _require_creatable(tx, site, variable, name, form)
            build = merger.adopt(created, then_side=one is not None)
            changes.append(Creation(variable, name, build, created, one is not None))
            continue
        changes += _attribute_change(tx, site, merger, (variable, name), (one, other), kind, form)
    return changes


def _attribute_change(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    place: tuple[VariableTracker, str],
    sides: tuple[VariableTracker, VariableTracker],
    kind: Any,
    form: int,
) -> list[AnyChange]:
    """Plan the store of a merged value, or of each side's own when the graph has run."""
    variable, name = place
    known = len(merger.pairs)
    try:
        if not any(isinstance(side, Unmerged) for side in sides):
            return [Change(variable, name, merger.merge(*sides), sides, kind)]
    except CannotMerge:
        pass
    del merger.pairs[known:]
    if form in site.reads:
        raise CannotMerge(f"the attribute {name} has no common form, and is read later")
    _require_storable(tx, variable, name)
    for side in sides:
        if isinstance(side, Unmerged):
            side.require_both_sides(site)
    plans = [
        merger.adopt(side, then_side=taken)
        for taken, side in zip((True, False), sides, strict=True)
    ]
    return [Storing(variable, name, kind, form, (plans[0], plans[1]))]


def _require_storable(tx: Any, variable: VariableTracker, name: str) -> None:
    """Raise ``CannotMerge`` unless both sides can be kept in a place until the graph has run."""
    if _is_local_cell(variable):
        return  # it dies with the frame, or else both sides are asked for
    if isinstance(variable, (CellVariable, NewGlobalVariable)):
        raise CannotMerge(f"a variable of an enclosing scope has no common form: {name}")
    if not sinks.is_open(tx):
        raise CannotMerge(f"the attribute {name} has no common form, outside a boundary")
    if name in _entries(variable, "_parameters") or name in _entries(variable, "_modules"):
        raise CannotMerge(f"the parameter or submodule {name} has no common form")


def _is_local_cell(variable: VariableTracker) -> bool:
    return isinstance(variable, CellVariable) and variable.source is None


def _entries(variable: VariableTracker, table: str) -> Any:
    """Return a table of the module that ``variable`` stands for; empty for another object."""
    owner = getattr(variable, "value", None)
    return getattr(owner, table) if isinstance(owner, torch.nn.Module) else ()


def _require_creatable(
    tx: Any, site: LiveSite, variable: VariableTracker, name: str, form: int
) -> None:
    """Raise ``CannotMerge`` unless nobody can miss the attribute before the end of the call."""
    if name == "cell_contents" or variable.source is None:
        raise CannotMerge(f"{name} is bound on one side only")
    if not sinks.is_open(tx):
        raise CannotMerge(f"the attribute {name} is created on one side only, outside a boundary")
    if _is_mentioned_outside(site, form, name) or sites.named_elsewhere(name, site.origin):
        raise CannotMerge(f"the attribute {name}, created on one side only, is used elsewhere")


def _is_mentioned_outside(site: LiveSite, form: int, name: str) -> bool:
    """Whether an instruction behind or before the arms names ``name``, as attribute or string."""
    inside = site.inside[form]
    return any(
        each.argval == name and not any(first <= each.offset <= last for first, last in inside)
        for each in dis.get_instructions(site.origin)
    )


def _present_attribute(tx: Any, variable: VariableTracker, name: str) -> VariableTracker | None:
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(variable, name):
        return effects.load_attr(variable, name)  # type: ignore[no-any-return]
    if name == "cell_contents":
        return getattr(variable, "pre_existing_contents", None)
    try:
        return variable.var_getattr(tx, name)
    except Exception:
        return None


def _item_changes(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    arms: tuple[ArmTrace, ArmTrace],
    form: int,
) -> list[AnyChange]:
    by_variable: dict[int, list[ContainerChange | None]] = {}
    for side, arm in enumerate(arms):
        for change in arm.effects.containers:
            by_variable.setdefault(id(change.variable), [None, None])[side] = change
    changes: list[AnyChange] = []
    results, returns = [arm.result for arm in arms], site.returning[form]
    for sides in by_variable.values():
        known = next(side for side in sides if side is not None)
        if returns and iterators.end_here(tx, [known.variable], results, returns=True):
            continue  # the frame ends, and the container with it
        contents = [(known.before if side is None else side.after)["items"] for side in sides]
        if _is_table_of_names(known.variable):
            changes += _table_changes(tx, site, merger, known, contents, form)
            continue
        pairs = len(merger.pairs)
        try:
            if not any(side is not None and side.is_open for side in sides):
                changes += _same_form_changes(merger, known, contents)
                continue
        except CannotMerge:
            pass
        del merger.pairs[pairs:]
        changes.append(
            plan_opening(tx, site, merger, form, known.variable, known.before["items"], contents)
        )
    return changes


def _table_changes(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    known: ContainerChange,
    contents: Sequence[Any],
    form: int,
) -> list[AnyChange]:
    """Plan the changes of a table of a module."""
    added = _added_by_one_side(contents)
    changes: list[AnyChange] = []
    for key, taken in added:
        _require_creatable(tx, site, known.variable, key, form)
        changes.append(_created_entry(merger, known.variable, key, contents, taken))
    others = [
        {key: value for key, value in content.items() if not _is_among(key, added)}
        for content in contents
    ]
    return [*changes, *_same_form_changes(merger, known, others)]


def _same_form_changes(
    merger: Merger, known: ContainerChange, contents: Sequence[Any]
) -> Sequence[AnyChange]:
    """Plan the changes of a container that has the same form after both sides."""
    if type(known.variable) is ConstDictVariable:
        return _dict_changes(merger, known, contents)
    if type(known.variable) is ListVariable:
        return _list_changes(merger, known, contents)
    if type(known.variable) is SetVariable and list(contents[0]) == list(contents[1]):
        return [Contents(known.variable, contents[0])]
    raise CannotMerge(f"an arm changes a {type(known.variable).__name__}")


#: Tables of a module in which an entry is a name that code would have to spell to find it.
_TABLES_OF_NAMES = ("_buffers", "_parameters", "_modules", "_non_persistent_buffers_set")


def _is_table_of_names(variable: VariableTracker) -> bool:
    source = variable.source
    if type(variable) not in (ConstDictVariable, SetVariable) or source is None:
        return False
    return source.name.rstrip("']").endswith(_TABLES_OF_NAMES)


def _added_by_one_side(contents: Sequence[Any]) -> list[tuple[str, bool]]:
    """Return the names that one side alone adds to a table of a module, and whether it is then."""
    found = []
    for side, content in enumerate(contents):
        for key in content:
            if key not in contents[1 - side] and key.vt.is_python_constant():
                found.append((key.vt.as_python_constant(), side == 0))
    return found


def _is_among(key: Any, added: Sequence[tuple[str, bool]]) -> bool:
    return key.vt.is_python_constant() and key.vt.as_python_constant() in dict(added)


def _created_entry(
    merger: Merger, variable: VariableTracker, name: str, contents: Sequence[Any], taken: bool
) -> Creation:
    content = contents[0 if taken else 1]
    key = next(each for each in content if _is_among(each, [(name, taken)]))
    if type(variable) is SetVariable:
        nothing = constant(None)
        return Creation(variable, name, lambda merged: nothing, nothing, taken, "member")
    value = content[key]
    build = merger.adopt(value, then_side=taken)
    return Creation(variable, name, build, value, taken, "item")


def _dict_changes(
    merger: Merger, known: ContainerChange, contents: Sequence[dict[Any, VariableTracker]]
) -> list[Change]:
    one, other = contents
    before = known.before["items"]
    if list(one) != list(other):
        raise CannotMerge("a dictionary gets or loses a key on one side only")
    if list(one)[: len(before)] != list(before):
        raise CannotMerge("a key is deleted from a dictionary")
    return [
        Change(known.variable, key, merger.merge(one[key], other[key]), (one[key], other[key]))
        for key in one
        if not (one[key] is other[key] is before.get(key))
    ]


def _list_changes(
    merger: Merger, known: ContainerChange, contents: Sequence[list[VariableTracker]]
) -> list[Change]:
    one, other = contents
    if len(one) != len(other) or len(one) < len(known.before["items"]):
        raise CannotMerge("a list grows or shrinks on one side only")
    before = known.before["items"]
    return [
        Change(known.variable, position, merger.merge(left, right), (left, right))
        for position, (left, right) in enumerate(zip(one, other, strict=True))
        if position >= len(before) or not (left is right is before[position])
    ]


def apply_changes(
    tx: Any,
    site: LiveSite,
    predicate: TensorVariable,
    changes: Sequence[AnyChange],
    merged: Sequence[VariableTracker],
    belongs: Callable[[VariableTracker], bool],
) -> None:
    """Make the planned stores in the main trace.

    ``belongs`` says whether a tensor was made inside an arm.
    """
    exact: dict[VariableTracker, VariableTracker] = {}
    for change in changes:
        if isinstance(change, (PlannedOpening, Storing)):
            change.apply(tx, site, predicate, merged)
            continue
        if isinstance(change, Contents):
            tx.output.side_effects.mutation(change.variable)
            vars(change.variable)["items"] = copy.copy(change.items)
            continue
        value = change.build(merged)
        if isinstance(change, Creation):
            exact[change.value] = value
            _create_later(tx, site, predicate, change, value)
            continue
        _store(tx, change, value)
        if value not in change.sides:
            sides = [
                exact.get(side, value)
                if not isinstance(side, TensorVariable) or belongs(side)
                else side
                for side in change.sides
            ]
            _settle_later(tx, site, predicate, change, value, sides)


def _store(tx: Any, change: Change, value: VariableTracker) -> None:
    effects = tx.output.side_effects
    if change.kind is not None:
        effects.store_attr(change.variable, change.key, value, change.kind)
        return
    effects.mutation(change.variable)
    items = change.variable.items  # type: ignore[attr-defined]
    if isinstance(items, list) and change.key == len(items):
        items.append(value)
    else:
        items[change.key] = value


def _settle_later(
    tx: Any,
    site: LiveSite,
    predicate: TensorVariable,
    change: Change,
    value: VariableTracker,
    sides: Sequence[VariableTracker],
) -> None:
    """Where a side stores a tensor that was there before, have that very tensor stored in the end.

    The merged one only has its values; who compares objects, or changes one of them in place after
    the call, could tell.
    """
    is_list = isinstance(getattr(change.variable, "items", None), list)
    if all(side is value for side in sides) or change.variable.source is None or is_list:
        return
    if change.key == "cell_contents" or not sinks.is_open(tx):
        return
    name = "settle_item" if change.kind is None else "settle_attribute"
    action = sinks.function_of_records(tx, name)
    key = change.key.vt if change.kind is None else constant(change.key)
    inputs = TupleVariable([change.variable, key, value, predicate, *sides])
    sinks.append(tx, Draft(site, action, None, inputs))


def _create_later(
    tx: Any,
    site: LiveSite,
    predicate: TensorVariable,
    creation: Creation,
    value: VariableTracker,
) -> None:
    """Record the store of an attribute that exists only if its side was taken."""
    condition = predicate if creation.taken else lower.negated(tx, predicate)
    if creation.place == "attribute":
        store = VariableTracker.build(tx, setattr)
    else:
        name = "store_item" if creation.place == "item" else "add_member"
        store = sinks.function_of_records(tx, name)
    inputs = TupleVariable([creation.variable, constant(creation.name), value])
    sinks.append(tx, Draft(site, store, condition, inputs))
