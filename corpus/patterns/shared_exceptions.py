"""Exceptions that programs of several topics raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


class WrongTotal(ValueError):
    """An exception with attributes."""

    def __init__(self, total: float, limit: int) -> None:
        super().__init__(f"total {total:.2f} is over {limit}")
        self.total, self.limit = total, limit


class OutOfRange(ArithmeticError):
    """An exception that takes keywords, has attributes and a text of its own."""

    def __init__(self, value: float, *, low: float, high: float) -> None:
        super().__init__(value, low, high)
        self.value, self.low, self.high = value, low, high

    def __str__(self) -> str:
        return f"{self.value:.2f} is not in [{self.low}, {self.high}]"


@dataclass(eq=False)
class BadBatch(Exception):
    """An exception that is a dataclass."""

    index: int
    reason: str


class Diverged(RuntimeError):
    """An exception with a counter on its class."""

    code = 7


class Rejected(ValueError):
    """Names the values that were rejected."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__(f"rejected {len(values)} values")
        self.values = values


class TooLong(ValueError):
    """An exception with a constructor and attributes of its own."""

    def __init__(self, length: int, limit: int = 2) -> None:
        super().__init__(f"{length} values, of at most {limit}")
        self.length = length


class Coded(Exception):
    """An exception with a text of its own."""

    def __init__(self, code: int, *details: Any) -> None:
        self.code = code
        Exception.__init__(self, code, *details)

    def __str__(self) -> str:
        return f"[{self.code}] {', '.join(map(str, self.args[1:]))}"


def reject(x: Tensor) -> Tensor:
    raise ValueError("rejected", x.shape[0])
