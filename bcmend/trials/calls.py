"""Calls of an object in eager execution and compiled: graphs, breaks, operators, seconds.

Reads a `TriedCall` in a process or on a copy that may be spoilt (`apart`); returns plain data.
"""

from __future__ import annotations

import copy
import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bcmend import api
from bcmend.dynamo import fx_graph
from bcmend.dynamo.breaks.noted_breaks import Break, NotedBreaks, noted_breaks
from bcmend.errors import TrialError
from bcmend.patching import compilations
from bcmend.policy import Policy
from bcmend.reports.site_report import Report
from bcmend.trials.apart import TriedCall
from bcmend.trials.gradients import drop_gradients, go_back
from bcmend.trials.subject import state_holder

_REPEATED: Final = 5  # later calls that are timed, of which the fastest counts
_ENOUGH: Final = 1.0  # seconds that they take at most, but for the first
_GRAPH: Final = "bcmend: graph"
_TEXT: Final = "bcmend: text of a tensor"
_BACKWARD: Final = "bcmend: backward"
_READ: Final = "aten::_local_scalar_dense"  # of ``item``, ``bool``, ``int`` and ``float``
_COMPILING: Final = "(dynamo_timed)"  # ends the names of what Dynamo does
#: Operators that compute nothing: a number is read out of a tensor, or it is given another name.
_COMPUTE_NOTHING: Final = frozenset(
    f"aten::{name}"
    for name in ("item", "is_nonzero", "_local_scalar_dense", "detach", "alias", "view_as")
)


@dataclass(frozen=True, slots=True)
class Counts:
    """What compiling an object has given.

    Attributes:
        graphs: how many a first call has compiled.
        operators: how many calls are in these graphs.
        recompiled: how many graphs a second call of the same arguments has compiled.
        inside, outside: how many operators a later call runs in graphs, and elsewhere.
        runs: how many graphs a later call runs, each as often as it does.
        reads: how often a later call reads numbers out of tensors, in graphs or elsewhere.
        breaks: the graph breaks of the first call.
        raised: what a call has raised, in one line; empty where none did.
        report: of the mended object; None of the stock one.
        parts: how many calls each graph, from 1, has of each submodule, by its path; None is none.
    """

    graphs: int
    operators: int
    recompiled: int
    inside: int
    outside: int
    runs: int
    reads: int
    breaks: tuple[Break, ...]
    raised: str
    report: Report | None
    parts: Mapping[tuple[int, str | None], int]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a first call, and of the fastest of some later ones; what the last has raised."""

    first: float
    later: float
    raised: str


@dataclass(slots=True)
class _Graphs:
    """A back end that runs graphs as they are, and counts them, and how often they run."""

    breaks: NotedBreaks
    count: int = 0
    operators: int = 0
    runs: int = 0
    parts: Counter[tuple[int, str | None]] = field(default_factory=Counter)

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        self.count += 1
        calls = [each for each in fx_graph.nodes_in(graph) if each.op.startswith("call_")]
        self.operators += len(calls)
        self.parts.update((self.count, self.breaks.path_of(each)) for each in calls)
        run = graph.forward

        def ran(*arguments: Any) -> Any:
            self.runs += 1
            with record_function(_GRAPH):
                return run(*arguments)

        return ran


@dataclass(slots=True)
class Caller:
    """Calls something with arguments of their own for each call, where these can be copied.

    Where a call ``trains``, it goes back from what it returns, a module is in training mode, and
    its parameters have no gradients before each call.

    ``raised`` is what the last call has raised, and empty if it has returned.
    """

    subject: TriedCall
    trains: bool = False
    raised: str = field(default="", init=False)
    _turn: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        holder = state_holder(self.subject.obj)
        if self.trains and isinstance(holder, torch.nn.Module):
            holder.train()

    def call(self, called: Callable[..., Any]) -> float:
        """Make a call; return how many seconds it took."""
        return self.call_with(called, *self.arguments())

    def call_with(self, called: Callable[..., Any], arguments: Any, keywords: Any) -> float:
        """Make a call with what ``arguments`` has returned."""
        self.raised = ""
        if self.trains:
            drop_gradients(state_holder(self.subject.obj))
        _have_finished()
        begun = time.perf_counter()
        try:
            if self.trains:
                with torch.enable_grad():
                    result = called(*arguments, **keywords)
                    with record_function(_BACKWARD):
                        go_back(result)
            else:
                called(*arguments, **keywords)
        except Exception as error:  # of the program
            self.raised = one_line(error)
        _have_finished()
        return time.perf_counter() - begun

    def arguments(self) -> tuple[Any, Any]:
        """Return arguments for the next call."""
        turns = [(self.subject.arguments, self.subject.keywords), *self.subject.later]
        given = turns[self._turn % len(turns)]
        self._turn += 1
        try:
            return copy.deepcopy(given)
        except Exception:  # what cannot be copied, such as a tensor that was computed, is shared
            return given


def _have_finished() -> None:
    """Wait until an accelerator has done what it was given."""
    if _has_accelerator():
        torch.accelerator.synchronize()


@functools.cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


def one_line(error: Exception) -> str:
    """Return an exception as one line that is not long."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.200}"


