"""Guards: exceptions that are raised when the graph has run.

An arm that raises becomes a side exit. Where the effects of the graph cannot be undone, it becomes
a record with the condition as predicate, if it is certain that eager execution raises and that the
exception leaves the code being traced.
"""

from __future__ import annotations

import linecache
import operator
import os
from collections.abc import Sequence
from typing import Any, Final

from bcmend.bytecode.decode import operation
from bcmend.bytecode.raised_again import may_keep
from bcmend.delivery import records, waiting_handlers
from bcmend.dynamo import compat, frames, values
from bcmend.dynamo.models import exceptions, translators
from bcmend.dynamo.values import Value, constant, example_of
from bcmend.tracing.deopt import side_exits
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.numbers import predicates, size_questions
from bcmend.tracing.output import (
    dropped_output,
    object_snapshot,
    record_builder,
    record_settings,
    streams,
)
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify, weaken
from bcmend.tracing.sites import body_states, nesting_limits, site_table
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation import arm_failures
from bcmend.tracing.speculation.arm_failures import Raised
from bcmend.tracing.speculation.arms import Arm, ArmFailure, ArmTrace


def defer_raising_arm(
    tx: compat.Tracer,
    site: LiveSite,
    condition: Value,
    arms: tuple[Arm, Arm],
    traced: Sequence[ArmTrace | ArmFailure],
) -> Value | None:
    """Record the exception of the arm that raised and go on with the other arm."""
    failed = [trace for trace in traced if isinstance(trace, ArmFailure)]
    failure = next((each for each in failed if each.raised is Raised.UNKNOWN), failed[0])
    is_unknown = failure.raised is Raised.UNKNOWN
    if len(failed) == 2 and not is_unknown and nesting_limits.is_in_an_arm(tx):
        raise arm_failures.BothRaise(*_together(tx, failed))
    if len(failed) == 2 or is_unknown:
        # Where a branch inside the arm is the reason, its refusal says more.
        site.refuse(*(site_table.recent_refusal() or failure.refusal))
        return None
    if failure.spoiled:
        detail = "the arm that raises changes the form of a tensor in place"
        falsify(site.unmendable("arm-effects", detail))
    raising = 0 if isinstance(traced[0], ArmFailure) else 1
    predicate = predicate_of(tx, site, condition)
    if raising == 1:
        predicate = predicates.negated(tx, predicate)
    arm = arms[raising]
    is_left = _leaves_for_a_guard(tx, site)
    if failure.raised is Raised.CERTAIN:
        inputs = compat.TupleVariable(list(arm.arguments))
        if not make_guard(tx, site, arm.function, inputs, predicate):
            return None
    elif can_exit(tx, site):
        make_side_exit(tx, site, predicate)
    else:
        site.refuse(*(("export", failure.detail) if tx.export else failure.refusal))
        return None
    if is_left:
        site.seen_sides.add(raising == 0)  # the call is made eagerly then
    size_questions.note_fact(tx, condition, raising == 1)
    site.mended("guard", f"one side raises {failure.detail}")
    return arms[1 - raising].call(tx)


def leave_side(tx: compat.Tracer, site: LiveSite, condition: Value, truth: bool) -> None:
    """Have the call made in plain Python where a condition is ``truth``.

    The frame can have a side exit (``can_exit``).
    """
    predicate = predicate_of(tx, site, condition)
    make_side_exit(tx, site, predicate if truth else predicates.negated(tx, predicate))
    size_questions.note_fact(tx, condition, not truth)


def _together(tx: compat.Tracer, failed: Sequence[ArmFailure]) -> tuple[Raised, str]:
    """Return how certain it is that a branch raises of which both arms do, and what it raises."""
    is_certain = all(each.raised is Raised.CERTAIN for each in failed)
    is_certain = is_certain and not handled_by_a_caller(tx)
    raised = Raised.CERTAIN if is_certain else Raised.LIKELY
    return raised, " or ".join(dict.fromkeys(each.detail for each in failed))


def make_guard(
    tx: compat.Tracer,
    site: LiveSite,
    action: Value,
    inputs: Value,
    predicate: compat.TensorVariable,
) -> bool:
    """Have an exception raised if ``predicate`` holds; return whether that was possible.

    A side exit does it as eager execution does. Where there can be none, a record calls ``action``,
    which raises, at the end of the call: it sees cells and objects as they are then.
    """
    if _leaves_for_a_guard(tx, site):
        make_side_exit(tx, site, predicate)
        return True
    if handled_by_a_caller(tx):
        site.refuse("handler-in-caller")
        return False
    if tx.export:
        return _make_assertion(tx, site, predicate)
    if handled_between_calls(tx):
        site.refuse("handler-in-caller", "a function between it and the patched call may catch it")
        return False
    return make_record(tx, site, action, inputs, predicate)


