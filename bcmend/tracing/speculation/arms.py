"""Trace one arm of a branch beside the main graph, and record every effect it would have.

Nothing of the main trace is different afterwards. Relies on Dynamo's ``SubgraphTracer``
(torch/_dynamo/output_graph.py) and on every change that Dynamo models passing through
``SideEffects.mutation`` or ``store_attr``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from torch.fx import Graph, Proxy

from bcmend.dynamo import compat, shape_env, snapshots
from bcmend.dynamo.models import effect_tables, exceptions, methods, objects
from bcmend.dynamo.values import Value
from bcmend.knowledge.interruptions import is_interruption
from bcmend.tracing.effects import change_counts
from bcmend.tracing.heap import heap, roots
from bcmend.tracing.heap.heap import Heap
from bcmend.tracing.numbers import dead_numbers, filled_masks, float_tensors, scalars
from bcmend.tracing.search import strict
from bcmend.tracing.sites import body_states, nesting_limits
from bcmend.tracing.sites.lifted_inputs import Entry, Lifted
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.refusal import NotThisWay, Refusal
from bcmend.tracing.speculation import (
    arm_failures,
    closed_world,
    code_run_later,
    iterators,
    traced_backwards,
    unknown_models,
)
from bcmend.tracing.speculation.arm_failures import Raised


@dataclass(frozen=True, slots=True)
class Arm:
    """An entry of a region function, and what to call it with; the live-ins come last.

    ``calls`` is what is done in place of a call, given the tracer of the arm.
    """

    function: Value
    arguments: tuple[Value, ...]
    calls: Callable[[Any], Value] | None = None

    @property
    def inputs(self) -> compat.TupleVariable:
        inputs = self.arguments[-1].realize()
        assert isinstance(inputs, compat.TupleVariable)
        return inputs

    def with_inputs(self, inputs: Sequence[Value]) -> Arm:
        return Arm(self.function, (*self.arguments[:-1], compat.TupleVariable(list(inputs))))

    def call(self, tx: compat.Tracer) -> Value:
        if self.calls is not None:
            return self.calls(tx.output.current_tracer)
        return self.function.call_function(tx, list(self.arguments), {})


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """A list, dictionary or set of the main trace that an arm changed, or opened (``opened``)."""

    variable: Value
    before: dict[str, Any]
    after: dict[str, Any]
    is_open: bool = False


#: By location: values stored as attributes.
Stores = dict[Location, Value]


@dataclass(frozen=True, slots=True)
class Effects:
    """What an arm would have changed outside itself.

    ``attributes`` are stores to what was there before; ``made`` maps the objects that the arm made,
    by identity, to the stores to them.
    ``tensors`` are the proxies of the main trace whose tensors were changed in place;
    ``consumed`` its iterators that were advanced, and ``left_open`` the generators among them that
    would run code when they are closed; ``other`` is a change that no rule merges: the
    slug of a reason, and what it is.
    """

    attributes: Stores = field(default_factory=dict)
    made: dict[int, Stores] = field(default_factory=dict)
    containers: tuple[ContainerChange, ...] = ()
    tensors: tuple[Proxy, ...] = ()
    consumed: tuple[Value, ...] = ()
    left_open: tuple[Value, ...] = ()
    other: closed_world.Unmerged | None = None

    @property
    def lists_left(self) -> list[Any]:
        """What changed containers hold, and what the arm has stored in objects that it made."""
        stored = [list(stores.values()) for stores in self.made.values()]
        return [[each.after["items"] for each in self.containers if not each.is_open], stored]

    def __bool__(self) -> bool:
        return bool(self.attributes or self.containers or self.tensors or self.other)


@dataclass(frozen=True, slots=True)
class ArmTrace:
    """One arm, traced.

    ``lifted`` maps proxies of the main trace to the placeholders that stand for them in ``graph``;
    ``entries`` say how their tensors were when the arm first met them. ``records`` are the output
    and guard records that the arm would have made, in order; ``draws`` the random operators taken
    out of ``graph`` since, in order; ``states`` the states of torch's generator that ``graph``
    begins and ends with, if its random operators were made functions of them.
    """

    result: Value
    graph: Graph
    lifted: dict[Proxy, Proxy]
    effects: Effects
    records: tuple[Any, ...]  # of record_builder.Draft
    entries: dict[Proxy, Entry] = field(default_factory=dict)
    asserted: tuple[Any, ...] = ()  # what torch asserts of numbers of the main trace
    draws: list[Any] = field(default_factory=list)  # of hoist_random.Draw
    states: list[Any] = field(default_factory=list)  # of functional_rng.States
    heap: Heap = field(default_factory=Heap)  # as the arm leaves it

    @property
    def left(self) -> list[Any]:
        """All that the arm leaves behind."""
        return [self.result, self.stored, self.effects.lists_left]

    @property
    def stored(self) -> list[Any]:
        """What the arm leaves beside its result and in containers: stores, and its records."""
        effects = self.effects
        made = [list(each.values()) for each in effects.made.values()]
        return [list(effects.attributes.values()), made, [each.inputs for each in self.records]]


@dataclass(frozen=True, slots=True)
class ArmFailure:
    """An arm that could not be traced: it raised, or Dynamo cannot follow it.

    ``raised`` says which; ``spoiled`` that it has left a tensor
    of the main trace in another form; ``slug`` is the reason of a refusal, if it was refused.
    """

    raised: Raised
    detail: str
    spoiled: bool = False
    slug: str = ""

    @property
    def refusal(self) -> closed_world.Unmerged:
        """Return the reason why the branch is refused, and what it is."""
        return (self.slug, self.detail) if self.slug else ("arm-untraceable", self.detail)


if TYPE_CHECKING:
    _SideEffects = compat.SideEffects
else:
    _SideEffects = object


class _Recording(_SideEffects):
    """Lets an arm change what lies outside it, and remembers how that was before.

    Mixed into the class of the trace's own side effects while an arm is traced.
    """

    _remembered: dict[int, snapshots.Remembered]
    _outside: Any  # what was known before the arm; that knows what was before an enclosing arm

    def check_allowed_side_effect(self, item: Value) -> bool:
        if item.mutation_type is not None and compat.is_side_effect_safe(item.mutation_type):
            return False
        traced_backwards.require_none(effect_tables.output_of(self))
        if id(item) not in self._remembered:
            self._remembered[id(item)] = snapshots.remember(item)
        return True

    def store_attr(self, item: Value, name: str, value: Value, *more: Any, **named: Any) -> None:
        if isinstance(value, compat.DeletedVariable) and objects.is_slot(item, name):
            # Dynamo deletes one that is not there as well, and says nothing.
            raise Refusal("arm-effects", f"{name}, which __slots__ name, is deleted")
        super().store_attr(item, name, value, *more, **named)

    @methods.implements(methods.TRACK_OBJECT, methods.TRACK_MUTABLE)
    def _track(self, item: Any, variable: Value, *more: Any, **named: Any) -> Any:
        tracked = getattr(super(), methods.TRACK_OBJECT)(item, variable, *more, **named)
        for each in snapshots.containers_of(variable):
            self.check_allowed_side_effect(each)
        if snapshots.is_exception(variable):
            self.check_allowed_side_effect(variable)
        return tracked

    @methods.implements(methods.TRACK_ATTRIBUTES)
    def _track_attributes(self, variable: Any) -> Any:
        """Note how an object was of which Dynamo keeps attributes from here on."""
        # Whether the arm has made it is not known.
        self._remembered.setdefault(id(variable), snapshots.remember(variable))
        return getattr(super(), methods.TRACK_ATTRIBUTES)(variable)

    def track_global_existing(self, source: Any, item: Any) -> Value:
        """Return one model of a global variable for all stores to it, which has its value now.

        Dynamo makes a new model at every store, and forgets the stores to the one before.
        """
        known = self.id_to_variable.get(id(item))
        if known is not None:
            return known
        variable = super().track_global_existing(source, item)
        self._note_present_value(source, item, variable)
        return variable

    def _note_present_value(self, source: Any, item: Any, variable: Value) -> None:
        output: Any = effect_tables.output_of(self)
        name = source.global_name
        if name not in output.global_scope:
            return
        value = output.global_scope[name]
        present = compat.VariableTracker.build(output.current_tx, value, source)
        effects: Any = self
        while effects is not None:
            effects.id_to_variable[id(item)] = variable
            effects.keepalive.append(item)
            effect_tables.add_stored(effects, variable, name, present)
            effects = getattr(effects, "_outside", None)

    def should_allow_side_effects_in_hop(self) -> bool:
        # Without this, stores of constants would be put off until Dynamo sees them undone.
        return True


@functools.cache
def _recording_kind(kind: type) -> Any:
    """Return a class of side effects with ``_Recording`` in front."""
    if issubclass(kind, _Recording):
        return kind
    return type("RecordingSideEffects", (_Recording, kind), {})


@contextmanager
def _state_of_the_tracer_stays(tx: compat.Tracer) -> Iterator[None]:
    """Restore the stack of exceptions being handled, and the table of signatures the arm made."""
    put_back, output = exceptions.remember_handling(tx), tx.output
    signatures = dict(output.signature_cache)
    try:
        yield
    finally:
        put_back()
        output.signature_cache = signatures


_EXPECTED: Final = (Refusal, arm_failures.BothRaise, compat.TorchDynamoException)


def trace_arm(
    tx: compat.Tracer, target: Any, arm: Arm, open_sink: Callable[[], Any]
) -> ArmTrace | ArmFailure:
    """Trace a call of ``arm`` without a mark on the main trace.

    ``target`` is the higher-order operator in whose name it happens; records made under the context
    manager that ``open_sink`` returns are gathered in what it yields.
    """
    output = tx.output
    scope = compat.current_scope_id()
    lifted, world = Lifted(change_counts.counted), closed_world.outside_of_an_arm(tx)
    with (
        nesting_limits.in_one_more_arm(tx),
        _recording(output.side_effects, scope, world) as (before, recording),
    ):
        try:
            with (
                _state_of_the_tracer_stays(tx),
                shape_env.taken_back(output.shape_env) as found,
                output.subtracer(target, None, "arm") as tracer,
                open_sink() as records,
            ):
                tracer.lifted_freevars = lifted
                _remember_containers(recording, arm.arguments, tx)
                with iterators.none_left_suspended(tx), unknown_models.none_met():
                    result = arm.call(tx)
                graph, left_heap = tracer.graph, heap.of(tx, result, scope)
                left = _numbers_in((result, arm.arguments, *_left_in(recording, records)), graph)
                scalars.carry_out(tx, left, float_tensors.as_tensor)
                dead_numbers.drop_unread(graph)
                filled_masks.tell(graph, shape_env.FACTS.of(output.shape_env))
                filled_masks.tell_of_counts(tx, graph)
                tensors = _changed_in_place(tracer, lifted)
            effects = _effects(before, recording, tensors, scope)
            code_run_later.require_none(recording, scope, [result, *_stored_by(effects)])
            effects = replace(effects, other=effects.other or world.change(graph))
            return ArmTrace(
                result,
                graph,
                dict(lifted),
                effects,
                tuple(records),
                lifted.entries,
                tuple(found),
                heap=left_heap,
            )
        except (compat.RestartAnalysis, compat.SkipFrame):
            raise
        except nesting_limits.Unreadable as problem:
            world.put_slots_back()
            return ArmFailure(Raised.UNKNOWN, str(problem), lifted.spoiled)
        except RecursionError:
            raise nesting_limits.TooDeep("more than Python's stack can hold") from None
        except Exception as error:
            if is_interruption(error):
                raise
            if not isinstance(error, _EXPECTED):
                strict.require_foreign(error)
            world.put_slots_back()
            return _failure(tx, arm, error, spoiled=lifted.spoiled)


def _stored_by(effects: Effects) -> list[Value]:
    """Return what an arm stores to attributes and to lists."""
    return [*effects.attributes.values(), *effects.lists_left]


def _numbers_in(left: Sequence[Any], graph: Graph) -> list[compat.SymNodeVariable]:
    """Return the symbolic numbers that an arm made, among what it leaves behind."""
    if not dead_numbers.are_made_in(graph):
        return []
    found: dict[int, compat.SymNodeVariable] = {}

    def note(variable: Value) -> None:
        if isinstance(variable, compat.SymNodeVariable) and variable.as_proxy().node.graph is graph:
            found[id(variable)] = variable

    snapshots.visit(note, left)
    return list(found.values())


def _left_in(recording: Any, records: Sequence[Any]) -> list[Any]:
    """Return what an arm stores, what it knows of containers, and what its records are given."""
    stored = [list(each.values()) for each in recording.store_attr_mutations.values()]
    return [stored, list(recording.id_to_variable.values()), [each.inputs for each in records]]


def _failure(tx: compat.Tracer, arm: Arm, error: Exception, *, spoiled: bool) -> ArmFailure:
    if isinstance(error, Refusal) and not isinstance(error, NotThisWay):
        return ArmFailure(Raised.UNKNOWN, error.detail, spoiled, error.slug)
    raised = arm_failures.whether_raised(error)
    if isinstance(error, arm_failures.BothRaise):
        return ArmFailure(raised, str(error), spoiled)
    if isinstance(error, compat.ObservedException) or arm_failures.is_being_made(error):
        return ArmFailure(raised, arm_failures.exception_name(error), spoiled)
    if raised is Raised.UNKNOWN and isinstance(error, (compat.Unsupported, compat.UserError)):
        # A question about an unbacked number is no graph break to Dynamo. Where an iteration of a
        # loop comes to one, the loop is better unrolled.
        in_a_loop = arm.calls is not None or bool(nesting_limits.ITERATIONS.of(tx.output))
        if isinstance(error, compat.Unsupported) or not in_a_loop:
            if nesting_limits.is_last_try(tx):
                body_states.mend_inside(tx, error, nesting_limits.to_be_widened(tx))
        else:
            body_states.note_question(tx, error)
    return ArmFailure(raised, arm_failures.words(error), spoiled)


@contextmanager
def _recording(
    live: compat.SideEffects, scope: int, world: closed_world.World
) -> Iterator[tuple[compat.SideEffects, Any]]:
    """Let changes happen in a block; yield (what was, what is being changed).

    The object itself stays the same, since Dynamo's models of ``__dict__`` refer to it.
    """
    before: Any = live.clone()
    outer_kind: Any = live.__class__
    outer_remembered = getattr(live, "_remembered", None)
    before._outside = getattr(live, "_outside", None)
    live.__class__ = _recording_kind(outer_kind)
    recording: Any = live
    recording._remembered, recording._outside = {}, before
    try:
        yield before, recording
    finally:
        for remembered in recording._remembered.values():
            remembered.restore()
        live.__class__, recording._remembered = outer_kind, outer_remembered
        recording._outside = before._outside
        _forget_the_arm(live, before, scope)
        world.put_back()


def _remember_containers(recording: Any, given: Sequence[Value], tx: compat.Tracer) -> None:
    """Note what containers and iterators hold now.

    Some of Dynamo's models announce a change after making it, and some iterators never do.
    """

    def note(variable: Value) -> None:
        unknown_models.require_known(variable)
        for each in snapshots.containers_of(variable):
            recording.check_allowed_side_effect(each)
        if snapshots.is_consumable(variable) or snapshots.is_exception(variable):
            recording.check_allowed_side_effect(variable)

    tracked = list(recording.id_to_variable.values())
    held = [edge.value for edge in roots.beside_frames(tx)]
    # What the call has made is not tracked: it is found in what holds it.
    snapshots.visit(note, [*tracked, *held, *given], recording)


def _forget_the_arm(live: compat.SideEffects, before: compat.SideEffects, scope: int) -> None:
    """Take stores back, and stop tracking what the arm made; what it only looked at stays known."""
    effect_tables.put_back_stores(live, before)
    live.id_to_variable = {
        key: variable
        for key, variable in live.id_to_variable.items()
        if key in before.id_to_variable or _was_there(variable, scope)
    }
    live.keepalive = [item for item in live.keepalive if id(item) in live.id_to_variable]


def _was_there(variable: Value, scope: int) -> bool:
    kind = variable.mutation_type
    if kind is None:
        return isinstance(variable, (compat.TensorVariable, compat.SymNodeVariable))
    return kind.scope <= scope


def _changed_in_place(tracer: Any, lifted: dict[Proxy, Proxy]) -> tuple[Proxy, ...]:
    indices = set(tracer.has_input_mutation().mutated_input_indices)
    placeholders = [node for node in tracer.graph.nodes if node.op == "placeholder"]
    changed = {placeholders[index] for index in indices}
    return tuple(outer for outer, inner in lifted.items() if inner.node in changed)


def _effects(
    before: compat.SideEffects, recording: Any, tensors: tuple[Proxy, ...], scope: int
) -> Effects:
    attributes: Stores = {}
    made: dict[int, Stores] = {}
    for variable, stores in recording.store_attr_mutations.items():
        is_made = variable.mutation_type is None or variable.mutation_type.scope > scope
        known = {} if is_made else before.store_attr_mutations.get(variable, {})
        noted = made.setdefault(id(variable), {}) if is_made else attributes
        for name, value in stores.items():
            if known.get(name) is not value:
                kind = recording.attr_mutation_kinds[variable][name]
                noted[Location(LocationKind.ATTRIBUTE, variable, name, kind)] = value
    stored = {id(location.owner) for location in attributes}
    containers, consumed, other = _changes_of_objects(recording, stored)
    for location in attributes:
        if snapshots.is_exception(location.owner) and location.key in exceptions.OF_PYTHON:
            other = other or f"{location.key} of an exception"  # Dynamo has a field for it
    unmerged = ("arm-effects", other) if other else None
    left_open = tuple(filter(iterators.runs_code_when_closed, consumed))
    return Effects(attributes, made, containers, tensors, consumed, left_open, unmerged)


def _changes_of_objects(
    recording: Any, stored: set[int]
) -> tuple[tuple[ContainerChange, ...], tuple[Value, ...], str]:
    """Return changed containers, advanced iterators, and the kind of another changed object."""
    containers, consumed, other = [], [], ""
    for remembered in recording._remembered.values():
        variable, state = remembered.variable, remembered.state
        if snapshots.holds_items(variable):
            after = remembered.now()
            is_open = type(variable) is not remembered.kind
            if is_open or not snapshots.is_same(after["items"], state["items"]):
                containers.append(ContainerChange(variable, state, after, is_open))
                if variable.source is not None and variable.source.name.endswith("__kwdefaults__"):
                    other = other or "the defaults of a function"  # a call does not read them here
        elif snapshots.is_exception(variable):
            if remembered.has_changed(exceptions.NOTES):
                other = other or f"an exception: {exceptions.class_of(variable).__name__}"
        elif not remembered.has_changed():
            continue
        elif snapshots.is_consumable(variable):
            consumed.append(variable)
        elif id(variable) not in stored:
            other = other or type(variable).__name__
    return tuple(containers), tuple(consumed), other
