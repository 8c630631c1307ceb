"""Live-outs that have no common form, and that nobody looks at while the call is traced.

What is live after a branch is known from bytecode alone, which has to take every later jump for
possible. A value that only jumps read that are not taken needs no form, and a ``LazyPhi`` stands in
its place. Whatever asks it anything makes Dynamo trace the frame again, with the site told to merge
all its live-outs or none. What turns out to be returned by the call becomes a ``GatedPhi`` in a
further trace; what is stored as an attribute is a ``StoredPhi``, until a record puts the side taken
in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import TRUTH_JUMPS
from bcmend.delivery import codec, records
from bcmend.dynamo import compat, frames, snapshots
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.values import Value, constant, load_global
from bcmend.names import UNBOUND
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Edge, Root, holds
from bcmend.tracing.merging.merge import Merger
from bcmend.tracing.numbers import predicates
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states, encoding, nesting_limits
from bcmend.tracing.sites.locations import Location
from bcmend.tracing.sites.phi import Build, Keep, Merged, Phi, left_apart_beside
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite

#: What Dynamo does to any value that it only moves from place to place.
_MOVING: Final = frozenset(
    "clone is_realized realize set_name_hint set_source_location unwrap visit".split()
)


class LazyPhi(Phi, compat.VariableTracker):
    """One thing after one arm, another after the other; ``refusal``: why they are not merged."""

    def __init__(
        self, site: LiveSite, form: int, output: compat.OutputGraph, sides: Any = (), **more: Any
    ) -> None:
        unbound, self.refusal = more.pop("unbound", False), more.pop("refusal", None)
        super().__init__(**more)
        self.site, self.form, self.output, self.unbound = site, form, output, unbound
        self.sides: tuple[Value, ...] = tuple(sides)

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        return lambda merged: self

    def ask(self) -> None:
        """Have the frame traced again: split where this is read, or without values like it."""
        tx = self.output.current_tx
        is_jump = operation(tx.current_instruction) in TRUTH_JUMPS
        if is_jump and has_truth_on_each_side(self):
            body_states.mend_jump(tx)
        if frames.is_captured_whole(tx):
            is_read = Finding(Claim.DROPPED, self.site, self.form)
            body_states.split_where_read(tx, self.site, is_read)
        self.merge_all()

    def merge_all(self) -> NoReturn:
        """Have the frame traced again without values like it."""
        if nesting_limits.is_in_half(self.output.current_tx):
            raise nesting_limits.Unreadable("a value that has two forms is read")
        is_read = Finding(Claim.READ_APART, self.site, self.form)
        if self.refusal is not None and not self.form:
            body_states.widen(self.output.current_tx, self.site, self.refusal, is_read)
        falsify(is_read, *left_apart_beside(self.output, is_read))

    def require_both_sides(self, reader: LiveSite) -> None:
        """Ensure that ``reader`` gets both sides; else have the frame traced again."""
        self.ask()

    def as_recorded(self, reader: LiveSite, keep: Keep) -> Value:
        self.require_both_sides(reader)
        raise Refusal("arms-differ", "a value that is stored when the graph has run")

    def _is_no_such_thing(self) -> bool:
        """Answer no to Dynamo while it writes code, and to nobody else."""
        if not self.output.should_exit:
            self.ask()
        return False

    is_tensor = is_python_constant = _is_no_such_thing

    def as_python_constant(self) -> NoReturn:
        if not self.output.should_exit and not _is_only_in_a_closure():
            self.ask()
        raise compat.AsPythonConstantNotImplementedError(self)


def _asks(self: LazyPhi, *arguments: Any, **keywords: Any) -> None:
    self.ask()


for _name, _method in vars(compat.VariableTracker).items():
    if callable(_method) and not _name.startswith("_") and _name not in {*_MOVING, *vars(LazyPhi)}:
        setattr(LazyPhi, _name, _asks)


def _is_only_in_a_closure() -> bool:
    """Return whether Dynamo asks because it would like to have a traced function as a real one."""
    # It does so before every call of a nested function, and can do without.
    frame = sys._getframe(2)
    return any(
        each is not None and objects.makes_a_real_function(each.f_code)
        for each in (frame, frame.f_back)
    )


class UnreadPhi(LazyPhi):
    """One that nobody has looked at yet; if it is returned, a ``GatedPhi`` in the next trace.

    ``predicate`` holds for the first side, if it is known. It and the sides are in ``graph``.
    """

    def __init__(self, *phi: Any, predicate: Value | None = None, **more: Any) -> None:
        graph = more.pop("graph", None)
        super().__init__(*phi, **more)
        self.predicate, self.graph = predicate, graph or self.output.graph

    @property
    def is_at_hand(self) -> bool:
        """Return whether both sides and the predicate are in the graph that is being written."""
        if self.unbound or self.predicate is None or self.output.graph is not self.graph:
            return False
        return all(side.is_at_hand for side in self.sides if isinstance(side, UnreadPhi))

    def store_sides(self, *beside: UnreadPhi) -> NoReturn:
        """Have the frame traced again with both sides and the condition stored.

        So it is then for all that this phi holds, and for those ``beside`` it.
        """
        if not self.site.holds(Claim.DROPPED, self.form):  # and one of the sides is unbound
            self.ask()
        phis = [self, *beside, *_unread_in(self.sides)]
        falsify(*dict.fromkeys(Finding(Claim.DROPPED, each.site, each.form) for each in phis))

    def require_both_sides(self, reader: LiveSite) -> None:
        self.store_sides()

    def reconstruct(self, codegen: Any) -> None:
        tx = codegen.tx
        if not _is_handed_out(tx, self):
            self.ask()
        returned = _unread_in(tx.output.root_tx.stack)
        self.store_sides(*(each for each in returned if _is_handed_out(tx, each)))


def _unread_in(values: Sequence[Value]) -> list[UnreadPhi]:
    """Return the phis in values of which both sides are not stored yet, but can be."""
    found: list[UnreadPhi] = []

    def note(value: Value) -> None:
        if isinstance(value, UnreadPhi) and value.site.holds(Claim.DROPPED, value.form):
            found.append(value)

    snapshots.visit(note, values)
    return found


class GatedPhi(LazyPhi):
    """A phi with its condition, on its way out of the graph: the first side where that holds."""

    def __init__(self, *phi: Any, predicate: Value, **more: Any) -> None:
        super().__init__(*phi, **more)
        self.predicate = predicate

    def require_both_sides(self, reader: LiveSite) -> None:
        """Do nothing: both are there."""

    @property
    def may_be_missing(self) -> bool:
        """Return whether a side of it is that there is no such attribute."""
        return any(
            isinstance(side, (MissingAttribute, _Before))
            or (isinstance(side, GatedPhi) and side.may_be_missing)
            for side in self.sides
        )

    def require_present(self) -> None:
        """Ensure that the attribute is there on both sides, now that the call looks for it."""
        if self.may_be_missing and not self.output.should_exit:
            self.merge_all()

    @property
    def parts(self) -> compat.TupleVariable:
        return compat.TupleVariable([self.predicate, *self.sides])

    @property
    def for_record(self) -> list[Value]:
        """Return what ``records.store_choice`` takes; nothing if no record stores a side."""
        return []

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        plan = merger.adopt(self.parts, then_side=then_side)
        kind = _RecordedPhi if isinstance(self, _RecordedPhi) else GatedPhi

        def build(merged: Merged) -> Value:
            predicate, *sides = plan(merged).items  # type: ignore[attr-defined]
            return kind(self.site, self.form, self.output, sides, predicate=predicate)

        return build

    def reconstruct(self, codegen: Any) -> None:
        if not _is_handed_out(codegen.tx, self):
            self.ask()
        self._encode(codegen)

    def _encode(self, codegen: Any) -> None:
        body_states.state_of(codegen.tx.output.root_tx.f_code).has_choices = True
        codegen(encoding.encoded(codec.CHOICE, *self.parts.items))

    def as_recorded(self, reader: LiveSite, keep: Keep) -> Value:
        return self.recorded(keep)

    def recorded(self, keep: Keep = lambda side: side) -> Value:
        """Return the phi as a record has it; so are phis that are its sides."""
        sides = (
            side.recorded(keep) if isinstance(side, GatedPhi) else keep(side) for side in self.sides
        )
        return _RecordedPhi(self.site, self.form, self.output, sides, predicate=self.predicate)


class _RecordedPhi(GatedPhi):
    """One that a record holds, which is delivered when the graph has run."""

    reconstruct = GatedPhi._encode


class CellPhi(GatedPhi):
    """One in a variable that a closure made in the call shares, and that dies with its frame."""

    def reconstruct(self, codegen: Any) -> None:
        """Have the frame traced again with a record that stores the side taken: it outlives it."""
        falsify(Finding(Claim.LOCAL, self.site, self.form))


class StoredPhi(GatedPhi):
    """One that an attribute holds until a record puts the side taken in its place.

    ``before`` is the value of the attribute ``name`` of ``owner`` before the branch.
    ``is_typed`` says that it takes nothing but tensors and None, and cannot hold both sides.
    ``inherited`` is the position of the side that stores nothing to an object without the attribute
    whose class has it, or -1.
    """

    def __init__(
        self, *phi: Any, location: Location, is_typed: bool, inherited: int = -1, **more: Any
    ) -> None:
        super().__init__(*phi, **more)
        self.owner, self.name = location.owner, location.key
        self.is_typed, self.inherited = is_typed, inherited
        stored = self.in_place()
        if isinstance(stored, GatedPhi):
            stored = stored.recorded()
        self.before = stored or _Before(self.owner, self.name)

    @property
    def parts(self) -> compat.TupleVariable:
        """Return what an enclosing branch adopts: a side that stores nothing leaves what was."""
        return compat.TupleVariable([self.predicate, *self._with_inherited(self.sides)])

    def _with_inherited(self, sides: Sequence[Value]) -> list[Value]:
        return [
            self.before if number == self.inherited else side for number, side in enumerate(sides)
        ]

    @property
    def is_whole(self) -> bool:
        """Return whether each side stores a value."""
        return self.inherited < 0 and not self.may_be_missing

    @property
    def for_record(self) -> list[Value]:
        choice: Any = self.recorded()
        choice.sides = tuple(self._with_inherited(choice.sides))
        owner = owner_in_a_record(self.owner)
        return [owner, constant(self.name), _IsInPlace(self), choice, self.before]

    def reconstruct(self, codegen: Any) -> None:
        tx = codegen.tx
        root = tx.output.root_tx
        in_hand = [edge.value for edge in roots.edges(tx) if edge.owner is root]
        is_in_hand = holds(in_hand, self)  # and may be returned
        may_be_in_hand = frames.ends_at_a_boundary(tx) and not self.is_typed
        if (is_in_hand and not may_be_in_hand) or self._is_held_elsewhere(tx):
            self.ask()
        is_variable = isinstance(self.owner, (compat.CellVariable, compat.NewGlobalVariable))
        if self.is_typed:
            codegen(constant(None))
        elif is_variable and not is_in_hand:
            codegen(self.before)  # records delivered before its own may read it
        else:
            codegen(self.recorded())

    def in_place(self) -> Any:
        """Return what is stored where this was; itself, unless something else was since."""
        owner, effects = self.owner, self.output.side_effects
        if isinstance(owner, compat.NewGlobalVariable):
            owner = _latest_model(effects, owner)
        return effects.store_attr_mutations.get(owner, {}).get(self.name)

    def _is_held_elsewhere(self, tx: compat.Tracer) -> bool:

        def is_its_own(edge: Edge) -> bool:
            is_place = (edge.root, edge.owner, edge.key) == (Root.STORED, self.owner, self.name)
            return edge.owner is tx.output.root_tx or (edge.value is self and is_place)

        return roots.is_held(tx, self, but=is_its_own)


class MissingAttribute(compat.VariableTracker):
    """The side of a ``StoredPhi`` on which there is no such attribute."""

    def reconstruct(self, codegen: Any) -> None:
        load_global(codegen, records.MISSING)


class _Before(compat.VariableTracker):
    """What an attribute is before the changes that a graph makes."""

    def __init__(self, owner: Value, name: str, **more: Any) -> None:
        super().__init__(**more)
        self.owner, self.name = owner, name

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: load_global(codegen, records.present))
        codegen(owner_in_a_record(self.owner))
        codegen(constant(self.name))
        codegen.extend_output(compat.create_call_function(2, False))


class _GlobalVariables(compat.VariableTracker):
    """The global variables of the frame being traced, as the attributes of an object."""

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: load_global(codegen, records.global_variables))
        codegen.extend_output(compat.create_call_function(0, False))


def owner_in_a_record(owner: Value) -> Value:
    """Return what a record has in place of the model of a global variable; else the owner."""
    return _GlobalVariables() if isinstance(owner, compat.NewGlobalVariable) else owner


def _latest_model(effects: compat.SideEffects, variable: Value) -> Value:
    """Return the model of a global variable to which it was stored last.

    Dynamo makes another one at each store outside arms.
    """
    models = [
        each
        for each in effects.id_to_variable.values()
        if isinstance(each, compat.NewGlobalVariable) and each.source == variable.source
    ]
    return models[-1] if models else variable


@methods.without_models_in("stored")
class _IsInPlace(compat.VariableTracker):
    """Whether nothing else has been stored over a ``StoredPhi``; known when the trace is done."""

    def __init__(self, stored: StoredPhi, **more: Any) -> None:
        super().__init__(**more)
        self.stored = stored

    def reconstruct(self, codegen: Any) -> None:
        codegen(constant(self.stored.in_place() is self.stored))


def _is_handed_out(tx: compat.Tracer, value: LazyPhi) -> bool:
    """Return whether ``value`` reaches the boundary, and nothing that is not searched for it."""
    if not frames.ends_at_a_boundary(tx):
        return False

    def is_returned(edge: Edge) -> bool:
        if edge.root is not Root.STORED:
            return edge.owner is tx.output.root_tx
        is_new = isinstance(edge.owner.mutation_type, compat.AttributeMutationNew)
        return is_new and _is_searched(edge.owner)

    held = [edge.value for edge in roots.edges(tx) if not is_returned(edge)]
    return not holds(held, value, tx.output.side_effects)


def _is_searched(variable: Value) -> bool:
    """Return whether choices are made in the attributes of what ``variable`` stands for."""
    try:
        return codec.is_searched(variable.python_type())
    except NotImplementedError:
        return False


def has_truth_on_each_side(value: Value) -> bool:
    """Return whether a value is a constant, a number or a tensor of one on each of its sides."""
    if isinstance(value, LazyPhi):
        return bool(value.sides) and all(map(has_truth_on_each_side, value.sides))
    is_number = isinstance(value, compat.SymNodeVariable) or value.is_python_constant()
    return is_number or predicates.is_single(value)


def may_be_unbound(value: Value) -> bool:
    """Return whether ``value`` is the mark of an unbound local, or may turn out to be."""
    if isinstance(value, LazyPhi):
        return bool(value.unbound)
    return type(value) is compat.ConstantVariable and value.value is UNBOUND
