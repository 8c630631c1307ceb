"""What one call of a program shows, as plain data that can be compared.

That is its result or exception, what the arguments and the program hold afterwards, which of them
are one object or share memory, the gradients, what was written, logged and warned, and the state of
the generators of random numbers.
"""

from __future__ import annotations

import collections
import io
import itertools
import logging
import random
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, Final

import numpy
import torch

from bcmend.liveness.loading import PLACE

Plain = Any  # nested tuples of texts, numbers and bytes

#: Programs log here.
LOGGER: Final = logging.getLogger("bcmend.liveness.programs")
_ATOMS: Final = (type(None), bool, int, float, complex, str, bytes, torch.dtype, range)
_NAMED: Final = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_OF_MODULES: Final = ("_parameters", "_buffers", "_modules")
_READ_AT_MOST: Final = 10  # items that an iterator has left


def outcome_of(program: Any, call: Callable[..., Any], arguments: Any, *, training: bool) -> Plain:
    """Make one call, of ``program`` or of what it was compiled to; return what it shows."""
    result = raised = None
    with _written() as events:
        try:
            result = call(*arguments)
            if training:
                _go_back(result)
        except Exception as error:  # of whatever kind: it is compared
            raised = error
    states = torch.get_rng_state().numpy().tobytes(), random.getstate(), *_of_numpy()
    roots = (result, raised, arguments, _state_of(program))
    return _Plainer().plain(roots), tuple(events), states


def _of_numpy() -> Iterator[Plain]:
    for each in numpy.random.get_state(legacy=True):
        yield each.tobytes() if isinstance(each, numpy.ndarray) else each


def _go_back(result: Any) -> None:
    tensors = [each for each in _leaves(result) if each.requires_grad]
    if tensors:
        torch.stack([each.sum() for each in tensors]).sum().backward()  # type: ignore[no-untyped-call]


def _leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _leaves(each)


def _state_of(program: Any) -> Any:
    """Return what a program can change: the closure of a function, the attributes of a module."""
    if not isinstance(program, types.FunctionType):
        return program
    cells = zip(program.__code__.co_freevars, program.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


# Output


class _Handler(logging.Handler):
    def __init__(self, events: list[Plain]) -> None:
        super().__init__(logging.NOTSET)
        self.events = events

    def emit(self, record: logging.LogRecord) -> None:
        shown = _entries(record.exc_info[1]) if record.exc_info else ()
        place = record.levelname, record.funcName, record.lineno
        self.events.append(("log", record.getMessage(), *place, shown))


class _Stream(io.TextIOBase):
    def __init__(self, events: list[Plain]) -> None:
        self.events = events

    def write(self, text: str) -> int:
        if self.events and self.events[-1][0] == "print":  # how it is cut is nobody's business
            text = self.events.pop()[1] + text
        self.events.append(("print", text))
        return len(text)


@contextmanager
def _written() -> Iterator[list[Plain]]:
    """Gather what is written in a block, in its order."""
    events: list[Plain] = []

    def warn(message: Any, kind: Any, file: str, line: int, *_: object) -> None:
        if file.startswith(PLACE):
            events.append(("warning", kind.__name__, str(message), line))

    handler, before = _Handler(events), LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    try:
        stream: Any = _Stream(events)
        with warnings.catch_warnings(), redirect_stdout(stream):
            warnings.simplefilter("always")
            warnings.showwarning = warn  # type: ignore[assignment]
            yield events
    finally:
        LOGGER.propagate = before
        LOGGER.removeHandler(handler)


# Values


class _Plainer:
    """Makes plain data of values; objects and memory that it meets again are numbers."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.kept: list[Any] = []  # else another object could get the same id

    def plain(self, value: Any) -> Plain:
        """Return a value as plain data."""
        if isinstance(value, _ATOMS):
            return type(value).__name__, repr(value)
        if isinstance(value, _NAMED):
            return "named", getattr(value, "__qualname__", value.__name__)
        if isinstance(value, tuple):
            return type(value).__name__, *map(self.plain, value)
        if id(value) in self.seen:
            return "again", self.seen[id(value)]
        if isinstance(value, Exception) and type(value).__module__.startswith("torch._"):
            return type(value).__name__, str(value)  # of Dynamo, and no outcome of the program
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        return type(value).__name__, *self._parts(value)

    def _parts(self, value: Any) -> Iterator[Plain]:
        if isinstance(value, torch.Tensor):
            yield from self._tensor(value)
        elif isinstance(value, (set, frozenset)):
            yield sorted(map(repr, map(self.plain, value)))
        elif isinstance(value, (list, collections.deque)):
            yield from map(self.plain, value)
        elif isinstance(value, dict):
            yield from ((self.plain(key), self.plain(each)) for key, each in value.items())
        elif isinstance(value, BaseException):
            yield from self._exception(value)
        elif isinstance(value, Iterator):
            yield from map(self.plain, itertools.islice(value, _READ_AT_MOST))
        for name, each in sorted(getattr(value, "__dict__", {}).items()):
            if name in _OF_MODULES or not name.startswith("_"):  # others are torch's and Dynamo's
                yield name, self.plain(each)

    def _tensor(self, value: torch.Tensor) -> Iterator[Plain]:
        yield str(value.dtype), tuple(value.shape), value.stride(), value.requires_grad
        yield value.detach().contiguous().numpy().tobytes()
        storage = value.untyped_storage().data_ptr()
        yield self.memory.setdefault(storage, len(self.memory)) if value.numel() else None
        if value.is_leaf:
            yield self.plain(value.grad)

    def _exception(self, error: BaseException) -> Iterator[Plain]:
        yield self.plain(error.args), str(error), _entries(error)
        yield self.plain(error.__cause__), self.plain(error.__context__)
        yield error.__suppress_context__


def _entries(error: BaseException | None) -> Plain:
    """Return the entries of a traceback that are of programs."""
    found = traceback.extract_tb(None if error is None else error.__traceback__)
    return tuple((each.name, each.line) for each in found if each.filename.startswith(PLACE))
