"""Which sides the jumps take whose code asks (``bcmend.rewrite.forced_jumps``), as tensors.

The code that asks stays the same whatever it is told, so that one compilation serves for all sides.
What is neither a tensor nor a number, which may be out of one, decides for itself; so does a number
where a jump is met with tensors as well: that is the flag of a caller, and no data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy
import torch

#: More turns than a loop makes.
ENDLESS: Final = 1 << 40


class OutOfTime(BaseException):
    """Ends a call in eager execution that takes too long; no handler of a program catches it."""


def _made(value: Any) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor(value, device="cpu")


@dataclass(slots=True)
class Told:
    """What a jump is told.

    Attributes:
        keeps: whether its condition decides. Not asked where a loop is left.
        side: the truth that decides else.
        least: how often a loop goes on at least, whatever its condition says.
        most: how often it goes on at most; where none is left, how often a frame is told.
        numbers: whether numbers are told, and not only tensors.
    """

    keeps: torch.Tensor = field(default_factory=_made(True))
    side: torch.Tensor = field(default_factory=_made(False))
    least: torch.Tensor = field(default_factory=_made(0))
    most: torch.Tensor = field(default_factory=_made(ENDLESS))
    numbers: bool = True


@dataclass(frozen=True, slots=True)
class Met:
    """A jump that plain Python has come to.

    Attributes:
        key: by which it asks.
        truth: what has decided; None where it decides for itself.
        before: how often its frame had come to it, which is counted in loops.
        kind: "tensor", "number", or else the name of a class.
    """

    key: str
    truth: bool | None
    before: int
    kind: str


#: What each jump is told, by its key.
TOLD: Final[dict[str, Told]] = {}


@dataclass(slots=True)
class _Log:
    """What plain Python has met, in order, and until when it may."""

    met: list[Met] = field(default_factory=list)
    until: float = float("inf")


LOG: Final = _Log()


def forced(key: str, value: Any, turns: Any = None) -> Any:
    """Return what decides in place of ``value``."""
    told = TOLD[key]
    truth = _truth_of(value, told.numbers)
    if truth is None:
        return _unmet(key, value)
    keeps = told.keeps if turns is None else told.keeps | (turns >= told.most)
    return _met(key, torch.where(keeps, truth, told.side), value, turns)


def turned(key: str, value: Any, turns: Any, stays: bool) -> Any:
    """Return what decides in place of ``value``, that keeps a loop going if it is ``stays``."""
    told = TOLD[key]
    truth = _truth_of(value, told.numbers)
    if truth is None:
        return _unmet(key, value)
    goes_on, ends = turns < told.least, turns >= told.most
    on, off = (goes_on, ends) if stays else (ends, goes_on)
    return _met(key, (truth | on) & ~off, value, turns)


def begun() -> torch.Tensor:
    """Return how often a jump was come to before its frame has."""
    return torch.zeros((), dtype=torch.int64, device="cpu")


def later(turns: torch.Tensor) -> torch.Tensor:
    """Return how often it was once it has."""
    return turns + 1


def _truth_of(value: Any, takes_numbers: bool) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value.ne(0)
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return torch.as_tensor(value).ne(0)
    if takes_numbers and isinstance(value, int):
        return torch.scalar_tensor(int(value), dtype=torch.int64, device="cpu").ne(0)
    if takes_numbers and isinstance(value, float):
        return torch.scalar_tensor(value, dtype=torch.float64, device="cpu").ne(0)
    return None


def _met(key: str, truth: torch.Tensor, value: Any, turns: Any) -> torch.Tensor:
    if not torch.compiler.is_compiling():
        if time.monotonic() > LOG.until:
            raise OutOfTime
        if truth.numel() == 1:
            before = 0 if turns is None else int(turns)
            kind = "number" if isinstance(value, (int, float)) else "tensor"
            LOG.met.append(Met(key, bool(truth), before, kind))
    return truth


def _unmet(key: str, value: Any) -> Any:
    if not torch.compiler.is_compiling():
        LOG.met.append(Met(key, None, 0, type(value).__qualname__))
    return value


def _as_of_the_program(*functions: Any) -> None:
    """Have Dynamo trace functions, which it leaves alone in files of bcmend."""
    for each in functions:
        each.__code__ = each.__code__.replace(co_filename=__name__)


_as_of_the_program(forced, turned, begun, later, _truth_of, _met, _unmet)
