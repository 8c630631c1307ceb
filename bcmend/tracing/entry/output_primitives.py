"""What Dynamo does at the primitives of output statements and checks."""

from __future__ import annotations

from typing import Any, Final

from bcmend.dynamo import compat, frames, handlers
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant
from bcmend.tracing.entry.error_barrier import withdrawn_if_it_fails
from bcmend.tracing.handlers import loggers
from bcmend.tracing.loops import loop_breaks
from bcmend.tracing.merging import truth_of_phi
from bcmend.tracing.numbers import predicates, size_questions
from bcmend.tracing.output import (
    argument_trials,
    caller_frames,
    deferred_exceptions,
    dropped_output,
    exception_flow,
    record_builder,
    record_settings,
    shown_exceptions,
)
from bcmend.tracing.sites import site_table


def guard(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``guard(key, condition, raises_if, action, live_ins)``: whether the exception is deferred."""
    key, condition, raises_if, action, inputs = args
    site = site_table.find(key.as_python_constant())
    assert site is not None
    if site.policy.guards == "keep":
        return constant(False)
    with withdrawn_if_it_fails(site):
        truth = truth_of_phi.truth_of(tx, condition.realize())
        predicate = deferred_exceptions.predicate_of(tx, site, truth)
        if not raises_if.as_python_constant():
            predicate = predicates.negated(tx, predicate)
        made = deferred_exceptions.make_guard(tx, site, action, inputs, predicate)
    if made:
        size_questions.note_fact(tx, condition.realize(), not raises_if.as_python_constant())
        site.mended("deferred")
    return constant(made)


#: What ``recording`` passes on to ``record`` in the same frame, unless an argument has broken the
#: graph in between.
_WRITES_NOTHING: Final = Slot(bool, rolls_back=False)


def recording(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``recording(key, level, ...)``: whether an output statement is to become a record.

    Where only a trace can tell whether the statement writes, the rest is ``callee, method, first,
    unless_silent, is_dropped``: see ``rewrite.sites.plan.Callee`` and ``OutputLowering``.
    """
    key, level, *callee = args
    site = site_table.find(key.as_python_constant())
    if site is None:
        return constant(False)
    if _stays(site):
        return constant(level.as_python_constant() != 1 and _breaks_the_graph(*callee))
    if compat.dynamo_config.ignore_logging_functions:
        site.refuse("policy-keep", "torch._dynamo.config.ignore_logging_functions")
        return constant(False)
    if loop_breaks.breaks_around(tx, site):
        site.refuse("not-captured", "the graph breaks at the test of the loop around it")
        return constant(False)
    _WRITES_NOTHING.put(tx, False)
    if callee and not _writes(tx, site, *callee):
        return constant(False)
    if record_builder.is_in_a_body(tx):
        site.refuse("not-captured", record_builder.IN_A_BODY)
        return constant(False)
    if frames.drains_for_the_caller(tx):
        site.refuse("generator", "the call hands the generator out")
        return constant(False)
    if exception_flow.has_doubtful_text(tx):
        site.refuse("output-shape", "the text of an exception was read that may be another one")
        return constant(False)
    return constant(True)


def _stays(site: site_table.LiveSite) -> bool:
    """Return whether an output statement runs where it stands, behind a break of the graph."""
    if site.active and site.policy.output == "keep":
        site.refuse("policy-keep")
    return not site.active or site.policy.output == "keep"


def _breaks_the_graph(*callee: Value) -> bool:
    """Return whether an output statement that is kept ends the graph, as it does by default."""
    settings = compat.dynamo_config
    if settings.ignore_logging_functions or settings.reorderable_logging_functions:
        return False
    if not callee:
        return True
    method = callee[1].as_python_constant()
    is_known = loggers.known_as(callee[0], method) is not None
    return is_known and not loggers.is_silent(callee[0], method, callee[2])


def _writes(
    tx: compat.Tracer,
    site: site_table.LiveSite,
    callee: Value,
    method: Value,
    first: Value,
    unless_silent: Value,
    is_dropped: Value,
) -> bool:
    """Return whether a call is one that writes and that can be deferred."""
    name = method.as_python_constant()
    known = loggers.known_as(callee, name)
    if known is None:
        return False
    if not (known.returns_none or is_dropped.as_python_constant()):
        site.refuse("output-shape", "the result of the call is used")
        return False
    is_silent = loggers.is_silent(callee, name, first)
    _WRITES_NOTHING.put(tx, is_silent)
    reason = unless_silent.as_python_constant()
    if reason and not is_silent:
        site.refuse("output-shape", reason)
        return False
    return True


def record(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``record(key, action, inputs[, level, shows[, trial, facts]])``: whether it was deferred.

    ``level`` and ``shows`` are there if the output is attributed to a caller or may show
    tracebacks, ``trial`` and ``facts`` if its arguments may fail: see ``OutputLowering``.
    """
    key, action, inputs, *more = args
    site = site_table.find(key.as_python_constant())
    assert site is not None
    level, shows = [each.as_python_constant() for each in more[:2]] or (1, False)
    trial = more[2:]
    if site.policy.output == "drop":
        site.mended("dropped")
        return constant(True)
    if _stays(site):
        handlers.break_graph("output is kept", site.key, "the frames around the call are shown")
    if not record_builder.is_open(tx):
        dropped_output.drop(tx, site)
        return constant(True)
    if trial:
        with withdrawn_if_it_fails(site):
            argument_trials.try_arguments(tx, site, trial[0], trial[1], inputs)
    if _WRITES_NOTHING.of(tx):  # no: the graph broke since then
        site.mended("deferred", "nothing is written at this level")
        return constant(True)
    with withdrawn_if_it_fails(site):
        statement = action.realize()
        if level != 1:
            action, inputs = caller_frames.inside_stand_ins(tx, level, action, inputs)
        action, inputs = shown_exceptions.as_of_now(
            tx, site, action, inputs, shows_tracebacks=shows
        )
        action, inputs = record_settings.within_blocks(tx, site, action, inputs, statement)
        made = deferred_exceptions.make_record(tx, site, action, inputs)
    if made:
        site.mended("deferred")
    return constant(made)
