"""Changes that arms make to objects of the main trace, made by the main trace instead.

Reads the effects of two traced arms; plans one store for each attribute, item or cell that either
arm stores to, of a value merged from both sides (the present value where a side stores nothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch._dynamo.variables import (
    ConstDictVariable,
    DeletedVariable,
    ListVariable,
    TensorVariable,
)
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime.arms import ArmTrace, ContainerChange
from bcmend.runtime.merge import Build, CannotMerge, Merger
from bcmend.runtime.sites import LiveSite

__all__ = ["Change", "apply_changes", "plan_changes"]


@dataclass(frozen=True, slots=True)
class Change:
    """One place of the main trace that gets a merged value."""

    variable: VariableTracker
    key: Any
    build: Build
    kind: Any = None  # Dynamo's kind of attribute store; None for an item of a container


def plan_changes(
    tx: Any, merger: Merger, arms: tuple[ArmTrace, ArmTrace]
) -> list[Change]:
    """Plan the stores of both arms. Raises ``CannotMerge``."""
    return [*_attribute_changes(tx, merger, arms), *_item_changes(merger, arms)]


def _attribute_changes(
    tx: Any, merger: Merger, arms: tuple[ArmTrace, ArmTrace]
) -> list[Change]:
    places = dict.fromkeys(place for arm in arms for place in arm.effects.attributes)
    changes = []
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
            raise CannotMerge(f"the attribute {name} is created on one side only")
        changes.append(Change(variable, name, merger.merge(one, other), kind))
    return changes


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


def _item_changes(merger: Merger, arms: tuple[ArmTrace, ArmTrace]) -> list[Change]:
    by_variable: dict[int, list[ContainerChange | None]] = {}
    for side, arm in enumerate(arms):
        for change in arm.effects.containers:
            by_variable.setdefault(id(change.variable), [None, None])[side] = change
    changes: list[Change] = []
    for sides in by_variable.values():
        known = next(side for side in sides if side is not None)
        contents = [(known.before if side is None else side.after)["items"] for side in sides]
        if type(known.variable) is ConstDictVariable:
            changes += _dict_changes(merger, known, contents)
        elif type(known.variable) is ListVariable:
            changes += _list_changes(merger, known, contents)
        else:
            raise CannotMerge(f"an arm changes a {type(known.variable).__name__}")
    return changes


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
        Change(known.variable, key, merger.merge(one[key], other[key]))
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
        Change(known.variable, position, merger.merge(left, right))
        for position, (left, right) in enumerate(zip(one, other, strict=True))
        if position >= len(before) or not (left is right is before[position])
    ]


def apply_changes(
    tx: Any,
    site: LiveSite,
    predicate: TensorVariable,
    changes: Sequence[Change],
    merged: Sequence[VariableTracker],
) -> None:
    """Make the planned stores in the main trace."""
    effects = tx.output.side_effects
    for change in changes:
        value = change.build(merged)
        if change.kind is not None:
            effects.store_attr(change.variable, change.key, value, change.kind)
            continue
        effects.mutation(change.variable)
        items = change.variable.items  # type: ignore[attr-defined]
        if isinstance(items, list) and change.key == len(items):
            items.append(value)
        else:
            items[change.key] = value
