"""How long the search for lowerings may take in one call of a program.

A branch, with all that is inside its arms, may have no lowering; the more is inside, the longer it
takes to find that out, in one trace (arms double, a loop is traced turn by turn) and in one trace
after the other. What is counted are the seconds of this thread's processor in branches that end
without a lowering. A first path through the arms is what torch has to trace anyway; the limit grows
with it. Where the limit is reached the branches being mended are withdrawn, and the next limit of
the same call is a fourth of it, so that all of them together end as well.
"""

from __future__ import annotations

import threading
import time
from types import CodeType
from typing import Final

from bcmend.bytecode.names_used import origin_of

#: Seconds for any call. In ``corpus/models`` and ``corpus/patterns`` the longest branch takes 1.6.
#: At ``nesting_limits.ARMS`` small arms it is 5.
SECONDS: Final = 6.0

#: How often the first path may be gone through in addition.
PATHS: Final = 3.0


class _Spent(threading.local):
    """What this thread has spent in its outermost call.

    Attributes:
        seconds: in branches that ended without a lowering.
        path: the longest first path.
        limits: how many limits were reached.
        is_in_call: whether there is such a call.
        place: where the code stands that a trace outside of any began in.
    """

    seconds: float = 0.0
    path: float = 0.0
    limits: int = 0
    is_in_call: bool = False
    place: object = None


_SPENT: Final = _Spent()


def begin_call() -> None:
    """Forget what the last outermost call of this thread has spent."""
    _SPENT.seconds, _SPENT.path, _SPENT.limits, _SPENT.is_in_call = 0.0, 0.0, 0, True


def end_call() -> None:
    """End the outermost call of this thread."""
    _SPENT.is_in_call = False


def begin_trace(code: CodeType) -> None:
    """Forget what was spent on other code, where ``code`` is traced outside of any call."""
    if not _SPENT.is_in_call and _SPENT.place != origin_of(code):
        begin_call()
        end_call()
        _SPENT.place = origin_of(code)


def now() -> float:
    """Return the seconds of this thread's processor."""
    return time.thread_time()


def note_path(seconds: float) -> None:
    """Note how long a first path through the arms of a branch took."""
    _SPENT.path = max(_SPENT.path, seconds)


def spend(seconds: float) -> None:
    """Note that a branch ended without a lowering after so long."""
    _SPENT.seconds += seconds


def limit() -> float:
    """Return how many seconds may be spent now: at least one."""
    return float(max(1.0, (SECONDS + PATHS * _SPENT.path) / 4**_SPENT.limits))


def is_exceeded(seconds: float) -> bool:
    """Return whether a branch that is being traced for so long has exceeded the limit."""
    return _SPENT.seconds + seconds > limit()


def begin_anew() -> None:
    """Note that a limit was reached and what was at fault withdrawn: the next one counts anew."""
    _SPENT.seconds = 0.0
    _SPENT.limits += 1
