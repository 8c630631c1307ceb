"""One program in eager execution, with stock `torch.compile` and mended, call by call.

Every run is in a forked process of its own, which nothing leaks out of. It makes six calls on one
state, on the two sides of the condition in turn.
"""

from __future__ import annotations

import gc
import itertools
import logging
import multiprocessing
import os
import pickle
import random
import re
import signal
import sys
import threading
import traceback
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final

import numpy
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import bcmend
from tests.equivalence import TOLERANCE, CountingBackend
from tests.freezing import Frozen, aliases, freeze, tensors_in
from tests.fuzz.oracles import is_broken_up_more, plain_text
from tests.matrix.programs import Case, module_of, source_of
from tests.matrix.surroundings import SURROUNDINGS
from tests.observation import Observation, captured, described, differences

_SECONDS: Final = 60.0
_SIDES: Final = (True, False, True, False, False, True)
_VARIED: Final = (3, 4)


@dataclass(frozen=True, slots=True)
class Run:
    """What was seen of all calls; `failed` says how a run ended that did not come to its end.

    `pieces` are the sizes of the graphs that each call ran, `breaks` why Dynamo broke graphs.
    """

    calls: tuple[Observation, ...] = ()
    graphs: int = 0
    pieces: tuple[tuple[int, ...], ...] = ()
    breaks: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    failed: str = ""

    @property
    def is_one_graph(self) -> bool:
        return not self.breaks and self.graphs > 0 and max(map(len, self.pieces)) <= 1


# --- one run -------------------------------------------------------------------------------------

Way = Callable[[Any], Callable[..., Any]]


def _eager(program: Any) -> Callable[..., Any]:
    return program  # type: ignore[no-any-return]


def run(
    case: Case, way: str, backend: str, source: str = "", sides: Sequence[bool] = _SIDES
) -> Run:
    """Make all calls of a case on `sides`; `way` is "eager", "stock" or "mended"."""
    counting = CountingBackend(backend)
    torch.manual_seed(11)
    random.seed(11)
    numpy.random.seed(11)
    found, ends = [], [0]
    with captured() as events:
        module = module_of(source or source_of(case))
        program, state, is_argument, look = module.make()
        called = program
        if way == "mended":
            bcmend.patch(program)
        if way != "eager":
            called = torch.compile(program, backend=counting)
        subject = _Subject(program, called, state, is_argument, look, module)
        counters.clear()
        for number in range(len(sides)):
            begun = len(events)
            seen = _one_call(subject, case, number, sides[number] == case.first)
            found.append(replace(seen, events=tuple(map(_plain_event, events[begun:]))))
            ends.append(len(counting.ran))
        sites = _sites(program) if way == "mended" else ()
    pieces = tuple(tuple(counting.ran[start:end]) for start, end in itertools.pairwise(ends))
    breaks = tuple(str(each).splitlines()[0][:120] for each in counters["graph_break"])
    return Run(tuple(found), counting.graphs, pieces, breaks, sites)


def _sites(program: Any) -> tuple[str, ...]:
    sites = bcmend.report(program).sites
    return tuple(f"{each.status} {each.refusal or each.lowering}" for each in sites)


@dataclass(frozen=True, slots=True)
class _Subject:
    """A program: itself, what is called of it, what it works on, and its module."""

    program: Any
    called: Callable[..., Any]
    state: Any
    is_argument: bool
    look: Callable[[], Any]
    module: ModuleType


@dataclass(slots=True)
class _Call:
    """A call that has been made."""

    result: Any = None
    error: BaseException | None = None
    inner_look: Any = None


def inputs_of(case: Case, number: int, taken: bool) -> tuple[Tensor, Tensor]:
    varied = case.variation == "shape" and number in _VARIED
    items = torch.arange(3 if varied else 2, dtype=torch.float32, device="cpu")
    x, p = items + 1 + 0.5 * number, items * 0.5 + 1
    p = p if taken else -p
    if case.training:
        x.requires_grad_()
    return x, p


def _one_call(subject: _Subject, case: Case, number: int, taken: bool) -> Observation:
    x, p = inputs_of(case, number, taken)
    given = (x, p, subject.state) if subject.is_argument else (x, p)
    varied = number in _VARIED
    if case.variation == "eval":
        for each in _modules(subject):
            each.train(not varied)
    without = torch.no_grad() if varied and case.variation == "no_grad" else nullcontext()
    made = _Call()
    with without:
        if case.observer == "thread":
            thread = threading.Thread(target=_make, args=(made, subject, given, case))
            thread.start()
            thread.join()
        else:
            _make(made, subject, given, case)
    result = made.result
    if case.observer == "backward" and result is not None and result[0].requires_grad:
        try:
            weights = torch.arange(result[0].numel(), dtype=result[0].dtype, device="cpu") + 1
            result[0].backward(weights.view_as(result[0]))
        except Exception as error:
            made.error = error
    return _seen(made, subject, x, p)


