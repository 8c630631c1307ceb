"""Values that bcmend stores on objects of Dynamo: of a trace, a frame, a shape environment.

Each kind of value has a ``Slot``, declared by the module that owns it. A value lives as long as the
object does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_ATTRIBUTE: Final = "_bcmend"


class Slot(Generic[T]):
    """A value that each object has one of; ``make`` makes the first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def of(self, holder: Any) -> T:
        """Return the value of ``holder``; made when first asked for."""
        values = _values(holder)
        if self not in values:
            values[self] = self._make()
        return values[self]  # type: ignore[no-any-return]

    def peek(self, holder: Any) -> T | None:
        """Return the value of ``holder`` if there is one."""
        return _values(holder).get(self)

    def put(self, holder: Any, value: T) -> None:
        """Give ``holder`` another value."""
        _values(holder)[self] = value


def _values(holder: Any) -> dict[Slot[Any], Any]:
    return vars(holder).setdefault(_ATTRIBUTE, {})  # type: ignore[no-any-return]
