"""Objects that compiled code names by numbers, since it cannot have them as constants.

The table does not keep them alive: the compiled code has to.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class Numbered(Generic[T]):
    """Rows by their numbers, in the order in which they were added."""

    def __init__(self) -> None:
        self._rows: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def add(self, row: T) -> int:
        """Return the number of a new row."""
        number = next(self._numbers)
        self._rows[number] = row
        return number

    def __getitem__(self, number: int) -> T:
        return self._rows[number]

    def __len__(self) -> int:
        return len(self._rows)