def _modules(subject: _Subject) -> list[nn.Module]:
    found = [each for each in vars(subject.state).values() if isinstance(each, nn.Module)]
    return found + [subject.program] * isinstance(subject.program, nn.Module)


def _make(made: _Call, subject: _Subject, given: tuple[Any, ...], case: Case) -> None:
    try:
        made.result = SURROUNDINGS[case.around](subject.called, given)
    except Exception as error:
        made.error = error
    if case.observer == "thread":
        made.inner_look = freeze((_looked(subject), torch.is_grad_enabled()))


def _looked(subject: _Subject) -> Any:
    try:
        return subject.look()
    except Exception as error:
        return type(error).__name__


def _seen(made: _Call, subject: _Subject, x: Tensor, p: Tensor) -> Observation:
    gc.collect()
    roots = {"result": made.result, "x": x, "p": p, "s": subject.state}
    names = {
        name: value
        for name, value in vars(subject.module).items()
        if name.isidentifier() and name[:2] != "__" and not isinstance(value, ModuleType)
    }
    settings, rng = _settings(), _random_state()
    frozen = freeze(
        {
            "result": made.result,
            "look": _looked(subject),
            "inner look": made.inner_look and _text(made.inner_look),
            "settings": settings,
            "x": x,
            "p": p,
            "s": subject.state,
            "globals": names,
        }
    ).parts
    (_, result), *state = (frozen or {}).items()
    tensors = [*tensors_in({**roots, "globals": names})]
    gradients = {
        name: None if each.grad is None else each.grad.detach().clone()
        for name, each in tensors
        if each.is_leaf
    }
    raised = None if made.error is None else described(made.error)
    return Observation(
        result=_plain(result),
        raised=raised and _plain(raised),
        gradients=gradients,
        state=_plain(Frozen("dict", parts=dict(state))),
        aliases=aliases(roots),
        events=(),
        random_state=freeze(rng),
    )


def _plain(value: Frozen) -> Frozen:
    """Return a copy without addresses, which a process can send."""
    parts = value.parts
    if parts is not None:
        parts = {plain_text(name): _plain(each) for name, each in parts.items()}
    data = None if value.data is None else value.data.as_subclass(Tensor)
    return replace(value, text=plain_text(str(value.text)), data=data, parts=parts)


def _text(value: Frozen) -> str:
    parts = {} if value.parts is None else {k: _text(each) for k, each in value.parts.items()}
    data = "" if value.data is None else str(value.data.tolist())
    return f"{value.kind} {value.text} {data} {parts}"


def _random_state() -> Any:
    numbers = numpy.random.get_state()
    of_python = zlib.crc32(repr(random.getstate()).encode())
    return torch.get_rng_state(), of_python, zlib.crc32(numbers[1].tobytes()), numbers[2]


