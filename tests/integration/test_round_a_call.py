"""What stands round a call: exceptions that no operation of the graph has raised.

Each goes to the caller as it came, at once, and nothing runs twice.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.registry import lookup_backend
from torch._inductor.exc import InductorError
from torch.utils._python_dispatch import TorchDispatchMode

import bcmend

BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]

#: Every run of a program in plain Python, and every run of its graph whose effects are replayed.
RUNS: list[str] = []


@pytest.fixture(autouse=True)
def _begun_anew() -> Iterator[None]:
    torch._dynamo.reset()
    RUNS.clear()
    yield
    bcmend.unpatch()


def _branch(x: Tensor, w: Tensor) -> Tensor:
    RUNS.append("branch")
    if x.sum() > 0:
        return (x * w).sin().sum()
    return (x * w).exp().sum()


def _output(x: Tensor, w: Tensor) -> Tensor:
    RUNS.append("output")
    y = (x * w).sin()
    print("sine", y.sum().item())
    return y.exp().sum()


def _check(x: Tensor, w: Tensor) -> Tensor:
    RUNS.append("check")
    y = (x * w).sin()
    if y.isnan().any():
        raise ValueError("not a number")
    return y.exp().sum()


def _check_and_change(x: Tensor, w: Tensor) -> Tensor:
    RUNS.append("check_and_change")
    y = (x + w).sin()
    if y.isnan().any():
        raise ValueError("not a number")
    x.add_(1)
    return y.exp().sum()


PROGRAMS = [_branch, _output, _check, _check_and_change]


def _given() -> tuple[Tensor, Tensor]:
    return torch.ones(3), torch.ones(3, requires_grad=True)


class Limit(RuntimeError):
    """An exception of the program's."""


