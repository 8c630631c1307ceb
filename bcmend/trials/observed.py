"""Calls of an object, each with all that it showed: result, exception, output, state, gradients."""

from __future__ import annotations

import hashlib
import logging
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy
import torch

import bcmend
from bcmend import api
from bcmend.patching.table import TABLE
from bcmend.policy import DEFAULT, Policy
from bcmend.reports.outcomes import SiteRecord
from bcmend.trials.apart import TriedCall, run_apart
from bcmend.trials.calls import Caller, compiled, one_line
from bcmend.trials.frozen import (
    FirstDifference,
    Freezer,
    Frozen,
    MetAgain,
    first_difference,
    first_other_identity,
)
from bcmend.trials.gradients import tensors_in
from bcmend.trials.muted import Stream, is_of_compilers, torch_writes_nothing
from bcmend.trials.named_globals import NamedGlobals, named_globals
from bcmend.trials.subject import state_holder

#: Which objects are one, and which tensors share memory.
IDENTITY: Final = "identity"
#: The aspects of a call, in the order in which they are compared.
ASPECTS: Final = (
    "exception",
    "result",
    "output",
    "arguments",
    "state",
    "globals",
    "gradients",
    "generators",
    IDENTITY,
)
#: Back ends that run operators as they are, so that all is as in eager execution to the bit.
EXACT: Final = ("eager", "aot_eager")
_COMPILER: Final = tuple(f"{Path(each.__file__ or '').parent}/" for each in (torch, bcmend))
_GRAD_FN: Final = re.compile(r"grad_fn=<\w+>")  # merged tensors have another


@dataclass(frozen=True, slots=True)
class Way:
    """How calls are made.

    Attributes:
        backend: what the object is compiled by; None for eager execution.
        is_mended: whether it is mended.
        runs: how many calls there are.
        trains: whether gradients are recorded, and go back through what a call returns.
        is_whole: whether one graph is asked for.
    """

    backend: str | None
    is_mended: bool
    runs: int
    trains: bool
    is_whole: bool = False

    @property
    def keeps_all(self) -> bool:
        """Whether values are kept to see how close they are."""
        return self.trains or self.backend not in (None, *EXACT)


Observed = dict[str, Frozen | MetAgain]


@dataclass(frozen=True, slots=True)
class Calls:
    """What some calls have shown.

    Attributes:
        shown: of each call.
        raised: what each has raised, in one line; empty where it has returned.
        sites: what was mended.
        codes: the identity of the code that each site is in, by its name; it is the same in copies
            of the process.
        policy: by which something was mended.
    """

    shown: tuple[Observed, ...]
    raised: tuple[str, ...]
    sites: tuple[SiteRecord, ...]
    codes: Mapping[str, int]
    policy: Policy


@dataclass(frozen=True, slots=True)
class Started:
    """An object that is ready to be called in a way: compiled, or in eager execution."""

    caller: Caller
    called: Callable[..., Any]
    way: Way
    outer: NamedGlobals

    def call(self, *, keeps_all: bool, goes_back: bool) -> tuple[Observed, str]:
        """Return what a call shows, and what it raises, in one line."""
        arguments, keywords = self.caller.arguments()
        given = {"arguments": arguments, "keywords": keywords}
        return _shown(
            partial(self.called, *arguments, **keywords),
            given,
            self.caller.subject.obj,
            trains=self.way.trains,
            goes_back=goes_back,
            keeps_all=keeps_all,
            outer=self.outer,
        )


def started(subject: TriedCall, way: Way, policy: Policy | None = None) -> Started:
    """Return an object, nothing of which was compiled before, ready to be called."""
    called: Any = subject.obj
    outer = named_globals(state_holder(called))
    if way.trains and isinstance(called, torch.nn.Module):
        called.train()
    if way.backend is None:
        api.unpatch()
        torch.compiler.reset()
    else:
        options: dict[str, Any] = {"fullgraph": True} if way.is_whole else {}
        if way.backend == "inductor":
            options["options"] = {"fallback_random": True}
        called = compiled(called, way.backend, is_mended=way.is_mended, policy=policy, **options)
    return Started(Caller(subject), called, way, outer)


def observed(subject: TriedCall, *, way: Way, keeps_all: bool) -> Calls:
    """Return what each of some calls shows, and the sites that were mended."""
    ready = started(subject, way)
    found = [ready.call(keeps_all=keeps_all, goes_back=way.trains) for _ in range(way.runs)]
    shown, raised = zip(*found, strict=True)
    sites = api.report(subject.obj).mended if way.is_mended else ()
    known = TABLE.code_of_sites()
    mended = {each.name: known[each.name] for each in sites if each.name in known}
    codes = {name: id(code) for name, (code, _) in mended.items()}
    policy = next((policy for _, policy in mended.values()), DEFAULT)
    return Calls(shown, raised, sites, codes, policy)


def observed_apart(subject: TriedCall, way: Way, *, keeps_all: bool, is_copied: bool) -> Calls:
    """Return what `observed` does, of calls that leave nothing behind."""
    attempt = partial(observed, way=way, keeps_all=keeps_all)
    return run_apart(subject, attempt, is_copied=is_copied)


def of_one_call(call: Callable[[], Any], arguments: tuple[Any, ...], *, trains: bool) -> Observed:
    """Return what a call with these arguments shows; ``trains`` says that it goes back as well."""
    none = NamedGlobals({})
    given = {"arguments": arguments}
    return _shown(call, given, None, trains=trains, goes_back=trains, keeps_all=True, outer=none)[0]