def _plain_event(event: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(plain_text(each) if isinstance(each, str) else each for each in event)


# --- settings of torch and of the process -------------------------------------------------------

_PLAIN: Final = (bool, int, float, str, torch.dtype, torch.device, type(None))


def _readers() -> dict[str, Callable[[], Any]]:
    """Return all functions of torch that say how something is set, by their names."""
    found: dict[str, Callable[[], Any]] = {}
    for name in dir(torch):
        if re.match(r"(get|is|are)_\w+", name) and callable(getattr(torch, name)):
            try:
                value = getattr(torch, name)()
            except Exception:  # it needs an argument, or a device
                continue
            if isinstance(value, _PLAIN):
                found[name] = getattr(torch, name)
    for place in ("cudnn", "mkldnn", "opt_einsum", "cuda.matmul", "nnpack", "mps"):
        settings: Any = torch.backends
        for part in place.split("."):
            settings = getattr(settings, part)
        for name in dir(settings):
            if type(getattr(settings, name, None)) in (bool, str):
                found[f"{place}.{name}"] = lambda s=settings, n=name: getattr(s, n)
    for name in ("math", "flash", "mem_efficient"):
        found[f"{name}_sdp"] = getattr(torch.backends.cuda, f"{name}_sdp_enabled")
    return found


_READERS: dict[str, Callable[[], Any]] = {}


def _settings() -> dict[str, Any]:
    filters = repr(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_torch = {name: repr(read()) for name, read in _READERS.items()}
    return {
        **of_torch,
        "warnings": filters,
        "logging": (logging.root.level, logging.root.manager.disable),
        "gc": gc.isenabled(),
        "recursion": sys.getrecursionlimit(),
        "paths": len(sys.path),
        "environment": sorted(os.environ),
        "deterministic fill": torch.utils.deterministic.fill_uninitialized_memory,
    }


# --- processes -----------------------------------------------------------------------------------


def prepare(backend: str) -> None:
    """Import and warm all that runs need, before any is forked."""
    os.environ.setdefault("BCMEND_STRICT", "1")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    with captured():
        _READERS.update(_readers())
        for way in ("eager", "stock", "mended"):
            run(Case("attribute: store", "if_else", "behind the call"), way, backend)
            torch._dynamo.reset()
            bcmend.unpatch()
    gc.collect()
    gc.freeze()


def isolated(work: Callable[[], Any], seconds: float = _SECONDS) -> Any:
    """Return what `work` returns in a forked process; a text that says how it ended, otherwise."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = os.fork()
    if process == 0:
        _in_child(work, writer)
    writer.close()
    try:
        if not reader.poll(seconds):
            os.kill(process, signal.SIGKILL)
            return f"more than {seconds:.0f} seconds"
        return pickle.loads(reader.recv_bytes())
    except EOFError:
        return "the process has died"
    finally:
        reader.close()
        os.waitpid(process, 0)


def _in_child(work: Callable[[], Any], writer: Any) -> None:
    try:
        try:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            # A build for CUDA starts threads for its backwards, each of which would make the pool
            # of threads anew that a fork has lost, and two at once abort the process.
            torch.set_num_threads(1)
            found = pickle.dumps(work())
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename}:{place.lineno}"
            found = pickle.dumps(f"{type(error).__name__}: {str(error)[:200]} at {where}")
        writer.send_bytes(found)
        writer.close()
    finally:
        os._exit(0)


def isolated_run(case: Case, way: str, backend: str, *more: Any) -> Run:
    """Return the run of a case, as `run` does, in a process of its own."""
    found = isolated(lambda: run(case, way, backend, *more))
    return found if isinstance(found, Run) else Run(failed=str(found))


# --- the verdict ---------------------------------------------------------------------------------

ONE_GRAPH: Final = "one graph"
BROKEN: Final = "broken"
AS_STOCK: Final = "as stock"
WORSE: Final = "more graphs"
DIFFERS: Final = "differs"
LEFT_OUT: Final = "left out"
STATUSES: Final = (ONE_GRAPH, BROKEN, AS_STOCK, WORSE, DIFFERS, LEFT_OUT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case: one graph, broken but equal, different only as stock differs, in more
    pieces than stock, different, or left out since eager execution gives no reference."""

    status: str
    mended: str = ""
    stock: str = ""
    graphs: int = 0
    stock_graphs: int = 0
    sites: tuple[str, ...] = field(default_factory=tuple)


def first_difference(one: Run, other: Run, backend: str) -> tuple[float, str]:
    """Return the number of the first call that differs, and how; infinity if none does."""
    if other.failed:
        return -1, other.failed
    tolerance = TOLERANCE if backend == "inductor" else 0.0
    for number, (left, right) in enumerate(zip(one.calls, other.calls, strict=True)):
        for each in differences(
            left,
            right,
            tolerance=tolerance,
            may_copy=True,
            zero_gradients=True,
            any_random_state=backend == "inductor",
        ):
            return number, f"call {number}: {each[:400]}"
    return float("inf"), ""


def judge(case: Case, backend: str) -> Verdict:
    """Compare a case in eager execution and mended; with stock where it is not one graph."""
    eager = isolated_run(case, "eager", backend)
    if eager.failed:
        return Verdict(LEFT_OUT, eager.failed)
    mended = isolated_run(case, "mended", backend)
    at, found = first_difference(eager, mended, backend)
    if not found and mended.is_one_graph:
        return Verdict(ONE_GRAPH, graphs=mended.graphs, sites=mended.sites)
    if found:
        again, changing = first_difference(eager, isolated_run(case, "eager", backend), backend)
        if changing and again <= at:
            return Verdict(LEFT_OUT, f"it gives something else each time: {changing}")
    stock = isolated_run(case, "stock", backend)
    its_place, its_difference = first_difference(eager, stock, backend)
    status = BROKEN
    if found:
        status = AS_STOCK if its_place <= at else DIFFERS
    elif not stock.failed and is_broken_up_more(mended, stock):
        status = WORSE
    return Verdict(status, found, its_difference, mended.graphs, stock.graphs, mended.sites)
