"""Make operators of the graph of records that are to run at their place.

The statements of a frame are either all run inside the graph or all after it, in one order. The
first record that cannot run inside has the frame traced again with all of them deferred. A check
that fails inside first brings about what would be lost (``pending_effects``), and raises then.
Where it cannot, and the call cannot be made again in plain Python, all are deferred.

``_require_apart`` works round AOTAutograd, which does not count the tokens of effects where it
makes one argument of two that share memory. Reproduced on torch 2.13.0; no issue is known. It can
go when ``test_effects_in_a_graph_that_changes_shared_memory_are_not_counted`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.fx import Node, Proxy

from bcmend.delivery import emission
from bcmend.delivery.emission import Finish, Plan, Statement
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.models import graph_inputs
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.dynamo.values import Value, fake_mode_of, global_of, load_global
from bcmend.names import BUFFER
from bcmend.tracing.deopt import graph_failure, record_timing, rerun_policy, undo_log
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.inline import emit_operator, pending_effects
from bcmend.tracing.inline.inline_values import Gathered
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite


@dataclass(slots=True, eq=False)
class _Trace:
    """What one trace has made of its records so far: ``None`` before one runs inside the graph."""

    plan: Plan | None = None
    call: Proxy | None = None
    last: Proxy | None = None
    checks: list[Node] = field(default_factory=list)
    is_checked: bool = False


_TRACE: Final = Slot(_Trace, rolls_back=False)


def add(
    tx: compat.Tracer,
    site: LiveSite,
    action: Value,
    inputs: Value,
    predicate: Value | None,
    *,
    raises: bool,
) -> bool:
    """Have a record run at this place of the graph, if that is wanted; say whether it will be."""
    if not record_timing.is_wanted(tx, site, raises=raises):
        return False
    record_timing.require_none_deferred(tx)
    trace = _TRACE.of(tx.output)
    written = attempt(lambda: _append(tx, trace, site, action, inputs, predicate, raises))
    if isinstance(written, Refusal):
        record_timing.must_wait(tx.output)
    rerun_policy.note(tx)
    return True


def _append(
    tx: compat.Tracer,
    trace: _Trace,
    site: LiveSite,
    action: Value,
    inputs: Value,
    predicate: Value | None,
    raises: bool,
) -> None:
    if tx.output.current_tracer.parent is not None:
        raise Refusal("inline-record", "a graph within the graph")
    plan = trace.plan if trace.plan is not None else Plan()
    gathered = Gathered(tx, plan)
    before = _before(tx, trace, gathered) if raises else ()
    gathered.is_up_to_date = raises and before is not None
    gathered.is_in_an_arm = predicate is not None
    made_action, made_inputs = gathered.maker(action), gathered.maker(inputs)
    if trace.plan is None:
        trace.plan, trace.call = plan, _call_input(tx, plan)
        record_timing.of(tx.output).has_inline = True
        _require_apart(tx)
    number = len(plan.statements)
    plan.statements.append(
        Statement(site.key, made_action, made_inputs, raises, before, torch.is_grad_enabled())
    )
    emitted = fx_graph.function(
        tx, emit_operator.EMIT, trace.call, trace.last, number, predicate, gathered.tensors
    )
    trace.last = emitted.as_proxy()
    if raises:
        _read_changed_arguments(tx, trace)
        _require_no_later_python_draws(tx)
    else:
        record_timing.of(tx.output).writes = True


def _read_changed_arguments(tx: compat.Tracer, trace: _Trace) -> None:
    """Have the checks read all arguments that the graph changes."""
    # A back end may move a change in place to the front of what does not read its target.
    assert trace.last is not None
    trace.checks.append(trace.last.node)
    if len(trace.checks) > 1:
        return
    tracer = tx.output.root_tracer

    def read_all_targets(module: Any) -> None:
        targets = pending_effects.changed_arguments(tracer)
        for check in trace.checks:
            *others, given = check.args
            tensors: Any = given
            check.args = (*others, [*tensors, *(each for each in targets if each not in tensors)])
        if targets:
            module.recompile()

    at_the_end_of_a_graph(tx.output, Phase.EDIT, read_all_targets)


def _require_apart(tx: compat.Tracer) -> None:
    """Defer all records if an argument is changed that shares its memory with another."""
    # AOTAutograd makes one argument of the two then, and loses count of them where a graph writes.
    output = tx.output

    def is_shared() -> bool:
        given = [node for node in output.graph.nodes if node.op == "placeholder"]
        of_whom = Counter(map(storage_of, undo_log.examples_of(given)))
        changed = undo_log.examples_of(undo_log.changed_inputs(output))
        return any(of_whom[storage_of(each)] > 1 for each in changed)

    _defer_all_if(output, is_shared)


def _require_no_later_python_draws(tx: compat.Tracer) -> None:
    """Defer all records if numbers of Python's generator are drawn behind a check."""
    # Dynamo draws those of a frame all at once, before the graph runs.
    output = tx.output
    drawn = len(output.random_calls)
    _defer_all_if(output, lambda: len(output.random_calls) > drawn)


def _defer_all_if(output: compat.OutputGraph, is_wrong: Callable[[], bool]) -> None:
    """Once the graph is complete, defer all records if ``is_wrong`` says so."""

    def check(module: Any) -> None:
        if is_wrong():
            record_timing.must_wait(output)

    at_the_end_of_a_graph(output, Phase.CHECK, check)


def _call_input(tx: compat.Tracer, plan: Plan) -> Proxy:
    """Add the call to the inputs of the graph."""
    output = tx.output
    source = _CallSource(global_of(output, plan).global_name, plan)
    given = torch.empty((), dtype=torch.int64, device="cpu")
    fake = fake_mode_of(tx).from_tensor(given)
    return graph_inputs.add(output, "bcmend_call", source, given, fake)


@dataclass(frozen=True, eq=False)
class _CallSource(graph_inputs.MadeBefore):
    """Where the call comes from: it is made just before the graph runs."""

    plan: Plan

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: load_global(codegen, emission.begin))
        codegen.append_output(codegen.create_load_global(self.plan_name, add=True))
        for source in self.plan.sources:
            codegen(source)
        codegen.extend_output(compat.create_call_function(1 + len(self.plan.sources), False))


def _before(tx: compat.Tracer, trace: _Trace, gathered: Gathered) -> tuple[Finish, ...] | None:
    """Return what a failing check has to do; ``None`` to have the call made in plain Python."""
    has_exits = record_timing.of(tx.output).has_side_exits
    if not has_exits:
        done = attempt(
            lambda: (
                *pending_effects.changes_in_place(tx, gathered),
                *pending_effects.effects(tx, gathered),
            )
        )
        if not isinstance(done, Refusal):
            return done
    _require_repeatable(tx, trace)
    return None


def _require_repeatable(tx: compat.Tracer, trace: _Trace) -> None:
    """Once the graph is complete, defer all records if the call cannot be made again."""
    if trace.is_checked:
        return
    trace.is_checked = True
    output = tx.output
    if not output.root_tx.symbolic_locals.get(BUFFER):
        record_timing.must_wait(output)
    _defer_all_if(
        output, lambda: record_timing.of(output).writes or not graph_failure.can_be_put_back(output)
    )
