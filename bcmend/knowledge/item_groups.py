"""``itertools.groupby`` in Python, to be traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, Final

_NOTHING: Final = object()


class ItemGroups:
    """Iterator over the runs of items with equal keys: pairs of a key and an iterator of a run.

    As in CPython's own (``Modules/itertoolsmodule.c``) all go over the items once, so that a run
    ends for good where the next one is asked for, and a key is equal to itself.
    """

    def __init__(self, iterable: Iterable[Any], key: Callable[[Any], Any] | None = None) -> None:
        self._items = iter(iterable)
        self._key_of = key
        #: That of the latest run and of the latest item, and the item if nobody has had it yet.
        self._run: Any = _NOTHING
        self._key: Any = _NOTHING
        self._item: Any = _NOTHING
        self._current: _Run | None = None

    def __iter__(self) -> ItemGroups:
        return self

    def __next__(self) -> tuple[Any, Iterator[Any]]:
        self._current = None
        while self._key is _NOTHING or (self._run is not _NOTHING and self.has_come_to(self._run)):
            self.advance()
        self._run = self._key
        self._current = _Run(self, self._key)
        return self._key, self._current

    def advance(self) -> None:
        """Go on to the next item."""
        item = next(self._items)
        key = item if self._key_of is None else self._key_of(item)
        self._item, self._key = item, key

    def has_come_to(self, key: Any) -> bool:
        """Return whether the key of the latest item is this one."""
        return bool(key == self._key or key is self._key)

    def next_of(self, run: _Run, key: Any) -> Any:
        """Return the next item of a run of a key."""
        if self._current is not run:
            raise StopIteration
        if self._item is _NOTHING:
            self.advance()
        if not self.has_come_to(key):
            raise StopIteration
        item, self._item = self._item, _NOTHING
        return item


class _Run:
    def __init__(self, groups: ItemGroups, key: Any) -> None:
        self._groups, self._key = groups, key

    def __iter__(self) -> _Run:
        return self

    def __next__(self) -> Any:
        return self._groups.next_of(self, self._key)


#: The code of all of it.
CODE: Final = tuple(
    each.__code__
    for each in (*vars(ItemGroups).values(), *vars(_Run).values())
    if isinstance(each, FunctionType)
)
