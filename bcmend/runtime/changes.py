"""Changes that arms make to objects of the main trace, made by the main trace instead.

Reads the effects of two traced arms; plans one store for each attribute, item or cell that either
arm stores to, of a value merged from both sides (the present value where a side stores nothing).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from torch._dynamo.variables import (
    ConstDictVariable,
    ListVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.sets import SetVariable

from bcmend.runtime import iterators, lower, sinks
from bcmend.runtime.arms import ArmTrace, ContainerChange
from bcmend.runtime.attributes import Storing, attribute_changes, require_creatable
from bcmend.runtime.merge import CannotMerge, Merger, constant
from bcmend.runtime.opened import PlannedOpening, plan_opening
from bcmend.runtime.planned import Change, Contents, Creation
from bcmend.runtime.sinks import Draft
from bcmend.runtime.sites import LiveSite

__all__ = ["apply_changes", "plan_changes"]


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
        *attribute_changes(tx, site, merger, arms, form),
        *_item_changes(tx, site, merger, arms, form),
    ]


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
        for name in (key, *_READING_TABLES):
            require_creatable(tx, site, known.variable, name, form)
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
_TABLES_OF_NAMES: Final = ("_buffers", "_parameters", "_modules", "_non_persistent_buffers_set")


#: Names by which a program reads a table of a module, or asks for all that is in it.
_READING_TABLES: Final = (
    *_TABLES_OF_NAMES,
    "__dict__", "vars", "dir", "state_dict", "apply", "buffers", "named_buffers", "parameters",
    "named_parameters", "children", "named_children", "modules", "named_modules",
)  # fmt: skip


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
    names = [each.vt.as_python_constant() for each in content]
    earlier = tuple(names[: names.index(name)])
    return Creation(variable, name, build, value, taken, "item", earlier)


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
    given = [creation.variable, constant(creation.name), value]
    if creation.place == "item":
        given.append(constant(creation.earlier))
    sinks.append(tx, Draft(site, store, condition, TupleVariable(given)))
