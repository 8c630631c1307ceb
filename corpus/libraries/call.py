"""A call of a library: what is called, and its arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Call", "NoCall"]


class NoCall(Exception):
    """Nothing was found with which a function or module can be called; says why in one line."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call: ``how`` tells whether it is an ``example`` of the documentation, or ``guessed``."""

    target: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    how: str

    def copied(self) -> Call:
        """Return the same call of a copy, with copies of all arguments."""
        parts = copy.deepcopy((self.target, self.arguments, self.named))
        return Call(*parts, how=self.how)

    def made(self) -> Any:
        """Make the call, and return what it returns."""
        return self.target(*self.arguments, **self.named)