def _compiled(program: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    compiled(*_given())
    RUNS.clear()
    return compiled


# Exceptions that a back end lets through


#: Those that are no operation's, by their class or by what they say.
FOREIGN = [
    torch.OutOfMemoryError("out of memory"),
    torch.AcceleratorError("device-side assert"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    MemoryError(),
    KeyboardInterrupt(),
    SystemExit(2),
    asyncio.CancelledError(),
    InductorError(ValueError("no kernel"), None),
    TimeoutError("too slow"),
    Limit("too often"),
    RuntimeError("of the back end"),
    StopIteration(),
]


def _failing(name: str, error: BaseException, runs: list[str]) -> Callable[..., Any]:
    """Return a back end whose graph raises ``error`` when it has run a second time."""

    def compile_graph(module: Any, examples: Any) -> Callable[..., Any]:
        graph = lookup_backend(name)(module, examples)

        def run(*inputs: Any) -> Any:
            runs.append("graph")
            result = graph(*inputs)
            if len(runs) > 1:
                raise error
            return result

        return run

    return compile_graph


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("error", FOREIGN, ids=lambda each: f"{type(each).__name__}{each}"[:40])
def test_an_exception_of_a_back_end_ends_the_call(error: BaseException, backend: str) -> None:
    for program in PROGRAMS:
        torch._dynamo.reset()
        runs: list[str] = []
        compiled = _compiled(program, _failing(backend, error, runs))
        x, w = _given()
        with pytest.raises(type(error)) as caught:
            compiled(x, w)
        assert caught.value is error
        assert (runs, RUNS) == (["graph", "graph"], [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_that_an_operation_cannot_have_is_not_asked_for_again(backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        RUNS.append("allocation")
        if x.sum() > 0:
            x = x + 1
        return torch.ones(2**52) + x[0]

    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    with pytest.raises(RuntimeError, match="memory"):
        compiled(torch.ones(3))
    assert RUNS == []


# Exceptions of signals and of other threads


def _long(x: Tensor, w: Tensor) -> Tensor:
    RUNS.append("long")
    if x.sum() > 0:
        x = x + 1
    y = x[0] * torch.eye(300) * w[0]
    for _ in range(60):
        y = (y @ y).sin()
    print("sum", y.sum().item())
    return y.sum()


@contextmanager
def _signal(error: Exception, seconds: float = 0.01) -> Iterator[None]:
    def handler(number: int, frame: Any) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    gc.disable()  # an exception in what is called at a collection is lost
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _raised_from_outside(error: Exception) -> Iterator[None]:
    target = ctypes.c_ulong(threading.get_ident())
    kind = ctypes.py_object(type(error))
    timer = threading.Timer(0.01, ctypes.pythonapi.PyThreadState_SetAsyncExc, (target, kind))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("around", [_signal, _raised_from_outside])
@pytest.mark.parametrize("kind", [TimeoutError, Limit, RuntimeError, ValueError])
def test_a_limit_of_time_ends_the_call(
    kind: type[Exception],
    around: Callable[[Exception], AbstractContextManager[None]],
    backend: str,
) -> None:
    compiled = _compiled(_long, backend)
    done = 0
    with pytest.raises(kind), around(kind("late")):
        for _ in range(1000):
            compiled(*_given())
            done += 1
    assert len(RUNS) in (done, done + 1)  # the effects of the last call may be replayed by then


@pytest.mark.parametrize("mend", ["on-demand", "ahead"])
@pytest.mark.parametrize("nodes", [20, 60, 100])
def test_a_limit_of_time_ends_a_call_that_is_being_traced(
    mend: Any, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, create_node = 0, torch.fx.Graph.create_node

    def create(*arguments: Any, **named: Any) -> Any:
        nonlocal created
        created += 1
        if created == nodes:  # in other places torch itself may lose the exception
            signal.raise_signal(signal.SIGALRM)
        return create_node(*arguments, **named)

    monkeypatch.setattr(torch.fx.Graph, "create_node", create)

    def many(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(40):
            if x.sum() > 0:
                x = x * w
            else:
                x = x.sin()
        print("sum", x.sum().item())
        return x

    mended = bcmend.patch(many, policy=bcmend.Policy(mend=mend))
    compiled = torch.compile(mended, backend="eager")
    with pytest.raises(Exception, match="late") as caught, _signal(TimeoutError("late"), 0):
        compiled(*_given())
    # Dynamo puts it into an error of its own, patched or not.
    assert isinstance(caught.value, (TimeoutError, torch._dynamo.exc.InternalTorchDynamoError))


# Exceptions of hooks and modes


def _raise(error: Exception, *_: Any) -> Any:
    raise error


class _Mode(TorchDispatchMode):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.sin.default:
            raise self.error
        return func(*args, **(kwargs or {}))


def _pack_hook(error: Exception) -> AbstractContextManager[Any]:
    return torch.autograd.graph.saved_tensors_hooks(partial(_raise, error), lambda each: each)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [Limit, RuntimeError, ValueError])
@pytest.mark.parametrize("around", [_pack_hook, _Mode])
def test_an_exception_of_a_hook_or_a_mode_ends_the_call(
    around: Any, kind: type[Exception], backend: str
) -> None:
    error = kind("full")
    for program in PROGRAMS:
        torch._dynamo.reset()
        compiled = _compiled(program, backend)
        with pytest.raises(kind, match="full") as caught, around(error):
            compiled(*_given())
        assert caught.value is error
        assert RUNS in ([], [program.__name__[1:]])  # Dynamo may skip a frame under a mode


def _zeroth_item(x: Tensor, w: Tensor) -> Tensor:
    RUNS.append("zeroth_item")
    if x.sum() > 0:
        x = x + 1
    return (x * w)[0].exp()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_of_a_hook_without_a_frame_ends_the_call(backend: str) -> None:
    compiled = _compiled(_zeroth_item, backend)
    hooks = torch.autograd.graph.saved_tensors_hooks(len, lambda each: each)  # no length: 0-d
    x, w = _given()
    with hooks, pytest.raises(TypeError, match="len"):
        compiled(x, w)
    assert RUNS == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_of_a_hook_of_a_gradient_ends_the_backward(backend: str) -> None:
    for program in PROGRAMS:
        torch._dynamo.reset()
        compiled = _compiled(program, backend)
        x, w = _given()
        w.register_hook(partial(_raise, error := ValueError("not finite")))
        with pytest.raises(ValueError, match="not finite") as caught:
            compiled(x, w).backward()
        assert caught.value is error
        assert RUNS == [program.__name__[1:]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_of_a_hook_of_a_module_is_that_of_eager_execution(backend: str) -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = x + 1
            print("sum", x.sum().item())
            return x

    def hook(module: Any, given: Any, *_: Any) -> None:
        RUNS.append("hook")
        if given[0].sum() > 5:
            raise TimeoutError("too large")

    for register in ("register_forward_pre_hook", "register_forward_hook"):
        torch._dynamo.reset()
        RUNS.clear()
        layer = Layer()
        getattr(layer, register)(hook)
        compiled = torch.compile(bcmend.patch(layer), backend=backend)
        compiled(torch.ones(3))
        with pytest.raises(TimeoutError, match="too large"):
            compiled(torch.full((3,), 3.0))
        assert RUNS == ["hook", "hook"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operation_that_fails_is_still_that_of_eager_execution(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Round it stand what leaves frames of its own: a default device, hooks that pack tensors."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        RUNS.append("program")
        print("first", x.sum().item())
        return (x * w)[(x > 5).long() * 7].exp()

    around: list[Callable[[], AbstractContextManager[Any]]] = [
        nullcontext,
        lambda: torch.device("cpu"),
        torch.no_grad,
        torch.autograd.graph.save_on_cpu,
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each),
    ]
    for context in around:
        torch._dynamo.reset()
        compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
        with context():
            compiled(*_given())
            capsys.readouterr()
            RUNS.clear()
            with pytest.raises(IndexError, match="index 7 is out of bounds"):
                compiled(torch.full((3,), 6.0), _given()[1])
        assert (RUNS, capsys.readouterr().out) == (["program"], "first 18.0\n")