def _leaves_for_a_guard(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether a side exit has the exception of a check raised.

    If a call behind a side exit has not failed, a handler of another frame has been around it.
    """
    return can_exit(tx, site) or (_can_be_left(tx, site) and not handled_by_a_caller(tx))


def _make_assertion(tx: compat.Tracer, site: LiveSite, predicate: compat.TensorVariable) -> bool:
    """Have an exported program assert that ``predicate`` does not hold."""
    if record_builder.is_in_a_body(tx):
        site.refuse("not-captured", record_builder.IN_A_BODY)
        return False
    text, nothing = constant(_words(tx)), compat.TupleVariable([])
    dropped_output.tell_of_check(tx, site)
    record_builder.append(tx, Draft(site, text, predicate, nothing, Kind.CHECK))
    return True


def _words(tx: compat.Tracer) -> str:
    """Return what an assertion says: where the check stands, and its source."""
    file, line = tx.f_code.co_filename, tx.lineno
    source = linecache.getline(file, line).strip()
    if source.endswith(":"):
        source = f"{source} {linecache.getline(file, line + 1).strip()}"
    place = f"{os.path.basename(file)}:{line}, {tx.f_code.co_qualname}"
    # AOTInductor writes it into C++ between quotes, as it is.
    return f"{place}: {source}".translate(_IN_QUOTES) if source else place


_IN_QUOTES: Final = str.maketrans({'"': "'", "\\": "/"})


def can_exit(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether the frame can have a side exit for ``site``, as far as is known."""
    return site.holds(Claim.FAILS) and _can_be_left(tx, site)


def _can_be_left(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether the frame can have a side exit where the call behind it is known to fail."""
    if record_builder.is_in_a_body(tx):
        return False
    at_boundary = frames.ends_at_a_boundary(tx)
    is_possible = side_exits.are_possible(tx, at_boundary=at_boundary)
    return is_possible and site.holds(Claim.THROWN_AWAY)


def make_side_exit(tx: compat.Tracer, site: LiveSite, predicate: compat.TensorVariable) -> None:
    """Have the call made in plain Python if ``predicate`` holds."""
    nothing = compat.TupleVariable([])
    record_builder.append(tx, Draft(site, nothing, predicate, nothing, Kind.EXIT))


def predicate_of(tx: compat.Tracer, site: LiveSite, condition: Value) -> compat.TensorVariable:
    """Return the truth of ``condition`` as it is now, whatever is changed later."""
    predicate = predicates.as_predicate(tx, condition)
    if not isinstance(condition, compat.TensorVariable):
        return predicate
    if storage_of(example_of(predicate)) != storage_of(example_of(condition)):
        return predicate
    stored = record_builder.snapshot(tx, site, predicate)
    assert isinstance(stored, compat.TensorVariable)
    return stored


def make_record(
    tx: compat.Tracer,
    site: LiveSite,
    action: Value,
    inputs: Value,
    predicate: compat.TensorVariable | None = None,
) -> bool:
    """Have ``action`` called after the graph if ``predicate`` holds; return whether it can be."""
    if site.kind == "output":
        streams.watch(tx, site)
    raises = predicate is not None
    if record_builder.is_in_a_body(tx):
        if not raises:
            falsify(site.unmendable("not-captured", record_builder.IN_A_BODY))
        site.refuse("not-captured", record_builder.IN_A_BODY)
        return False
    snapshot = attempt(lambda: _as_of_now(tx, site, action, inputs, is_check=raises))
    if isinstance(snapshot, Refusal):
        falsify(site.unmendable(snapshot.slug, snapshot.detail))
    action, inputs = record_settings.as_of_now(tx, *snapshot)
    kind = Kind.CHECK if raises else Kind.OUTPUT
    record_builder.append(tx, Draft(site, action, predicate, inputs, kind))
    return True


def _as_of_now(
    tx: compat.Tracer, site: LiveSite, action: Value, inputs: Value, *, is_check: bool
) -> tuple[Value, Value]:
    """Return action and inputs of a record as they are now, whatever is changed later."""
    if not is_check and record_builder.shows_moments(site):
        assert isinstance(inputs, compat.TupleVariable)
        items = inputs.items
        objects = object_snapshot.of_objects(
            tx, site, items, lambda value: record_builder.snapshot(tx, site, value)
        )
        texts = list(map(object_snapshot.unformatted, items))
        if objects is not None or any(
            map(operator.is_not, texts, (each.realize() for each in items))
        ):
            rows = objects or compat.TupleVariable([])
            inputs = compat.TupleVariable([action, rows, *texts])
            action = values.function_of(tx, records.show_as_of)
    return action, record_builder.snapshot(tx, site, inputs)


def handled_by_a_caller(tx: compat.Tracer) -> bool:
    """Return whether an exception raised here could be caught in the code being traced."""
    return any(
        # The exit of an open ``with`` that is user code may swallow an exception.
        translators.is_in_a_context_of_the_program(frame) or _is_caught_in(frame)
        for frame in frames.being_traced(tx)
    )


def _is_caught_in(frame: Any) -> bool:
    """Return whether a handler around what a frame being traced calls may keep an exception."""
    instructions = frame.instructions

    def handler_over(index: int) -> int | None:
        entry = exceptions.handler_of(instructions[index])
        return None if entry is None else frame.indexof[entry.target]

    entry = exceptions.handler_of(frame.current_instruction)
    first = None if entry is None else frame.indexof[entry.target]
    return may_keep([operation(each) for each in instructions], first, handler_over)


def handled_between_calls(tx: compat.Tracer) -> bool:
    """Return whether what the code being traced raises could be caught inside the patched call.

    It is called by a frame that Python runs then, which goes on with what the call has left.
    """
    code = tx.output.root_tx.f_code
    state = body_states.state_of(frames.resumed(code))
    if state.holds(Claim.UNCAUGHT) and waiting_handlers.is_one_inside():
        weaken(Finding(Claim.UNCAUGHT, state))
    if state.holds(Claim.UNCAUGHT):
        state.note_deferring(code)
        return False
    return True
