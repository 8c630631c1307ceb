"""Tables that do not keep their keys alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByIdentity(Generic[K, V]):
    """A table whose rows go with their keys, which are compared by identity.

    Equal code objects of different modules are not the same. A value must not refer to its key.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[weakref.ref[K], V]] = {}

    def get(self, key: K) -> V | None:
        """Return the value of ``key``; ``None`` if it has none."""
        row = self._rows.get(id(key))
        return None if row is None else row[1]

    def __contains__(self, key: K) -> bool:
        return id(key) in self._rows

    def setdefault(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of ``key``, made by ``make`` if it has none."""
        found = self._rows.get(id(key))
        if found is None:
            found = self._rows.setdefault(id(key), (self._reference(key), make()))
        return found[1]

    def put(self, key: K, value: V) -> None:
        self._rows[id(key)] = (self._reference(key), value)

    def pop(self, key: K) -> None:
        """Remove the row of ``key``, if there is one."""
        self._rows.pop(id(key), None)

    def clear(self) -> None:
        self._rows.clear()

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield the rows whose keys are alive."""
        for reference, value in list(self._rows.values()):
            if (key := reference()) is not None:
                yield key, value

    def __len__(self) -> int:
        return len(self._rows)

    def _reference(self, key: K) -> weakref.ref[K]:
        rows, number = self._rows, id(key)

        def gone(reference: weakref.ref[K]) -> None:
            if number in rows and rows[number][0] is reference:
                del rows[number]

        return weakref.ref(key, gone)
