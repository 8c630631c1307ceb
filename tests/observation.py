"""One call of a program, and everything that can be seen of it.

Runs a callable under capture and produces an `Observation`: frozen copies of the result or the
exception, of all state that the call could have changed, of the gradients, of who shares memory
with whom, and the output in the order in which it came. `differences` lists where two observations
are not the same.
"""

from __future__ import annotations

import logging
import random
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final

import numpy
import torch
from torch import Tensor

import bcmend
from bcmend.trials.muted import Stream, is_of_compilers, torch_writes_nothing
from tests.differences_of_torch import CONDITIONS_RAISE_AT_THE_FIRST_LINE
from tests.freezing import Frozen, aliases, freeze, frozen_differences, tensors_in

_COMPILER: Final = (f"{Path(torch.__file__).parent}/", f"{Path(bcmend.__file__).parent}/", "<")
_OWN_FILES: Final = (__file__, str(Path(__file__).with_name("equivalence.py")))

Event = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """What one call showed, each aspect by itself.

    `result` is the frozen result, or `None` where the call raised; `raised` describes the
    exception. `state` is what the arguments, the exception, the program and the globals that it
    names hold afterwards. Result and state are frozen as one root, so that an object of both is a
    reference. `aliases` are the pairs of names under which one storage can be reached, `events`
    what was written, logged and warned.
    """

    result: Frozen
    raised: Frozen
    gradients: Mapping[str, Tensor | None]
    state: Frozen
    aliases: frozenset[tuple[str, str, str]]
    events: tuple[Event, ...]
    random_state: Frozen


@dataclass(slots=True)
class _Events:
    """Gathers output of all kinds in one order; neighbouring writes to one stream are one event."""

    found: list[Event] = field(default_factory=list)

    def write(self, stream: str, text: str) -> None:
        if self.found and self.found[-1][0] == stream:
            text = f"{self.found.pop()[1]}{text}"
        self.found.append((stream, text))


class _Handler(logging.Handler):
    def __init__(self, events: _Events) -> None:
        super().__init__(logging.NOTSET)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        if is_of_compilers(record.name):
            return
        where = (record.pathname, record.lineno, record.funcName)
        shown: tuple[str, ...] = ()
        if record.exc_info:
            shown = (repr(record.exc_info[1]), _traceback(record.exc_info))
        text = record.getMessage()
        self._events.found.append(("log", record.name, record.levelname, text, *where, *shown))


def _traceback(exc_info: Any) -> str:
    """Return what a handler writes of an exception: its traceback, and those of its causes."""
    return "".join(traceback.format_exception(*exc_info))


@contextmanager
def captured() -> Iterator[list[Event]]:
    """Capture what is written to the two streams, logged below the root logger, and warned."""
    events = _Events()

    def keep(message: Any, category: Any, filename: str, lineno: int, *_: object) -> None:
        if not _is_of_the_compiler(filename) and "Triggered internally" not in str(message):
            events.found.append(("warning", category.__name__, str(message), filename, lineno))

    root, handler = logging.getLogger(), _Handler(events)
    root.addHandler(handler)
    try:
        with (
            torch_writes_nothing(),
            warnings.catch_warnings(),
            redirect_stdout(Stream(partial(events.write, "stdout"))),  # type: ignore[type-var]
            redirect_stderr(Stream(partial(events.write, "stderr"))),  # type: ignore[type-var]
        ):
            warnings.simplefilter("always")
            warnings.showwarning = keep  # type: ignore[assignment]
            yield events.found
    finally:
        root.removeHandler(handler)


def _is_of_the_compiler(filename: str) -> bool:
    return filename.startswith(_COMPILER)


class Interruption(BaseException):
    """Ends a call from outside of the program, which has no part in it."""


def observe(
    call: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    program: object,
    *,
    training: bool,
    outer: Mapping[str, object] = MappingProxyType({}),
) -> Observation:
    """Call `call(*arguments, **keywords)` and keep all that it showed.

    Args:
        call: what is called: `program` itself, or what it was compiled to.
        arguments: positional arguments; gradients of the tensors among them are kept.
        keywords: keyword arguments, likewise.
        program: the function or module whose state is looked at afterwards.
        training: whether gradients are recorded, and a backward pass made through the result.
        outer: the globals that belong to the program, which it may bind anew.
    """
    result, error = None, None
    given = {"arguments": arguments, "keywords": dict(keywords)}
    _forget_gradients(program)
    with captured() as events, torch.set_grad_enabled(training):
        try:
            result = call(*arguments, **keywords)
        except Interruption:
            raise
        except BaseException as caught:
            if isinstance(caught, KeyboardInterrupt) and not caught.args:
                raise  # from the keyboard; one of the program has arguments
            error = caught
        random_state = freeze((_states_of_torch(), _state_of_random(), _state_of_numpy()))
    raised_by_program = None if error is None or _is_of_dynamo(error) else error
    held = {**given, "program": program, "exception": raised_by_program, "globals": {**outer}}
    # A backward pass adds gradients, and changes nothing else.
    frozen = freeze({"result": result, **held}).parts or {}
    (_, of_result), *of_state = frozen.items()
    state = Frozen("dict", parts=dict(of_state))
    shared = aliases({"result": result, **held})
    gradients = _gradients(result, given, program) if training else {}
    raised = None if error is None else described(error)
    return Observation(of_result, raised, gradients, state, shared, tuple(events), random_state)