def _shown(
    call: Callable[[], Any],
    given: object,
    obj: Any,
    *,
    trains: bool,
    goes_back: bool,
    keeps_all: bool,
    outer: NamedGlobals,
) -> tuple[Observed, str]:
    """Return what a call shows, and what it raises, in one line."""
    result = error = None
    with _output() as events, ExitStack() as modes:
        if trains:
            modes.enter_context(torch.enable_grad())
        try:
            result = call()
            if goes_back:
                _go_back(result)
        except Exception as raised:  # of whatever kind: it is compared
            error = raised
    generators = _generators()
    freezer = Freezer(keeps_all=keeps_all)
    roots = {
        "exception": _described(error),
        "result": result,
        "output": events,
        "arguments": given,
        "state": _state_of(obj),
        "globals": outer.read(),
        "gradients": _gradients(obj, given),
        "generators": generators,
    }
    frozen: Observed = {aspect: freezer.frozen(each, aspect) for aspect, each in roots.items()}
    return {**frozen, IDENTITY: freezer.met_again()}, "" if error is None else one_line(error)


def first_difference_in(
    aspect: str, one: Observed, other: Observed, *, share: float, joins: bool
) -> FirstDifference | None:
    """Return where two calls differ first in an aspect; None where they are equal.

    Args:
        aspect: one of ``ASPECTS``.
        one: the reference.
        other: what is compared with it.
        share: by how much values of tensors may differ, as in ``first_difference``.
        joins: tensors that share memory in the reference may be one.
    """
    first, second = one[aspect], other[aspect]
    if isinstance(first, MetAgain) or isinstance(second, MetAgain):
        assert isinstance(first, MetAgain) and isinstance(second, MetAgain)
        return first_other_identity(first, second, joins=joins)
    return first_difference(first, second, aspect, share=share)


def _described(error: Exception | None) -> object:
    if error is None:
        return None
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    if type(error).__module__.startswith("torch._"):
        return {"type": kind, "text": str(error).strip().partition("\n")[0]}
    return {"type": kind, "args": error.args, "text": str(error)}


def _state_of(obj: Any) -> object:
    """Return what a call can change of an object: of a function its closure."""
    holder = state_holder(obj)
    if not isinstance(holder, FunctionType):
        return holder
    cells = zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True)
    held = {name: cell.cell_contents for name, cell in cells if not _is_empty(cell)}
    return {**held, **vars(holder)}


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def _go_back(result: object) -> None:
    """Make a backward pass in which every element has a weight of its own."""
    parts = []
    for tensor in tensors_in(result):
        if tensor.requires_grad:
            weights = torch.linspace(0.5, 1.5, tensor.numel(), device=tensor.device)
            weights = weights.to(tensor.real.dtype).reshape(tensor.shape)
            parts.append((tensor.real * weights).sum().float())
    if parts:
        torch.stack(parts).sum().backward()  # type: ignore[no-untyped-call]


def _gradients(obj: Any, given: object) -> dict[str, object]:
    found: dict[str, object] = {}
    if isinstance(obj, torch.nn.Module):
        found |= {f"{name}.grad": each.grad for name, each in obj.named_parameters()}
    tensors = [each for each in tensors_in(given) if each.is_leaf]
    return found | {f"argument {place}": each.grad for place, each in enumerate(tensors)}


def _generators() -> dict[str, object]:
    """Return the states of the generators of random numbers, which have thousands of numbers."""
    states = {
        "random": repr(random.getstate()).encode(),
        "numpy": repr(_state_of_numpy()).encode(),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for place, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda:{place}"] = state.numpy().tobytes()
    return {name: hashlib.blake2b(state).hexdigest() for name, state in states.items()}


def _state_of_numpy() -> list[object]:
    state: Any = numpy.random.get_state(legacy=True)
    return [each.tolist() if isinstance(each, numpy.ndarray) else each for each in state]


# Output


@dataclass(slots=True)
class _Events:
    """Output of all kinds in one order; neighbouring writes to one stream are one event."""

    found: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, kind: str, *texts: str) -> None:
        shown = [_GRAD_FN.sub("grad_fn=<...>", each) for each in texts]
        if kind in ("stdout", "stderr") and self.found and self.found[-1][0] == kind:
            shown[0] = self.found.pop()[1] + shown[0]
        self.found.append((kind, *shown))


class _Handler(logging.Handler):
    def __init__(self, events: _Events) -> None:
        super().__init__(logging.NOTSET)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        if not is_of_compilers(record.name):
            where = f"{record.funcName}:{record.lineno}"
            self._events.add("log", record.name, record.levelname, record.getMessage(), where)


@contextmanager
def _output() -> Iterator[list[tuple[str, ...]]]:
    """Gather what is written to the two streams, logged, and warned of in a block."""
    events = _Events()

    def warned(message: Any, kind: Any, file: str, line: int, *_: object) -> None:
        if not file.startswith(_COMPILER):
            events.add("warning", kind.__name__, str(message), f"{file}:{line}")

    handler = _Handler(events)
    loggers = [logging.getLogger(), *_loggers_that_keep_theirs()]
    streams: Any = [Stream(partial(events.add, name)) for name in ("stdout", "stderr")]
    with ExitStack() as undone, warnings.catch_warnings():
        undone.enter_context(torch_writes_nothing())
        for logger in loggers:
            logger.addHandler(handler)
            undone.callback(logger.removeHandler, handler)
        undone.enter_context(redirect_stdout(streams[0]))
        undone.enter_context(redirect_stderr(streams[1]))
        warnings.simplefilter("always")
        warnings.showwarning = warned  # type: ignore[assignment]
        yield events.found


def _loggers_that_keep_theirs() -> list[logging.Logger]:
    """Return the loggers whose records do not reach the root."""
    known = logging.getLogger().manager.loggerDict
    return [
        each
        for name, each in known.items()
        if isinstance(each, logging.Logger) and not each.propagate and not is_of_compilers(name)
    ]
