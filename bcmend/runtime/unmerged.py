"""Live-outs that have no common form, and that nobody looks at while the call is traced.

What is live after a branch is known from bytecode alone, which has to take every later jump for
possible. While tracing most of those jumps are decided, and a value that only the untaken ones read
needs no form. ``Unmerged`` stands in its place. Whatever asks it anything makes Dynamo trace the
frame again, with the site told to merge all its live-outs or none. What turns out to be returned by
the call, unlooked at, becomes a ``Choice`` in a further trace; what is stored as an attribute is
``Stored``, and a record puts the side taken in its place at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.variables import ConstantVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import (
    AsPythonConstantNotImplementedError,
    AttributeMutationNew,
    ValueMutationExisting,
    VariableTracker,
)

from bcmend.names import UNBOUND
from bcmend.runtime import backoff, choices, depth, exits, frames, records
from bcmend.runtime.held import holds
from bcmend.runtime.merge import Build, CannotMerge, Merger, constant
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = [
    "Choice",
    "Missing",
    "Returned",
    "Stored",
    "Unmerged",
    "has_choice",
    "merge_live_outs",
]

#: What Dynamo does to any value that it only moves from place to place.
_MOVING: Final = frozenset(
    """
    clone is_realized realize set_name_hint set_source_location unwrap visit
    """.split()
)


class Unmerged(VariableTracker):
    """A value that is one thing after one arm and another after the other."""

    def __init__(self, site: LiveSite, form: int, output: Any, **more: Any) -> None:
        unbound = more.pop("unbound", False)
        super().__init__(**more)
        self.site, self.form, self.output, self.unbound = site, form, output, unbound

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        """Plan to bring what an arm has of it into the main trace."""
        return lambda merged: self

    def ask(self) -> None:
        """Have the frame traced again: split where this is read, or without values like it."""
        tx = self.output.current_tx
        if frames.ends_at_a_boundary(tx):
            keeps_sides = self.form in self.site.returns
            self.site.returns.add(self.form)
            backoff.split_where_read(tx, self.site)
            if not keeps_sides:
                self.site.returns.remove(self.form)
        self.merge_all()

    def merge_all(self) -> NoReturn:
        """Have the frame traced again without values like it."""
        if depth.is_in_half(self.output.current_tx):
            raise depth.Unreadable("a value that has two forms is read")
        self.site.note_read(self.form)
        raise SiteChanged(restart_reason=f"bcmend: {self.site.key} has to merge every live-out")

    def require_both_sides(self, reader: LiveSite) -> None:
        """See to it that ``reader`` gets both sides; else have the frame traced again."""
        self.ask()

    def as_recorded(
        self, reader: LiveSite, keep: Callable[[VariableTracker], VariableTracker]
    ) -> VariableTracker:
        """Return the value for a record of ``reader``; ``keep`` gives each side as it is now."""
        self.require_both_sides(reader)
        raise CannotMerge("a value that is stored when the graph has run")


def _asking(name: str) -> Callable[..., None]:
    def method(self: Unmerged, *arguments: Any, **keywords: Any) -> None:
        self.ask()

    method.__name__ = name
    return method


for _name, _method in vars(VariableTracker).items():
    if callable(_method) and not _name.startswith("_") and _name not in _MOVING:
        setattr(Unmerged, _name, _asking(_name))


def _no_while_written_out(name: str) -> Callable[..., bool]:
    def method(self: Unmerged) -> bool:
        if not self.output.should_exit:
            self.ask()
        return False

    method.__name__ = name
    return method


for _name in ("is_tensor", "is_python_constant"):  # Dynamo writes code for what is neither
    setattr(Unmerged, _name, _no_while_written_out(_name))


def _no_constant(self: Unmerged) -> None:
    if not self.output.should_exit and not _is_only_in_a_closure():
        self.ask()
    raise AsPythonConstantNotImplementedError(self)


def _is_only_in_a_closure() -> bool:
    """Whether Dynamo asks because it would like to have a traced function as a real one.

    It does so before every call of a nested function, and can do without.
    """
    frame = sys._getframe(2)
    return any(
        each is not None and each.f_code.co_name == "_get_function_impl"
        for each in (frame, frame.f_back)
    )


setattr(Unmerged, "as_python_constant", _no_constant)  # noqa: B010


class Returned(Unmerged):
    """One that nobody has looked at yet; if it is returned, the choice is made after the graph.

    ``sides`` are what it is after either arm.
    """

    def __init__(
        self, site: LiveSite, form: int, output: Any, sides: Sequence[VariableTracker], **more: Any
    ) -> None:
        super().__init__(site, form, output, **more)
        self.sides = tuple(sides)

    def keep_sides(self) -> NoReturn:
        """Have the frame traced again with both sides and the condition kept."""
        if self.form in self.site.returns:  # and yet they are not, since one of them is unbound
            self.ask()
        self.site.returns.add(self.form)
        raise SiteChanged(restart_reason=f"bcmend: {self.site.key} has its choice made later")

    def require_both_sides(self, reader: LiveSite) -> None:
        self.keep_sides()

    def reconstruct(self, codegen: Any) -> None:
        if not _is_handed_out(codegen.tx, self):
            self.ask()
        self.keep_sides()


class Choice(Unmerged):
    """Both sides and the condition, on their way out of the graph."""

    def __init__(
        self,
        site: LiveSite,
        form: int,
        output: Any,
        predicate: VariableTracker,
        one: VariableTracker,
        other: VariableTracker,
        **more: Any,
    ) -> None:
        super().__init__(site, form, output, **more)
        self.predicate, self.one, self.other = predicate, one, other

    def require_both_sides(self, reader: LiveSite) -> None:
        """It has them."""

    @property
    def sides(self) -> tuple[VariableTracker, VariableTracker]:
        return self.one, self.other

    @property
    def may_be_missing(self) -> bool:
        """Whether a side of it is that there is no such attribute."""
        return any(
            isinstance(side, Missing) or (isinstance(side, Choice) and side.may_be_missing)
            for side in self.sides
        )

    @property
    def parts(self) -> TupleVariable:
        return TupleVariable([self.predicate, self.one, self.other])

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        plan = merger.adopt(self.parts, then_side=then_side)
        kind = _Recorded if isinstance(self, _Recorded) else Choice

        def build(merged: Sequence[VariableTracker]) -> VariableTracker:
            return kind(self.site, self.form, self.output, *plan(merged).items)  # type: ignore[attr-defined]

        return build

    def reconstruct(self, codegen: Any) -> None:
        if not _is_handed_out(codegen.tx, self):
            self.ask()
        backoff.state_of(codegen.tx.output.root_tx.f_code).has_choices = True
        codegen(TupleVariable([constant(choices.MARK), *self.parts.items]))

    def as_recorded(
        self, reader: LiveSite, keep: Callable[[VariableTracker], VariableTracker]
    ) -> VariableTracker:
        return self.recorded(keep)

    def recorded(
        self, keep: Callable[[VariableTracker], VariableTracker] = lambda side: side
    ) -> VariableTracker:
        """Return the choice as a record has it; so are choices that are its sides."""
        sides = (
            side.recorded(keep) if isinstance(side, Choice) else keep(side)
            for side in (self.one, self.other)
        )
        return _Recorded(self.site, self.form, self.output, self.predicate, *sides)


class _Recorded(Choice):
    """One that a record holds, which is delivered when the graph has run."""

    def reconstruct(self, codegen: Any) -> None:
        backoff.state_of(codegen.tx.output.root_tx.f_code).has_choices = True
        codegen(TupleVariable([constant(choices.MARK), *self.parts.items]))


class Stored(Choice):
    """One that an attribute holds until a record puts the side taken in its place.

    ``place`` is the attribute, an object and a name. ``is_typed`` says that it cannot hold both
    sides in the meantime, since it takes nothing but tensors and None. ``before`` is what a record
    has of its value before the branch.
    """

    def __init__(
        self, *choice: Any, place: tuple[VariableTracker, str], is_typed: bool, **more: Any
    ) -> None:
        super().__init__(*choice, **more)
        self.place, self.is_typed = place, is_typed
        owner, name = place
        stored = self.output.side_effects.store_attr_mutations.get(owner, {}).get(name)
        if isinstance(stored, Choice):
            stored = stored.recorded()
        self.before = stored or _Before(owner, name)

    @property
    def for_record(self) -> TupleVariable:
        """What ``records.store_choice`` takes."""
        owner, name = self.place
        return TupleVariable(
            [owner, constant(name), _IsInPlace(self), self.recorded(), self.before]
        )

    def reconstruct(self, codegen: Any) -> None:
        tx = codegen.tx
        is_in_hand = self._is_in_hand(tx)
        may_be_in_hand = frames.ends_at_a_boundary(tx) and not self.is_typed
        if (is_in_hand and not may_be_in_hand) or self._is_held_elsewhere(tx):
            self.ask()
        if self.is_typed:
            codegen(constant(None))
            return
        codegen(self.recorded())

    def require_present(self) -> None:
        """See to it that the attribute is there on both sides, now that the call looks for it."""
        if self.may_be_missing and not self.output.should_exit:
            self.merge_all()

    def is_in_place(self) -> bool:
        owner, name = self.place
        stores = self.output.side_effects.store_attr_mutations.get(owner, {})
        return stores.get(name) is self

    def _is_in_hand(self, tx: Any) -> bool:
        """Whether the frame that was entered has it, and may return it."""
        root = tx.output.root_tx
        return holds([root.stack, root.symbolic_locals], self)

    def _is_held_elsewhere(self, tx: Any) -> bool:
        effects = tx.output.side_effects
        owner, name = self.place
        for variable, stores in effects.store_attr_mutations.items():
            others = [
                held
                for each, held in stores.items()
                if not (held is self and variable is owner and each == name)
            ]
            if holds(others, self):
                return True
        return any(
            holds(variable, self)
            for variable in effects.id_to_variable.values()
            if isinstance(variable.mutation_type, ValueMutationExisting)
        )


class Missing(VariableTracker):
    """The side of a ``Stored`` on which there is no such attribute."""

    def reconstruct(self, codegen: Any) -> None:
        codegen.load_import_from(records.__name__, "MISSING")


class _Before(VariableTracker):
    """What an attribute is before the changes that a graph makes."""

    def __init__(self, owner: VariableTracker, name: str, **more: Any) -> None:
        super().__init__(**more)
        self.owner, self.name = owner, name

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: codegen.load_import_from(records.__name__, "present"))
        codegen(self.owner)
        codegen(constant(self.name))
        codegen.extend_output(create_call_function(2, False))


class _IsInPlace(VariableTracker):
    """Whether nothing else has been stored over a ``Stored``; known when the trace is done."""

    _nonvar_fields = {"stored", *VariableTracker._nonvar_fields}  # noqa: RUF012

    def __init__(self, stored: Stored, **more: Any) -> None:
        super().__init__(**more)
        self.stored = stored

    def reconstruct(self, codegen: Any) -> None:
        codegen(constant(self.stored.is_in_place()))


def _is_handed_out(tx: Any, value: Unmerged) -> bool:
    """Whether ``value`` reaches the boundary, and nothing in which that would not find it."""
    if not frames.ends_at_a_boundary(tx):
        return False
    found: list[VariableTracker] = []

    def note(variable: VariableTracker) -> None:
        if variable is value:
            found.append(variable)

    effects = tx.output.side_effects
    for variable, stores in effects.store_attr_mutations.items():
        is_new = isinstance(variable.mutation_type, AttributeMutationNew)
        if not (is_new and _is_searched(variable)):
            VariableTracker.visit(note, list(stores.values()), side_effects=effects)
    for variable in effects.id_to_variable.values():
        if isinstance(variable.mutation_type, ValueMutationExisting):
            VariableTracker.visit(note, variable, side_effects=effects)
    return not found


def _is_searched(variable: VariableTracker) -> bool:
    """Whether choices are made in the attributes of what ``variable`` stands for."""
    try:
        return choices.is_searched(variable.python_type())
    except NotImplementedError:
        return False


def merge_live_outs(
    tx: Any,
    site: LiveSite,
    form: int,
    predicate: TensorVariable,
    merger: Merger,
    sides: tuple[VariableTracker, VariableTracker],
) -> Build:
    """Plan the live-outs, a tuple. Raises ``CannotMerge`` where the site has to merge them all."""
    one, other = sides
    if not (type(one) is type(other) is TupleVariable):
        return merger.merge(one, other)

    def choice(sides: Sequence[VariableTracker]) -> VariableTracker:
        if any(map(may_be_unbound, sides)):
            return Returned(site, form, tx.output, sides, unbound=True)
        return Choice(site, form, tx.output, predicate, *sides)

    def returned(sides: Sequence[VariableTracker]) -> VariableTracker:
        is_unbound = any(map(may_be_unbound, sides))
        return Returned(site, form, tx.output, sides, unbound=is_unbound)

    later = choice if form in site.returns else returned

    def plan(position: int, left: VariableTracker, right: VariableTracker) -> Build:
        is_flag = position in site.flags[form]
        found = exits.merge_exit(tx, predicate, merger, left, right, is_flag=is_flag)
        if found is not None:
            return found
        if form in site.reads:
            return merger.merge(left, right)
        return _merge_if_possible(merger, later, left, right)

    parts = [
        plan(position, left.realize(), right.realize())
        for position, (left, right) in enumerate(zip(one.items, other.items, strict=True))
    ]
    return lambda merged: TupleVariable([part(merged) for part in parts])


def _merge_if_possible(
    merger: Merger,
    later: Callable[[Sequence[VariableTracker]], VariableTracker],
    one: VariableTracker,
    other: VariableTracker,
) -> Build:
    known = len(merger.pairs)
    try:
        if not any(isinstance(side, Unmerged) for side in (one, other)):
            return merger.merge(one, other)
    except CannotMerge:
        pass
    del merger.pairs[known:]
    plans = [merger.adopt(one, then_side=True), merger.adopt(other, then_side=False)]
    return lambda merged: later([plan(merged) for plan in plans])


def may_be_unbound(value: VariableTracker) -> bool:
    """Whether ``value`` is the mark of a local that is unbound, or one that may turn out to be."""
    if isinstance(value, Unmerged):
        return bool(value.unbound)
    return type(value) is ConstantVariable and value.value is UNBOUND


def has_choice(result: VariableTracker) -> bool:
    """Whether a choice is among live-outs."""
    return isinstance(result, TupleVariable) and any(
        isinstance(each, Choice) for each in result.items
    )