def _forget_gradients(program: object) -> None:
    if isinstance(program, torch.nn.Module):
        program.zero_grad(set_to_none=True)


def _is_of_dynamo(error: BaseException) -> bool:
    return type(error).__module__.startswith("torch._dynamo")


def described(error: BaseException) -> Frozen:
    if _is_of_dynamo(error):
        return Frozen(type(error).__qualname__, text=str(error).strip().partition("\n")[0])
    return freeze(
        {
            "type": f"{type(error).__module__}.{type(error).__qualname__}",
            "args": error.args,
            "text": str(error),
            "attributes": {k: v for k, v in vars(error).items() if not k.startswith("_torch")},
            "cause": _related(error.__cause__),
            "context": _related(error.__context__),
            "hides its context": error.__suppress_context__,
            "where": _where(error),
        }
    )


def _related(error: BaseException | None) -> tuple[Any, ...] | None:
    """Describe the cause or the context of an exception, and what these have in turn."""
    if error is None:
        return None
    return (
        type(error).__qualname__,
        error.args,
        _last_frame_of_the_program(error.__traceback__),
        _related(error.__cause__),
        _related(error.__context__),
    )


def _where(error: BaseException) -> tuple[str, int | None] | None:
    place = _last_frame_of_the_program(error.__traceback__)
    if CONDITIONS_RAISE_AT_THE_FIRST_LINE and place and str(error).startswith("Boolean value of"):
        return place[0], None
    return place


def _last_frame_of_the_program(trace: TracebackType | None) -> tuple[str, int | None] | None:
    frames = traceback.extract_tb(trace)
    for frame in reversed(frames):
        if not _is_of_the_compiler(frame.filename) and frame.filename not in _OWN_FILES:
            return frame.filename, frame.lineno
    return None


def _gradients(
    result: object, given: Mapping[str, Any], program: object
) -> dict[str, Tensor | None]:
    """Make a backward pass in which every element has a weight of its own."""
    total = None
    for _, tensor in tensors_in(result):
        if tensor.requires_grad:
            weights = torch.linspace(
                0.5, 1.5, tensor.numel(), dtype=torch.float64, device=tensor.device
            )
            part = (tensor.double() * weights.reshape(tensor.shape)).sum().cpu()
            total = part if total is None else total + part
    if total is not None:
        total.backward()
    leaves = [(name, each) for name, each in tensors_in(given) if each.is_leaf]
    if isinstance(program, torch.nn.Module):
        leaves += program.named_parameters()
    return {
        name: None if each.grad is None else each.grad.detach().clone()
        for name, each in leaves
        if each.requires_grad
    }


def _states_of_torch() -> object:
    """Return the states of the generators of all devices that are in use."""
    if not torch.cuda.is_initialized():
        return torch.get_rng_state()
    return torch.get_rng_state(), *torch.cuda.get_rng_state_all()


def _state_of_random() -> object:
    """Return the state with its 625 numbers as one, which takes a thousandth of the time."""
    kind, numbers, of_gauss = random.getstate()
    return kind, hash(numbers), of_gauss


def _state_of_numpy() -> object:
    kind, keys, *rest = numpy.random.get_state()
    return kind, zlib.crc32(keys.tobytes()), *rest  # type: ignore[union-attr]


def differences(
    first: Observation,
    second: Observation,
    *,
    tolerance: float = 0.0,
    may_copy: bool = False,
    zero_gradients: bool = False,
    any_random_state: bool = False,
    may_join: bool = False,
) -> Iterator[str]:
    """Yield each place where `second` is not what `first` is.

    Args:
        first: the reference, from eager execution.
        second: what is compared with it.
        tolerance: by how much values of tensors may differ, absolutely and relatively.
        may_copy: whether tensors that share memory in `first` may be separate in `second`.
        zero_gradients: whether a gradient that `first` lacks may be all zeros in `second`, and a
            tensor through which none flows in `first` may require them.
        any_random_state: whether the state of the random number generators is left out.
        may_join: whether tensors that share memory in `first` may be one object in `second`.
    """
    for aspect in ("result", "raised", "state"):
        yield from frozen_differences(
            getattr(first, aspect),
            getattr(second, aspect),
            aspect,
            tolerance,
            may_require_grad=zero_gradients,
        )
    yield from _gradient_differences(first, second, tolerance, zero_gradients)
    joined = {(*pair, "same") for *pair, kind in first.aliases if may_join and kind == "shared"}
    parted = {(*pair, "shared") for *pair, _ in joined & second.aliases}
    for found in sorted(first.aliases ^ second.aliases):
        if found in second.aliases - joined:
            yield f"aliases: only the second has {found}"
        elif found in first.aliases - parted and not may_copy:
            yield f"aliases: only the first has {found}"
    if first.events != second.events:
        yield f"events: {first.events} and {second.events}"
    if not any_random_state:
        yield from frozen_differences(first.random_state, second.random_state, "random_state", 0.0)


def _gradient_differences(
    first: Observation, second: Observation, tolerance: float, zero_gradients: bool
) -> Iterator[str]:
    for name in {**first.gradients, **second.gradients}:
        one, other = first.gradients.get(name), second.gradients.get(name)
        if one is None and other is not None and zero_gradients and not other.any():
            continue
        yield from frozen_differences(freeze(one), freeze(other), f"gradient of {name}", tolerance)
