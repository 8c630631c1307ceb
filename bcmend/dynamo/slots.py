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
        try:
            return holder.__dict__[_ATTRIBUTE][self]  # type: ignore[no-any-return]
        except KeyError:
            value = _values(holder)[self] = self._make()
            return value

    def peek(self, holder: Any) -> T | None:
        """Return the value of ``holder`` if there is one."""
        values = holder.__dict__.get(_ATTRIBUTE)
        return None if values is None else values.get(self)

    def put(self, holder: Any, value: T) -> None:
        """Give ``holder`` another value."""
        _values(holder)[self] = value


def _values(holder: Any) -> dict[Slot[Any], Any]:
    return holder.__dict__.setdefault(_ATTRIBUTE, {})  # type: ignore[no-any-return]
