"""Live-outs that have no common form, and that nobody looks at while the call is traced.

What is live after a branch is known from bytecode alone, which has to take every later jump for
possible. While tracing most of those jumps are decided, and a value that only the untaken ones read
needs no form. ``Unmerged`` stands in its place. Whatever asks it anything makes Dynamo trace the
frame again, with the site told to merge all its live-outs or none. What turns out to be returned by
the call, unlooked at, becomes a ``Choice`` in a further trace; what is stored as an attribute is a
``Pending``, for which records store the right value at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch._dynamo.variables import ConstantVariable, TupleVariable
from torch._dynamo.variables.base import (
    AttributeMutationNew,
    ValueMutationExisting,
    VariableTracker,
)

from bcmend.names import UNBOUND
from bcmend.runtime import backoff, choices, sinks
from bcmend.runtime.merge import Build, CannotMerge, Merger, constant
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["Choice", "Pending", "Unmerged", "has_choice", "merge_live_outs"]

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
        """Have the frame traced again without values like this one."""
        self.site.reads.add(self.form)
        raise SiteChanged(restart_reason=f"bcmend: {self.site.key} has to merge every live-out")


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
    if not self.output.should_exit:
        self.ask()
    raise NotImplementedError


setattr(Unmerged, "as_python_constant", _no_constant)  # noqa: B010


class _Returned(Unmerged):
    """One that nobody has looked at yet; if it is returned, the choice is made after the graph."""

    def reconstruct(self, codegen: Any) -> None:
        if not _is_handed_out(codegen.tx, self):
            self.ask()
        self.site.returns.add(self.form)
        raise SiteChanged(restart_reason=f"bcmend: {self.site.key} has its choice made later")


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

    @property
    def parts(self) -> TupleVariable:
        return TupleVariable([self.predicate, self.one, self.other])

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        plan = merger.adopt(self.parts, then_side=then_side)

        def build(merged: Sequence[VariableTracker]) -> VariableTracker:
            return Choice(self.site, self.form, self.output, *plan(merged).items)  # type: ignore[attr-defined]

        return build

    def reconstruct(self, codegen: Any) -> None:
        if not _is_handed_out(codegen.tx, self):
            self.ask()
        backoff.state_of(codegen.tx.output.root_tx.f_code).has_choices = True
        codegen(TupleVariable([constant(choices.MARK), *self.parts.items]))


class Pending(Unmerged):
    """The value of an attribute that records will store when the graph has run."""

    def reconstruct(self, codegen: Any) -> None:
        codegen(constant(None))


def _is_handed_out(tx: Any, value: Unmerged) -> bool:
    """Whether ``value`` reaches the boundary, and no object that was there before the call."""
    if not sinks.ends_at_a_boundary(tx):
        return False
    found: list[VariableTracker] = []

    def note(variable: VariableTracker) -> None:
        if variable is value:
            found.append(variable)

    effects = tx.output.side_effects
    for variable, stores in effects.store_attr_mutations.items():
        if not isinstance(variable.mutation_type, AttributeMutationNew):
            VariableTracker.visit(note, list(stores.values()), side_effects=effects)
    for variable in effects.id_to_variable.values():
        if isinstance(variable.mutation_type, ValueMutationExisting):
            VariableTracker.visit(note, variable, side_effects=effects)
    return not found


def merge_live_outs(
    output: Any,
    site: LiveSite,
    form: int,
    predicate: VariableTracker,
    merger: Merger,
    sides: tuple[VariableTracker, VariableTracker],
) -> Build:
    """Plan the live-outs, a tuple. Raises ``CannotMerge`` where the site has to merge them all."""
    one, other = sides
    if not (type(one) is type(other) is TupleVariable) or form in site.reads:
        return merger.merge(one, other)

    def choice(sides: Sequence[VariableTracker]) -> VariableTracker:
        if any(map(may_be_unbound, sides)):
            return _Returned(site, form, output, unbound=True)
        return Choice(site, form, output, predicate, *sides)

    def returned(sides: Sequence[VariableTracker]) -> VariableTracker:
        return _Returned(site, form, output, unbound=any(map(may_be_unbound, sides)))

    later = choice if form in site.returns else returned
    parts = [
        _merge_if_possible(merger, later, left, right)
        for left, right in zip(one.items, other.items, strict=True)
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
