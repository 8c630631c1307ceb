"""Guards: exceptions that are raised when the graph has run.

Reads a condition and what raises under it: an arm, or the function made of one. It becomes a side
exit; where the graph cannot be thrown away, it becomes a record with the condition as predicate, if
it is certain that eager execution raises and the exception leaves the code being traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch._dynamo.variables import TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime import (
    depth,
    failures,
    frames,
    inline,
    lower,
    moments,
    settings,
    side_exits,
    sinks,
    sites,
    sizes,
    streams,
    watches,
)
from bcmend.runtime.arms import Arm, ArmFailure, ArmTrace
from bcmend.runtime.merge import example_of
from bcmend.runtime.operations import storage_of
from bcmend.runtime.sinks import Draft
from bcmend.runtime.sites import LiveSite

__all__ = [
    "can_exit",
    "defer_raising_arm",
    "make_guard",
    "make_record",
    "make_side_exit",
    "predicate_of",
]


def defer_raising_arm(
    tx: Any,
    site: LiveSite,
    condition: VariableTracker,
    arms: tuple[Arm, Arm],
    traced: Sequence[ArmTrace | ArmFailure],
) -> VariableTracker | None:
    """Record the exception of the arm that raised and go on with the other arm."""
    failed = [trace for trace in traced if isinstance(trace, ArmFailure)]
    failure = next((each for each in failed if each.raised == failures.UNKNOWN), failed[0])
    if len(failed) == 2 and failure.raised != failures.UNKNOWN and depth.is_in_an_arm(tx):
        raise failures.BothRaise(*_together(tx, failed))
    if len(failed) == 2 or failure.raised == failures.UNKNOWN:
        # Where a branch inside the arm is the reason, its refusal says more.
        site.refuse(*(sites.recent_refusal() or ("arm-untraceable", failure.detail)))
        return None
    if failure.spoiled:
        site.withdraw("arm-effects", "the arm that raises changes the form of a tensor in place")
        raise watches.SiteChanged(restart_reason="bcmend: a tensor has another form")
    raising = 0 if isinstance(traced[0], ArmFailure) else 1
    predicate = predicate_of(tx, site, condition)
    if raising == 1:
        predicate = lower.negated(tx, predicate)
    arm = arms[raising]
    if failure.raised == failures.CERTAIN:
        if not make_guard(tx, site, arm.function, TupleVariable(list(arm.arguments)), predicate):
            return None
    elif can_exit(tx, site):
        make_side_exit(tx, site, predicate, is_only_way=True)
    else:
        site.refuse("arm-untraceable", failure.detail)
        return None
    sizes.note_fact(tx, condition, raising == 1)
    site.mended("guard", f"one side raises {failure.detail}")
    return arms[1 - raising].call(tx)


def _together(tx: Any, failed: Sequence[ArmFailure]) -> tuple[str, str]:
    """Return how certain it is that a branch raises of which both sides do, and what it raises."""
    is_certain = all(each.raised == failures.CERTAIN for each in failed)
    raised = failures.CERTAIN if is_certain and not handled_by_a_caller(tx) else failures.LIKELY
    return raised, " or ".join(dict.fromkeys(each.detail for each in failed))


def make_guard(
    tx: Any,
    site: LiveSite,
    action: VariableTracker,
    inputs: VariableTracker,
    predicate: TensorVariable,
) -> bool:
    """Have an exception raised if ``predicate`` holds; say whether that was possible.

    A side exit does it just as eager execution. Where there can be none, a record calls ``action``,
    which raises, when all else has been done: what the action finds in cells and in objects is what
    is there by then.
    """
    is_handled = handled_by_a_caller(tx)
    stays = inline.is_asked_for(site, raises=True) and inline.is_wanted(tx, site, raises=True)
    if can_exit(tx, site) and (is_handled or not stays):
        make_side_exit(tx, site, predicate, is_only_way=is_handled)
        return True
    if is_handled:
        site.refuse("handler-in-caller")
        return False
    return make_record(tx, site, action, inputs, predicate)


def can_exit(tx: Any, site: LiveSite) -> bool:
    """Whether the frame being traced can have a side exit for ``site``, as far as is known."""
    at_boundary = frames.ends_at_a_boundary(tx)
    return side_exits.are_possible(tx, at_boundary=at_boundary) and sites.may_have_exit(site)


def make_side_exit(
    tx: Any, site: LiveSite, predicate: TensorVariable, *, is_only_way: bool
) -> None:
    """Have the call made in plain Python if ``predicate`` holds."""
    nothing = TupleVariable([])
    draft = Draft(site, nothing, predicate, nothing, is_exit=True, is_only_way=is_only_way)
    sinks.append(tx, draft)


def predicate_of(tx: Any, site: LiveSite, condition: VariableTracker) -> TensorVariable:
    """Return the truth of ``condition`` as it is now, whatever is changed later."""
    predicate = lower.as_predicate(tx, condition)
    if not isinstance(condition, TensorVariable):
        return predicate
    if storage_of(example_of(predicate)) != storage_of(example_of(condition)):
        return predicate
    kept = sinks.snapshot(tx, site, predicate)
    assert isinstance(kept, TensorVariable)
    return kept


def make_record(
    tx: Any,
    site: LiveSite,
    action: VariableTracker,
    inputs: VariableTracker,
    predicate: TensorVariable | None = None,
) -> bool:
    """Have ``action`` called after the graph, if ``predicate`` holds; say whether it can be."""
    if not sinks.is_open(tx):
        site.refuse("export")
        return False
    if site.kind == "output":
        streams.watch(tx, site)
    raises = predicate is not None
    draft = Draft(site, action, predicate, inputs, raises=raises, is_statement=True)
    there, given = settings.as_of_now(tx, action, inputs)
    if sinks.add_inline(tx, replace(draft, action=there, inputs=given)):
        return True
    try:
        if predicate is None and sinks.shows_moments(tx, site):
            inline.note_deferred(tx)  # what is kept of the moment is of no use inside the graph
            action, inputs = _at_this_moment(tx, site, action, inputs)
        kept = sinks.snapshot(tx, site, inputs)
    except sinks.CannotSnapshot as reason:
        if inline.is_wanted(tx, site, raises=raises):
            inline.must_wait(tx.output)
        site.withdraw("cannot-snapshot", str(reason))
        raise watches.SiteChanged(restart_reason="bcmend: a value cannot be kept") from None
    action, kept = settings.as_of_now(tx, action, kept)
    sinks.append(tx, replace(draft, action=action, inputs=kept))
    return True


def _at_this_moment(
    tx: Any, site: LiveSite, action: VariableTracker, inputs: VariableTracker
) -> tuple[VariableTracker, VariableTracker]:
    """Have an output statement see objects as they are now."""
    assert isinstance(inputs, TupleVariable)
    objects = moments.of_objects(
        tx, site, inputs.items, lambda value: sinks.snapshot(tx, site, value)
    )
    texts = [moments.unformatted(value) for value in inputs.items]
    unchanged = all(one is other.realize() for one, other in zip(texts, inputs.items, strict=True))
    if objects is None and unchanged:
        return action, inputs
    show = sinks.function_of_records(tx, "show_as_of")
    return show, TupleVariable([action, objects or TupleVariable([]), *texts])


def handled_by_a_caller(tx: Any) -> bool:
    """Whether an exception raised here could be caught in the code being traced."""
    frame = tx
    while frame is not None:
        if any(_may_swallow(block) for block in frame.block_stack):
            return True
        if _caught_in(frame, frame.current_instruction.exn_tab_entry):
            return True
        frame = getattr(frame, "parent", None)
    return False


def _may_swallow(block: Any) -> bool:
    """Whether the exit of an open ``with`` is user code, which may swallow an exception."""
    return type(block.with_context).__name__ == "GenericContextWrappingVariable"


def _caught_in(frame: Any, entry: Any) -> bool:
    """Follow the handlers from ``entry`` outwards; those of a ``with`` pass exceptions on."""
    while entry is not None:
        start = frame.indexof[entry.target]
        window = frame.instructions[start : start + 12]
        handler = [one for one in window if one.opname != "NOP"]  # ranges may begin with one
        names = [one.opname for one in handler]
        if names[:2] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"] and "RERAISE" in names:
            entry = handler[names.index("RERAISE")].exn_tab_entry
        elif names[:3] == ["COPY", "POP_EXCEPT", "RERAISE"]:
            entry = handler[2].exn_tab_entry
        else:
            return True
    return False
