"""Make operators of the graph of records that are to run at their place.

Reads a record as the tracer has it; appends one call of ``bcmend::emit`` to the main graph and one
``Statement`` to the plan of the trace.

All records have one order, so the statements of a frame are either all run inside the graph or all
after it. The first record that cannot run inside has the frame traced again with all of them
deferred; one that has to, after others that need not, has it traced again with all inside.

A check that fails inside the graph first brings about what would be lost (``losses``), and raises
then. Where it cannot, the call has to be such that it can be made again in plain Python; else all
are deferred.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import torch
from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import GraphArg, wrap_fx_proxy
from torch._guards import GuardSource, Source
from torch.fx import Node, Proxy

from bcmend.names import BUFFER
from bcmend.runtime import (
    backoff,
    emission,
    failing_graphs,
    losses,
    per_trace,
    repeats,
    sites,
    undo,
)
from bcmend.runtime.emission import Finish, Plan, Statement
from bcmend.runtime.inline_values import CannotRunInside, Gathered
from bcmend.runtime.operations import storage_of
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["INLINE", "add", "is_asked_for", "is_wanted", "must_wait", "note_deferred", "writes"]

INLINE: Final = "inline"
_DEFERRED: Final = "deferred"


@dataclass(slots=True, eq=False)
class _Trace:
    """What one trace has made of its records so far.

    ``plan``, ``call`` (the input of the graph) and ``last`` (what the last record returned) are
    there once a record runs inside the graph. ``checks`` are the calls that may raise.
    """

    plan: Plan | None = None
    call: Proxy | None = None
    last: Proxy | None = None
    checks: list[Node] = field(default_factory=list)
    has_deferred: bool = False
    writes: bool = False
    is_checked: bool = False


def _trace(tx: Any) -> _Trace:
    return per_trace.kept(tx.output, "inline", _Trace)


def _state(output: Any) -> backoff.BodyState:
    return backoff.state_of(output.root_tx.f_code)


def is_asked_for(site: LiveSite, *, raises: bool) -> bool:
    """Whether the policy asks for records of a site to run at their place."""
    return (site.guards if raises else site.output) == INLINE


def is_wanted(tx: Any, site: LiveSite, *, raises: bool) -> bool:
    """Whether a record of ``site`` that is made now is to run inside the graph."""
    state = _state(tx.output)
    if state.timing == _DEFERRED:
        return False
    return (
        state.timing == INLINE or _trace(tx).plan is not None or is_asked_for(site, raises=raises)
    )


def must_wait(output: Any) -> NoReturn:
    """Have the frame traced again with all records deferred."""
    _state(output).timing = _DEFERRED
    sites.allow_exits_again()  # what is written in the graph may have stood against them
    raise SiteChanged(restart_reason="bcmend: a record cannot run inside the graph")


def note_deferred(tx: Any) -> None:
    """Note that the trace has a deferred record of a statement."""
    _trace(tx).has_deferred = True


def writes(output: Any) -> bool:
    """Whether the graph of a trace writes something while it runs."""
    return per_trace.kept(output, "inline", _Trace).writes


def add(
    tx: Any,
    site: LiveSite,
    action: VariableTracker,
    inputs: VariableTracker,
    predicate: VariableTracker | None,
    *,
    raises: bool,
) -> bool:
    """Have a record run at this place of the graph, if that is wanted; say whether it will be."""
    if not is_wanted(tx, site, raises=raises):
        return False
    trace = _trace(tx)
    if trace.has_deferred:
        _state(tx.output).timing = INLINE
        raise SiteChanged(restart_reason="bcmend: records run inside the graph")
    try:
        _append(tx, trace, site, action, inputs, predicate, raises)
    except CannotRunInside:
        must_wait(tx.output)
    repeats.note(tx)
    return True


def _append(
    tx: Any,
    trace: _Trace,
    site: LiveSite,
    action: VariableTracker,
    inputs: VariableTracker,
    predicate: VariableTracker | None,
    raises: bool,
) -> None:
    if tx.output.current_tracer.parent is not None:
        raise CannotRunInside("a graph within the graph")
    plan = trace.plan if trace.plan is not None else Plan()
    gathered = Gathered(tx, plan)
    before = _before(tx, trace, gathered) if raises else ()
    gathered.is_up_to_date = raises and before is not None
    made_action, made_inputs = gathered.maker(action), gathered.maker(inputs)
    if trace.plan is None:
        trace.plan, trace.call = plan, _call_input(tx, plan)
        _require_apart(tx)
    number = len(plan.statements)
    plan.statements.append(
        Statement(site.key, made_action, made_inputs, raises, before, torch.is_grad_enabled())
    )
    condition = None if predicate is None else predicate.as_proxy()
    arguments = (trace.call, trace.last, number, condition, list(gathered.tensors))
    trace.last = tx.output.create_proxy("call_function", emission.EMIT, arguments, {})
    wrap_fx_proxy(tx, trace.last)
    if raises:
        _keep_later_changes_out(tx, trace)
        _draw_nothing_ahead(tx)
    trace.writes = trace.writes or not raises


def _keep_later_changes_out(tx: Any, trace: _Trace) -> None:
    """Have no argument changed before a check that stands before the change.

    A back end may move a change in place to the front of what does not read its target; so the
    checks are made to read all arguments that the graph changes.
    """
    assert trace.last is not None
    trace.checks.append(trace.last.node)
    if len(trace.checks) > 1:
        return
    tracer = tx.output.root_tracer

    def read_all_targets(module: Any) -> None:
        targets = losses.changed_arguments(tracer)
        for check in trace.checks:
            *others, given = check.args
            tensors: Any = given
            check.args = (*others, [*tensors, *(each for each in targets if each not in tensors)])
        if targets:
            module.recompile()

    tx.output.register_finalizer_fns.append(read_all_targets)


def _require_apart(tx: Any) -> None:
    """Defer all records if an argument is changed that shares its memory with another.

    AOTAutograd makes one argument of the two then, and loses count of them where a graph writes.
    """
    output = tx.output

    def check(module: Any) -> None:
        given = [node for node in output.graph.nodes if node.op == "placeholder"]
        of_whom = Counter(map(storage_of, undo.examples_of(given)))
        changed = undo.examples_of(undo.changed_inputs(output))
        if any(of_whom[storage_of(each)] > 1 for each in changed):
            must_wait(output)

    output.register_finalizer_fns.append(check)


def _draw_nothing_ahead(tx: Any) -> None:
    """Defer all records if numbers of Python's generator are drawn behind a check.

    Dynamo draws those of a frame all at once, before the graph runs.
    """
    output = tx.output
    drawn = len(output.random_calls)

    def check(module: Any) -> None:
        if len(output.random_calls) > drawn:
            must_wait(output)

    output.register_finalizer_fns.append(check)


def _call_input(tx: Any, plan: Plan) -> Proxy:
    """Add the call to the inputs of the graph."""
    output = tx.output
    source = _CallSource(output.install_global("bcmend_plan", plan), plan)
    given = torch.empty((), dtype=torch.int64, device="cpu")
    fake = tx.fake_mode.from_tensor(given)
    proxy: Proxy = output.root_tracer.create_graph_input(
        "bcmend_call", torch.Tensor, fake, source=source
    )
    proxy.node.meta["grapharg"] = GraphArg(
        source, given, pass_arg_as_tensor=False, fake_tensor=fake, example_strong_ref=given
    )
    return proxy


@dataclass(frozen=True, eq=False)
class _CallSource(Source):
    """Where the call comes from: it is made just before the graph runs."""

    plan_name: str
    plan: Plan

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: codegen.load_import_from(emission.__name__, "begin"))
        codegen.append_output(codegen.create_load_global(self.plan_name, add=True))
        for source in self.plan.sources:
            codegen(source)
        codegen.extend_output(create_call_function(1 + len(self.plan.sources), False))

    @property
    def guard_source(self) -> GuardSource:
        return GuardSource.GLOBAL

    @property
    def _name_template(self) -> str:
        return f"G[{self.plan_name!r}]"


def _before(tx: Any, trace: _Trace, gathered: Gathered) -> tuple[Finish, ...] | None:
    """Return what a failing check has to do; ``None`` to have the call made in plain Python."""
    has_exits = bool(getattr(tx.output, "_bcmend_side_exits", ()))
    try:
        if not has_exits:
            done = [*losses.changes_in_place(tx, gathered), *losses.effects(tx, gathered)]
            return tuple(done)
    except CannotRunInside:
        pass
    _require_repeatable(tx, trace)
    return None


def _require_repeatable(tx: Any, trace: _Trace) -> None:
    """Once the graph is complete, defer all records if the call cannot be made again."""
    if trace.is_checked:
        return
    trace.is_checked = True
    output = tx.output
    if not output.root_tx.symbolic_locals.get(BUFFER):
        must_wait(output)

    def check(module: Any) -> None:
        if trace.writes or not failing_graphs.can_be_put_back(output):
            must_wait(output)

    output.register_finalizer_fns.append(check)