def counted(subject: TriedCall, *, is_mended: bool, trains: bool = False) -> Counts:
    """Return what compiling the object gives, stock or mended."""
    caller = Caller(subject, trains)
    with noted_breaks(subject.obj) as breaks:
        compiling = _Graphs(breaks)
        called = compiled(subject.obj, compiling, is_mended=is_mended)
        caller.call(called)
    raised, graphs, operators = caller.raised, compiling.count, compiling.operators
    parts = dict(compiling.parts)
    caller.call(called)
    recompiled, before = compiling.count - graphs, compiling.runs
    inside, outside, reads = _operators_run(caller, called)
    runs = compiling.runs - before
    report = api.report(subject.obj) if is_mended else None
    return Counts(
        graphs,
        operators,
        recompiled,
        inside,
        outside,
        runs,
        reads,
        tuple(breaks),
        raised,
        report,
        parts,
    )


def reads_in_eager(caller: Caller) -> int:
    """Return how often a call reads numbers out of tensors in eager execution."""
    return _operators_run(caller, caller.subject.obj)[2]


def timed(
    subject: TriedCall, *, backend: str | None, is_mended: bool, trains: bool = False
) -> Times:
    """Return what calls take; in eager execution where ``backend`` is None."""
    caller, called = Caller(subject, trains), subject.obj
    if backend is not None:
        called = compiled(subject.obj, backend, is_mended=is_mended)
    first = caller.call(called)
    later = [caller.call(called)]
    while len(later) < _REPEATED and sum(later) < _ENOUGH:
        later.append(caller.call(called))
    return Times(first, min(later), caller.raised)


def compiled(
    obj: Any, backend: Any, *, is_mended: bool, policy: Policy | None = None, **options: Any
) -> Any:
    """Return what `torch.compile` makes of an object, nothing of which was compiled before."""
    torch.compiler.reset()
    try:
        if is_mended:
            return api.compile(obj, policy=policy, backend=backend, **options)
        api.unpatch()
        with compilations.without():
            return torch.compile(obj, backend=backend, **options)
    except RuntimeError as error:  # of a back end that torch does not know
        raise TrialError(str(error).strip().partition("\n")[0]) from error


def _operators_run(caller: Caller, called: Any) -> tuple[int, int, int]:
    """Return how many operators a call runs in graphs and elsewhere, and how often it reads.

    Operators that are parts of others are not counted, nor what makes texts of tensors, nor a
    backward pass. Numbers are read for texts, too.
    """
    given, lists = caller.arguments(), []

    def called_in_c(_: object, event: str, function: Any) -> None:
        is_of_a_tensor = isinstance(getattr(function, "__self__", None), torch.Tensor)
        if event == "c_call" and is_of_a_tensor and function.__name__ == "tolist":
            lists.append(function)

    before = sys.getprofile()
    with _marked_texts(), profile(activities=[ProfilerActivity.CPU]) as profiled:
        sys.setprofile(called_in_c)  # of ``tolist`` of a tensor in memory a profile has no operator
        try:
            caller.call_with(called, *given)
        finally:
            sys.setprofile(before)
    inside = outside = 0
    events = profiled.events() or ()
    for event in events:
        above = list(_above(event))
        if not _is_counted(event.name) or any(map(_is_apart, above)):
            continue
        inside, outside = inside + (_GRAPH in above), outside + (_GRAPH not in above)
    return inside, outside, len(lists) + sum(each.name == _READ for each in events)


def _is_counted(name: str) -> bool:
    is_backward = name.startswith("autograd::")  # on an accelerator in a thread of its own
    return "::" in name and name not in _COMPUTE_NOTHING and not is_backward


def _is_apart(above: str) -> bool:
    """Return whether what runs below is part of an operator, or none of the program's."""
    return "::" in above or above in (_TEXT, _BACKWARD) or above.endswith(_COMPILING)


def _above(event: Any) -> Iterator[str]:
    while (event := event.cpu_parent) is not None:
        yield event.name


@contextmanager
def _marked_texts() -> Iterator[None]:
    """Mark what making the text of a tensor runs."""
    kind: Any = torch.Tensor
    compiler: Any = torch.compiler
    written = kind.__repr__

    def marked(tensor: Any, **named: Any) -> Any:
        with record_function(_TEXT):
            return written(tensor, **named)

    kind.__repr__ = compiler.disable(marked)  # of torch's own function Dynamo knows that
    try:
        yield
    finally:
        kind.__repr__ = written
