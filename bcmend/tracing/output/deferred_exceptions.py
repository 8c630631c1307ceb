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

from bcmend.bytecode.opcodes import (
    COPIES,
    DISCARDS,
    EXITS,
    FILLERS,
    HANDLER_ENDS,
    HANDLERS,
    INTRINSICS,
    LOCAL_STORES,
    RAISES_AGAIN,
    SWAPS,
    begin_with,
)
from bcmend.delivery import records
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
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import nesting_limits, site_table
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
    if failure.raised is Raised.CERTAIN:
        inputs = compat.TupleVariable(list(arm.arguments))
        if not make_guard(tx, site, arm.function, inputs, predicate):
            return None
    elif can_exit(tx, site):
        make_side_exit(tx, site, predicate)
    else:
        site.refuse(*(("export", failure.detail) if tx.export else failure.refusal))
        return None
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
    if can_exit(tx, site):
        make_side_exit(tx, site, predicate)
        return True
    if handled_by_a_caller(tx):
        site.refuse("handler-in-caller")
        return False
    if tx.export:
        return _make_assertion(tx, site, predicate)
    return make_record(tx, site, action, inputs, predicate)


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
    if record_builder.is_in_a_body(tx):
        return False
    at_boundary = frames.ends_at_a_boundary(tx)
    return (
        side_exits.are_possible(tx, at_boundary=at_boundary)
        and site.holds(Claim.FAILS)
        and site.holds(Claim.THROWN_AWAY)
    )


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
        translators.is_in_a_context_of_the_program(frame)
        or _caught_in(frame, exceptions.handler_of(frame.current_instruction))
        for frame in frames.outwards(tx)
    )


#: How handlers begin that raise again what comes to them: of a ``with``, around a handler, of an
#: inlined comprehension, and around all of a generator; the last two are CPython's since 3.12.
_RAISE_AGAIN: Final = (
    (HANDLERS, EXITS),
    (COPIES, HANDLER_ENDS, RAISES_AGAIN),
    (SWAPS, DISCARDS, SWAPS, LOCAL_STORES),
    (INTRINSICS, RAISES_AGAIN),
)


def _caught_in(frame: Any, entry: Any) -> bool:
    """Return whether a handler from ``entry`` outwards may keep an exception."""
    while entry is not None:
        start = frame.indexof[entry.target]
        window = frame.instructions[start : start + 12]
        handler = [one for one in window if one.opname not in FILLERS]  # ranges may begin with one
        names = [one.opname for one in handler]
        raises = [one for one in handler if one.opname in RAISES_AGAIN]
        if not raises or not any(begin_with(names, each) for each in _RAISE_AGAIN):
            return True
        entry = exceptions.handler_of(raises[0])
    return False
