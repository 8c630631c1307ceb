"""Keep errors of bcmend's from the program, which then runs as without bcmend.

A site at which mending goes wrong half-way is withdrawn. Where that does not help, or the error has
nothing to do with one site, bcmend stays out of every trace that begins where this one has begun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any, Final

from bcmend.dynamo import compat, frames, hooks, trace_state
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.knowledge.interruptions import is_interruption
from bcmend.tracing.search import strict
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import Falsified, Rewritten, falsify, weaken
from bcmend.tracing.sites import body_states, nesting_limits, site_table, suspects
from bcmend.tracing.sites.refusal import HalfWritten, Refusal
from bcmend.tracing.speculation import arm_failures

_LOG: Final = logging.getLogger("bcmend")


@contextmanager
def withdrawn_if_it_fails(site: site_table.LiveSite) -> Iterator[None]:
    """Withdraw the site and restart the trace of the frame, where a block fails."""
    try:
        yield
    except (
        compat.RestartAnalysis,
        compat.SkipFrame,
        arm_failures.BothRaise,
    ):
        raise
    except Exception as error:
        if is_interruption(error):
            raise
        if not isinstance(error, (HalfWritten, Refusal)):
            strict.require_foreign(error)
            _report(error, f"the site {site.key} stays as it is")
        first = " ".join(str(error).strip().splitlines()[:1])
        is_told = isinstance(error, (HalfWritten, Refusal))  # in words for readers
        detail = first if is_told else f"{type(error).__name__}: {first}"
        falsify(site.unmendable("not-captured", detail), cause=error)


def stay_out(code: CodeType, error: BaseException) -> bool:
    """Leave the traces that begin in ``code`` alone from now on; return whether that is new."""
    strict.require_foreign(error)
    if frames.is_left_alone(code):
        return False
    _report(error, f"{code.co_qualname} is compiled as without bcmend")
    frames.leave_alone(code)
    weaken(_does_not_hold(code))
    return True


def _does_not_hold(code: CodeType) -> Finding:
    return Finding(Claim.SOUND, body_states.state_of(code))


def _report(error: BaseException, what: str) -> None:
    """Log an error of bcmend's, and what is done about it; an error of others is not logged."""
    if strict.is_own(error):
        text = "Internal error in bcmend: %s. Nothing else is lost: %s. Please report it."
        _LOG.warning(text, body_states.summary(error), what, exc_info=error)


_PASSED_ON: Final = (compat.GuardOnDataDependentSymNode, compat.FailOnRecompileLimitHit)
#: Whether a trace is inside the outermost frame, or step, that the hooks are in place for.
_IS_INSIDE: Final = Slot(bool, rolls_back=False)


@contextmanager
def _kept_in(output: compat.OutputGraph) -> Iterator[None]:
    """Restart a trace without bcmend, or without its sites, where a block fails.

    A boundary that waits for the failure does that itself.
    """
    if _IS_INSIDE.of(output):
        yield
        return
    code, is_asked_for = output.root_tx.f_code, bool(output.root_tx.one_graph)
    _IS_INSIDE.put(output, True)
    try:
        restarted = _restarted_if_mended(code, is_asked_for=is_asked_for)
        with _restarted_if_split(code), restarted, _ends_awaited():
            yield
    except compat.BackendCompilerFailed as error:
        if not _is_late(code):
            raise
        if found := suspects.withdraw_recent("not-captured", body_states.summary(error)):
            raise Falsified(*found) from error
        suspects.acquit()  # it fails without them, too
        raise
    except compat.InternalTorchDynamoError as error:
        if is_interruption(error):
            raise
        _restart_without(code, error)
    except (compat.TorchDynamoException, *_PASSED_ON):
        raise
    except Exception as error:
        if is_interruption(error):
            raise
        _restart_without(code, error)
    finally:
        _IS_INSIDE.put(output, False)


@contextmanager
def _ends_awaited() -> Iterator[None]:
    """Make an error of what ends an arm, where no arm has waited for it."""
    try:
        yield
    except (nesting_limits.Unreadable, nesting_limits.TooDeep) as end:
        if strict.IS_ON:
            raise
        raise RuntimeError(f"{type(end).__name__}: {end}") from end


@contextmanager
def _restarted_if_split(code: CodeType) -> Iterator[None]:
    """Restart a trace that no boundary waits for, where what it calls has been split."""
    try:
        yield
    except Rewritten as split:
        if not _is_late(code):
            raise
        raise Falsified(*split.findings) from split


@contextmanager
def _restarted_if_mended(code: CodeType, *, is_asked_for: bool) -> Iterator[None]:
    """Restart a trace that no boundary waits for, where code is mended at which it has stopped.

    ``is_asked_for`` says whether the trace may not break.
    """
    try:
        yield
    except (compat.Unsupported, compat.UserError, compat.GuardOnDataDependentSymNode) as error:
        is_awaited = is_asked_for and _is_late(code)
        if is_awaited and body_states.mend_without_boundary(code, error):
            raise Falsified from error
        raise


def _is_late(code: CodeType) -> bool:
    """Return whether a trace began in code that no boundary waits for."""
    return body_states.may_break(code)


def _restart_without(code: CodeType, error: Exception) -> None:
    if strict.IS_ON:
        strict.require_foreign(error)
        raise error
    if _is_late(code) and stay_out(code, error):
        # What was patched anew since is tried again, though code of others has the finding still.
        raise Falsified(_does_not_hold(code)) from error
    raise error


@trace_state.when_late
def _begin(tx: compat.Tracer) -> None:
    """Watch over the frames whose ``run`` the hooks have come too late for."""
    site_table.clear_recent()
    suspects.look_at(tx.output.root_tx.f_code)
    watched: list[Any] = list(frames.being_traced(tx))
    for frame in watched:
        frame.step = partial(_step, frame.output, frame.step)

    def leave() -> None:
        for frame in watched:
            vars(frame).pop("step", None)

    tx.output.add_cleanup_hook(leave)


def _step(output: compat.OutputGraph, step: Callable[[], bool]) -> bool:
    with _kept_in(output):
        return step()


_PURPOSE: Final = "errors inside bcmend"


@hooks.around(compat.InstructionTranslatorBase, methods.RUN, _PURPOSE, gate=hooks.first, place=1)
def _run(inner: Any, tx: compat.Tracer) -> Any:
    with _kept_in(tx.output):
        return inner(tx)


@hooks.around(compat.OutputGraph, methods.COMPILE_SUBGRAPH, _PURPOSE, gate=None, place=1)
def _compile_subgraph(
    inner: Any, output: compat.OutputGraph, *arguments: Any, **keywords: Any
) -> Any:
    with _kept_in(output):
        return inner(output, *arguments, **keywords)
