"""Whether a call of an object, mended, is captured as one graph."""

from __future__ import annotations

from typing import Any

from bcmend.reports.steps import step
from bcmend.trials.apart import TriedCall, run_apart
from bcmend.trials.calls import Caller, compiled
from bcmend.trials.subject import subject_of


def raised_as_one_graph(obj: Any, *args: Any, **kwargs: Any) -> str:
    """Return what a call with ``fullgraph=True`` raises, in one line; empty where it returns.

    The call is made as for ``explain``, whose errors are raised too.
    """
    step("mended: capturing one graph")
    return run_apart(subject_of(obj, args, kwargs, backend="eager"), _raised)


def _raised(subject: TriedCall) -> str:
    caller = Caller(subject)
    caller.call(compiled(subject.obj, "eager", is_mended=True, fullgraph=True))
    return caller.raised
