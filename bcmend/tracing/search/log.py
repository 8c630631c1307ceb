"""The log of the search: each trace, what it has falsified, and what came of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

from bcmend.bytecode.names_used import origin_of
from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.search import budget
from bcmend.tracing.search.assumptions import Finding, latest_number

_LOG: Final = logging.getLogger("bcmend")

#: How many traces are kept for a code object.
_KEPT: Final = 100


@dataclass(slots=True, eq=False)
class Trace:
    """One trace.

    Attributes:
        began: the qualified name of the function at which it began.
        file: the source file of the function in which it ended.
        line: the source line, or ``None`` where it is not known.
        function: the qualified name of the function.
        reason: what Dynamo or bcmend says of its end, in one line; empty where it gave a graph.
        position: of the expression in that line, as `co_positions` has it; ``None`` if not known.
        seconds: how long it took.
        findings: what is not assumed any more since.
        begins_after: the number of the last finding before it; ``None`` once it has ended.
    """

    began: str
    file: str
    line: int | None
    function: str
    reason: str = ""
    position: tuple[int, int, int, int] | None = None
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    begins_after: int | None = None


#: The traces, by the place of the code at which they began.
_TRACES: Final[dict[tuple[str, str, int], list[Trace]]] = {}


class _Latest(threading.local):
    """The trace that this thread makes, or has made last."""

    trace: Trace | None = None


_LATEST: Final = _Latest()


def was_known(finding: Finding) -> bool:
    """Return whether what falsifies an assumption was known when the present trace began."""
    known, trace = finding.known, _LATEST.trace
    if known is None or trace is None or trace.begins_after is None:
        return False
    return known.number <= trace.begins_after


def add_finding(finding: Finding) -> None:
    """Note what this thread's latest trace has led to."""
    if _LATEST.trace is not None:
        _LATEST.trace.findings.append(finding)


@contextmanager
def tracing(code: CodeType) -> Iterator[None]:
    """Note the trace of ``code`` that a block makes."""
    outer, trace = _LATEST.trace, _begun(code)
    _LATEST.trace, begin = trace, time.perf_counter()
    trace.begins_after = latest_number()
    try:
        yield
    except BaseException as error:
        _say_where(trace, error)
        raise
    finally:
        trace.seconds, trace.begins_after = time.perf_counter() - begin, None
        _keep(code, trace)
        if outer is not None and outer.begins_after is not None:
            _LATEST.trace = outer


@hooks.around(compat.convert_frame, methods.TRACE_FRAME, "note why code is traced again", gate=None)
def _trace_frame(trace: Any, code: CodeType, *others: Any, **named: Any) -> Any:
    with budget.tracing(code), tracing(code):
        return trace(code, *others, **named)


def note_error(code: CodeType, error: BaseException, seconds: float = 0.0) -> Trace:
    """Note that a trace that began at ``code`` has ended in an error, after ``seconds``."""
    _LATEST.trace = trace = _begun(code)
    trace.seconds = seconds
    _say_where(trace, error)
    _keep(code, trace)
    return trace


def _begun(code: CodeType) -> Trace:
    return Trace(code.co_qualname, code.co_filename, None, code.co_qualname)


def _say_where(trace: Trace, error: BaseException) -> None:
    stopped = frames.of_the_program_in(error)
    if stopped:
        place = stopped[-1].f_code
        trace.file, trace.line = place.co_filename, frames.line_of(stopped[-1])
        trace.position = frames.position_of(stopped[-1])
        trace.function = place.co_qualname
    trace.reason = reason_of(error)


def _keep(code: CodeType, trace: Trace) -> None:
    _tell(trace)
    if not frames.is_of_patched(code) and not trace.reason:
        return  # no report reads it
    traces = _TRACES.setdefault(origin_of(code), [])
    if len(traces) < _KEPT:
        traces.append(trace)


def _tell(trace: Trace) -> None:
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    end = f"stopped at {trace.file}:{trace.line}: {trace.reason}" if trace.reason else "captured"
    _LOG.debug("trace of %s (%.2f s): %s", trace.began, trace.seconds, end)
    for each in trace.findings:
        row, why = each.claim.value, f": {each.evidence}" * bool(each.evidence)
        _LOG.debug("  assumed of %s: %s; not so%s", each.subject.name, row.meaning, why)


def reason_of(error: BaseException) -> str:
    """Return what Dynamo or bcmend says of the end of a trace, in one line."""
    for name in ("restart_reason", "gb_type"):
        if found := getattr(error, name, None):
            return str(found).strip().partition("\n")[0]
    first_line, *_ = str(error).splitlines() or [""]
    return first_line or type(error).__name__


def traces(codes: Iterable[CodeType]) -> list[Trace]:
    """Return the traces that began at ``codes``, those of each in order."""
    places = dict.fromkeys(map(origin_of, codes))
    return [trace for place in places for trace in _TRACES.get(place) or ()]


def forget(codes: Iterable[CodeType]) -> None:
    """Remove the traces that began at ``codes``."""
    for code in codes:
        _TRACES.pop(origin_of(code), None)
