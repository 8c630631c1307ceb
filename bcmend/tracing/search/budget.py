"""How long the search for lowerings may take in one call of a program.

There are two limits, in steps: an instruction that Dynamo traces is one, an operation that it
writes into a graph some more. They are the same on each machine and beside any other work, so that
what is one graph here is one there. 50,000 take some four seconds of a processor of 2023.

- *Of branches.* A branch, with all that is inside its arms, may have no lowering; the more is
  inside, the longer it takes to find that out, in one trace (arms double, a loop is traced turn by
  turn) and in one trace after the other. What is counted are the steps in branches that end without
  a lowering. A first path through the arms is what torch has to trace anyway; the limit grows with
  it. Where it is reached the branches being mended are withdrawn, and the next limit of the same
  call is a fourth of it, so that all of them together end as well.
- *Of the search.* What is counted are the traces of all functions that were made in vain: each
  falsified an assumption, or stopped where a body was to be captured whole. The limit grows with
  the longest trace, of each branch in it some first paths, and with what its branches took that got
  a lowering: that is traced again in any case. From half of it on a branch that numbers
  decide has them in front of the graph, where they can be had there. Where it is reached nothing is
  mended any more in this call but what was: code is not rewritten further, and a branch that has no
  lowering yet is refused, as is one in a trace that spends a fourth of all that on branches.
  What needs few traces is still tried for as long again: numbers, and conditions of branches,
  in front of the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

from bcmend.bytecode.names_used import origin_of
from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.search import epochs
from bcmend.tracing.search.calls import CURRENT

#: Steps that an operation of a graph counts for: what it does to tensors is found out by doing it.
OPERATION: Final = 20

#: Steps for any call in branches without a lowering. In ``corpus/patterns`` all of a call take
#: 5,900.
BRANCHES: Final = 75_000

#: The least limit of branches.
LEAST: Final = 12_500

#: How often the first path may be gone through in addition.
PATHS: Final = 3

#: Steps for any call in traces made in vain. In ``corpus/patterns`` all of a call take 8,400.
SEARCH: Final = 50_000

#: How many traces may be made in vain in addition.
TRACES: Final = 4

#: How often the branches of a trace that got a lowering may be traced in vain in addition, and how
#: many steps of them count.
MENDED_TRACES: Final = 2
MENDED: Final = 75_000

#: So many traces in vain are much, however short they were.
MANY: Final = 6

#: What share of these the branches of a trace have to take before one is withdrawn at their limit,
#: and what share is much.
_SHARE: Final = 0.25
_HALF: Final = 0.5

#: How much longer is tried what needs no more than a few traces.
_GRACE: Final = 2


class _Spent(threading.local):
    """What this thread has spent in its outermost call.

    Attributes:
        unmended: in branches that ended without a lowering.
        path: the longest first path.
        limits: how many limits of branches were reached.
        place: where the code stands that a trace outside of any began in.
        began: when the latest trace began, or what of it was counted ended.
        beside: in branches of the latest trace, beside some first paths through each.
        lowered: what of that was in branches that got a lowering.
        plain: the longest trace, without what was beside.
        mended: the most that was in such branches in a trace.
        in_vain: in traces made in vain.
        traces: how many these were.
        is_over: whether the limit of the search was reached.
    """

    unmended: int = 0
    path: int = 0
    limits: int = 0
    place: object = None
    began: int = 0
    beside: int = 0
    lowered: int = 0
    plain: int = 0
    mended: int = 0
    in_vain: int = 0
    traces: int = 0
    is_over: bool = False


_SPENT: Final = _Spent()


def forget() -> None:
    """Forget what the outermost call of this thread has spent: another begins, or it ends."""
    _SPENT.unmended, _SPENT.path, _SPENT.limits = 0, 0, 0
    _SPENT.plain, _SPENT.lowered, _SPENT.mended = 0, 0, 0
    _SPENT.in_vain, _SPENT.traces, _SPENT.is_over = 0, 0, False


def begin_trace(code: CodeType) -> None:
    """Forget what was spent on other code, where ``code`` is traced outside of any call."""
    if CURRENT.buffer is None and _SPENT.place != origin_of(code):
        forget()
        _SPENT.place = origin_of(code)


class _Meter(threading.local):
    """What this thread has done.

    Attributes:
        steps: how many steps of traces.
        patience: how many of them count as one.
    """

    steps: int = 0
    patience: int = 1


_METER: Final = _Meter()


def now() -> int:
    """Return how many steps this thread has made."""
    return _METER.steps // _METER.patience


@contextmanager
def patience(factor: int) -> Iterator[None]:
    """Have all limits be so many times as long in a block."""
    before, _METER.patience = _METER.patience, factor
    try:
        yield
    finally:
        _METER.patience = before


@hooks.around(compat.InstructionTranslatorBase, methods.STEP, "count instructions", gate=None)
def _step(step: Any, *arguments: Any) -> Any:
    _METER.steps += 1
    return step(*arguments)


@hooks.around(compat.SubgraphTracer, methods.CREATE_NODE, "count operations", gate=None)
def _create_node(create: Any, *arguments: Any, **named: Any) -> Any:
    _METER.steps += OPERATION
    return create(*arguments, **named)


# Branches


def note_path(steps: int) -> None:
    """Note how long a first path through the arms of a branch took."""
    _SPENT.path = max(_SPENT.path, steps)


def spend(steps: int) -> None:
    """Note that a branch ended without a lowering after so long."""
    _SPENT.unmended += steps


def limit() -> int:
    """Return how many steps branches may spend now."""
    return max(LEAST, (BRANCHES + PATHS * _SPENT.path) >> 2 * _SPENT.limits)


def is_exceeded(steps: int, path: int = 0, *, is_unrolled: bool = False) -> bool:
    """Return whether a branch that is being traced for so long has exceeded a limit.

    The limit of the search holds for it if a loop is unrolled in it (``is_unrolled``), which may
    have no end, or if much was spent in vain before. ``path`` is how long its first path took.
    """
    if _SPENT.unmended + steps > limit():
        return True
    of_search, beside = search_limit(), _SPENT.beside + _beside_paths(steps, path)
    is_due = is_unrolled or _SPENT.in_vain > _HALF * of_search
    return is_due and beside > _SHARE * of_search and _SPENT.in_vain + beside > of_search


def spent(steps: int) -> int:
    """Return how many steps were spent, a branch that is being traced for so long included."""
    return max(_SPENT.unmended, _SPENT.in_vain) + steps


def begin_anew() -> None:
    """Note that a limit was reached and what was at fault withdrawn: the next one counts anew."""
    _SPENT.unmended = 0
    _SPENT.limits += 1


# The search as a whole


@contextmanager
def tracing(code: CodeType) -> Iterator[None]:
    """Make a trace that begins in ``code`` in a block."""
    epochs.end()
    begin_trace(code)
    began = _SPENT.began = now()
    _SPENT.beside = _SPENT.lowered = 0
    try:
        yield
    finally:
        _SPENT.plain = max(_SPENT.plain, now() - began - _SPENT.beside)
        _SPENT.mended = max(_SPENT.mended, min(_SPENT.lowered, MENDED))


def note_branch(steps: int, path: int, *, is_mended: bool = False) -> None:
    """Note how long an outermost branch and its first path took, whatever came of it."""
    beside = _beside_paths(steps, path)
    _SPENT.beside += beside
    if is_mended:
        _SPENT.lowered += beside


def _beside_paths(steps: int, path: int) -> int:
    return max(0, steps - PATHS * path)


def note_in_vain() -> None:
    """Note that the latest trace was made in vain: code is traced again."""
    end = now()
    _SPENT.in_vain += end - _SPENT.began
    _SPENT.traces += 1
    _SPENT.began = end


def search_limit() -> int:
    """Return how many steps may be spent in traces made in vain."""
    mended = max(_SPENT.mended, min(_SPENT.lowered, MENDED))
    return SEARCH + TRACES * _SPENT.plain + MENDED_TRACES * mended


def is_over() -> bool:
    """Return whether nothing more is to be mended in this call, from now on."""
    _SPENT.is_over = _SPENT.is_over or _SPENT.in_vain > search_limit()
    return _SPENT.is_over


def is_half_over() -> bool:
    """Return whether so much was tried that what can be decided in front of the graph is to be."""
    return _SPENT.in_vain > _HALF * search_limit()


def has_tried_much() -> bool:
    """Return whether what takes a trace for each of many places is not to be tried any more."""
    return _SPENT.traces >= MANY


def is_long_over() -> bool:
    """Return whether what needs few traces is not to be tried in this call either."""
    return is_over() and _SPENT.in_vain > _GRACE * search_limit()


def over() -> str:
    """Return in one line how long a search took that is over."""
    return f"{_SPENT.in_vain:,} steps of tracing were in vain before"
