"""Stores of the two arms to one attribute, or to one variable of an enclosing scope.

Reads what both sides store; plans one store in the main trace. Where the sides have no common form
the place holds both of them until the graph has run, when a record stores the one taken; a variable
of a frame that has ended by then needs no record.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._dynamo.exc import raise_observed_exception
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import CellVariable, DeletedVariable, NewGlobalVariable, SuperVariable
from torch._dynamo.variables.base import AttributeMutationNew, VariableTracker

from bcmend.runtime import depth, frames, sinks, sites
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.merge import Build, CannotMerge, Merger, object_behind
from bcmend.runtime.planned import Change
from bcmend.runtime.sinks import Draft
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.unmerged import Choice, Missing, Stored, Unmerged

__all__ = ["Storing", "attribute_changes", "install", "require_creatable"]


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


def attribute_changes(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    arms: tuple[ArmTrace, ArmTrace],
    form: int,
) -> list[Change | Storing]:
    places = dict.fromkeys(place for arm in arms for place in arm.effects.attributes)
    changes: list[Change | Storing] = []
    for variable, name in places:
        sides = [arm.effects.attributes.get((variable, name)) for arm in arms]
        kind = next(
            arm.effects.kinds[variable, name]
            for arm in arms
            if (variable, name) in arm.effects.kinds
        )
        present = _present_attribute(tx, variable, name) if None in sides else None
        one, other = (present if side is None else side for side in sides)
        if None in (one, other) or any(isinstance(side, DeletedVariable) for side in sides):
            _guard_presence(variable, name)
        nothing = DeletedVariable()
        ends = one or nothing, other or nothing
        changes += _attribute_change(tx, site, merger, (variable, name), ends, kind, form)
    return changes


def _attribute_change(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    place: tuple[VariableTracker, str],
    sides: tuple[VariableTracker, VariableTracker],
    kind: Any,
    form: int,
) -> list[Change | Storing]:
    """Plan the store of a merged value, or of each side's own when the graph has run."""
    variable, name = place
    if all(isinstance(side, DeletedVariable) for side in sides):
        return [Change(variable, name, lambda merged: sides[0], (sides[0], sides[0]), kind)]
    known = len(merger.pairs)
    try:
        if not any(isinstance(side, (Unmerged, DeletedVariable)) for side in sides):
            return [Change(variable, name, merger.merge(*sides), sides, kind)]
    except CannotMerge:
        pass
    del merger.pairs[known:]
    if form in site.reads:
        raise CannotMerge(f"the attribute {name} has no common form, and is read later")
    _require_storable(tx, variable, name)
    if any(isinstance(side, DeletedVariable) for side in sides):
        _require_owned(tx, site, variable, name, form)
    for side in sides:
        if isinstance(side, Unmerged):
            side.require_both_sides(site)
    plans = [
        _nothing if isinstance(side, DeletedVariable) else merger.adopt(side, then_side=taken)
        for taken, side in zip((True, False), sides, strict=True)
    ]
    return [Storing(variable, name, kind, form, (plans[0], plans[1]))]


def _nothing(merged: Sequence[VariableTracker]) -> VariableTracker:
    return Missing()


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


def _present_attribute(tx: Any, variable: VariableTracker, name: str) -> VariableTracker | None:
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(variable, name):
        return effects.store_attr_mutations[variable][name]  # type: ignore[no-any-return]
    if name == "cell_contents":
        return getattr(variable, "pre_existing_contents", None)
    try:
        return variable.var_getattr(tx, name)
    except Exception:
        return None


def _guard_presence(variable: VariableTracker, name: str) -> None:
    """Have the frame traced anew for an object that has the attribute, or lacks it, by then."""
    if variable.source is not None:
        present = functools.partial(GuardBuilder.HASATTR, attr=name)
        install_guard(variable.source.make_guard(present))


def _require_owned(
    tx: Any, site: LiveSite, variable: VariableTracker, name: str, form: int
) -> None:
    """Raise ``CannotMerge`` unless an attribute may be there after one side only.

    While the call is captured whole, all that looks for it is traced, and asks ``_load_attribute``.
    """
    if not frames.ends_at_a_boundary(tx) or not _is_object(variable):
        require_creatable(tx, site, variable, name, form, may_be_stored=True)


def require_creatable(
    tx: Any,
    site: LiveSite,
    variable: VariableTracker,
    name: str,
    form: int,
    *,
    may_be_stored: bool = False,
) -> None:
    """Raise ``CannotMerge`` unless nobody can miss the attribute before the end of the call.

    ``may_be_stored`` says that a store elsewhere does no harm.
    """
    if name == "cell_contents" or not _is_object(variable):
        raise CannotMerge(f"{name} is bound on one side only")
    if not sinks.is_open(tx):
        raise CannotMerge(f"the attribute {name} is created on one side only, outside a boundary")
    harmless = ("STORE_ATTR",) if may_be_stored else ()
    if _is_mentioned_outside(site, form, name, harmless) or sites.named_elsewhere(
        name, site.origin
    ):
        raise CannotMerge(f"the attribute {name}, created on one side only, is used elsewhere")


def _is_mentioned_outside(site: LiveSite, form: int, name: str, harmless: Sequence[str]) -> bool:
    """Whether an instruction behind or before the arms names ``name``, as attribute or string."""
    inside = site.inside[form]
    return any(
        each.argval == name
        and each.opname not in harmless
        and not any(first <= each.offset <= last for first, last in inside)
        for each in dis.get_instructions(site.origin)
    )


def _is_object(variable: VariableTracker) -> bool:
    """Whether a record can name the owner of an attribute."""
    is_new = isinstance(variable.mutation_type, AttributeMutationNew)
    return variable.source is not None or (is_new and not isinstance(variable, CellVariable))


_DYNAMOS_LOAD: Final = SideEffects.load_attr


def _load_attribute(
    self: SideEffects, item: VariableTracker, name: str, *flags: Any, **named_flags: Any
) -> VariableTracker:
    """Read an attribute that was stored to, or look whether it is there."""
    found = _DYNAMOS_LOAD(self, item, name, *flags, **named_flags)
    if isinstance(found, Stored):
        found.require_present()
    return found


def _with_deletions(before: Any) -> Any:
    """Return what calls a method of ``super()``.

    Dynamo finds at the end only that a module has no attribute to delete.
    """

    def call_method(
        self: SuperVariable,
        tx: Any,
        name: str,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        if name == "__delattr__" and self.objvar is not None and depth.is_in_an_arm(tx):
            deleted = args[0].as_python_constant()
            if _lacks(tx, self.objvar.realize(), deleted):
                raise_observed_exception(AttributeError, tx, args=[deleted])
        result: VariableTracker = before(self, tx, name, args, kwargs)
        return result

    return call_method


def _lacks(tx: Any, owner: VariableTracker, name: str) -> bool:
    """Whether an object has no attribute of its own that is called ``name``."""
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(owner, name):
        return isinstance(effects.store_attr_mutations[owner][name], DeletedVariable)
    held = object_behind(owner)
    return isinstance(held, torch.nn.Module) and name not in vars(held)


def install() -> None:
    """See what looks for an attribute that is there after one side of a branch only."""
    SideEffects.load_attr = _load_attribute  # type: ignore[method-assign]
    SuperVariable.call_method = _with_deletions(SuperVariable.call_method)  # type: ignore[method-assign]
