"""What stands round a call: contexts and functions that change no result of their own.

Each calls the program and returns what it returns. Where a transform takes tensors alone, the first
result goes through it, and the others do not.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

Given = tuple[Any, ...]
Surrounding = Callable[[Callable[..., Any], Given], Any]


def _in(enter: Callable[[], AbstractContextManager[Any]]) -> Surrounding:
    def call(program: Callable[..., Any], given: Given) -> Any:
        with enter():
            return program(*given)

    return call


def _checkpointed(program: Callable[..., Any], given: Given) -> Any:
    with set_checkpoint_early_stop(False):  # the rest of an early end is in docs/deviations.md
        return checkpoint(program, *given, use_reentrant=False)


def _checkpointed_twice(program: Callable[..., Any], given: Given) -> Any:
    with set_checkpoint_early_stop(False):
        inner = partial(checkpoint, program, use_reentrant=False)
        return checkpoint(inner, *given, use_reentrant=False)


class _DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _interrupted() -> Iterator[None]:
    """Have a handler called, again and again, that does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _global_hook() -> Iterator[None]:
    handle = register_module_forward_hook(lambda module, given, result: None)
    try:
        yield
    finally:
        handle.remove()


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return call(x).clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, gradients[0]


def _first_through(
    transform: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor],
) -> Surrounding:
    def call(program: Callable[..., Any], given: Given) -> Any:
        rest: list[Any] = []

        def first(x: Tensor) -> Tensor:
            result, *rest[:] = program(x, *given[1:])
            return result  # type: ignore[no-any-return]

        return transform(first, given[0]), *rest

    return call


def _derived(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.func.vjp(call, x)[0]  # type: ignore[no-any-return]


NOTHING: Final = "nothing"

SURROUNDINGS: Final[dict[str, Surrounding]] = {
    NOTHING: lambda program, given: program(*given),
    "checkpoint": _checkpointed,
    "nested checkpoints": _checkpointed_twice,
    "saved tensors hooks": _in(
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each)
    ),
    "save on CPU": _in(torch.autograd.graph.save_on_cpu),
    "dispatch mode": _in(_DispatchMode),
    "function mode": _in(_FunctionMode),
    "default device": _in(lambda: torch.device("cpu")),
    "signals": _in(_interrupted),
    "hook of all modules": _in(_global_hook),
    "anomaly mode": _in(lambda: torch.autograd.set_detect_anomaly(True)),
    "autocast": _in(lambda: torch.autocast("cpu", torch.bfloat16)),
    "inference mode": _in(torch.inference_mode),
    "autograd function": _first_through(lambda call, x: _Function.apply(call, x)),
    "torch.func.vjp": _first_through(_derived),
}
