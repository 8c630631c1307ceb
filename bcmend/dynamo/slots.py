"""Values that bcmend stores on objects of Dynamo: of a trace, a frame, a shape environment.

Each kind of value has a ``Slot``, declared by the module that owns it. A value lives as long as the
object does. What an arm writes goes where the branch is refused, if the slot ``rolls_back``:

- It does if the value is about what stands in the trace: watches, results of branches, numbers of
  statements met so far.
- It does not if it stays true without the arm (facts about nodes, objects and code; what was asked
  once of torch), if the arm cannot write it or its writer takes it back, or if something was
  registered or set together with it that stays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_ATTRIBUTE: Final = "_bcmend"


class Slot(Generic[T]):
    """A value that each object has one of; ``make`` makes the first.

    ``rolls_back`` says whether a refused arm leaves it as it was (see above). Such a value is a
    list, dictionary or set, a data class of them, or nothing that changes.
    """

    def __init__(self, make: Callable[[], T], *, rolls_back: bool) -> None:
        self._make = make
        self.rolls_back = rolls_back

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

    def first(self) -> T:
        """Return the value of an object that has none yet."""
        return self._make()


def forget(holder: Any) -> None:
    """Drop what is stored on ``holder``."""
    holder.__dict__.pop(_ATTRIBUTE, None)


@contextmanager
def pushed(values: list[T], value: T) -> Iterator[None]:
    """For the length of a block, have a list end with ``value``."""
    values.append(value)
    try:
        yield
    finally:
        values.pop()


class _Values(dict[Slot[Any], Any]):
    """What is stored on one object, which is not pickled or copied with it.

    Dynamo's callback is a part of what ``torch.compile`` returns, and goes where that goes.
    """

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[()]]:
        return dict, ()  # which is read where bcmend is not installed, too


def _values(holder: Any) -> _Values:
    values = holder.__dict__.get(_ATTRIBUTE)
    if not isinstance(values, _Values):  # none yet, or what was loaded
        values = holder.__dict__[_ATTRIBUTE] = _Values()
    return values


def remember(holder: Any) -> Callable[[], None]:
    """Return what gives ``holder`` the values again that it has now, of slots that roll back.

    Containers are restored in place, since steps at the end of the trace hold them.
    """
    before = {
        slot: (value, _copied(value))
        for slot, value in holder.__dict__.get(_ATTRIBUTE, {}).items()
        if slot.rolls_back
    }

    def put_back() -> None:
        values = holder.__dict__.get(_ATTRIBUTE, {})
        for slot in [each for each in values if each.rolls_back]:
            value, state = before.get(slot) or (values[slot], _copied(slot.first()))
            values[slot] = _restored(value, state)

    return put_back


_CONTAINERS: Final = (list, dict, set)


def _copied(value: Any) -> Any:
    """Return a copy of a value: of its fields, and also of the containers in it."""
    if is_dataclass(value):
        return {each.name: _copied(getattr(value, each.name)) for each in fields(value)}
    if not isinstance(value, _CONTAINERS):
        return value
    copied = copy.copy(value)
    if isinstance(copied, dict):
        for key, each in copied.items():
            copied[key] = copy.copy(each) if isinstance(each, _CONTAINERS) else each
    return copied


def _restored(value: Any, state: Any) -> Any:
    """Return ``value`` in the state that ``_copied`` has found it in."""
    if is_dataclass(value):
        for name, each in state.items():
            setattr(value, name, _restored(getattr(value, name), each))
        return value
    if not isinstance(value, _CONTAINERS):
        return state
    contents = _copied(state)  # the state may be needed again
    value.clear()
    if isinstance(value, list):
        value.extend(contents)
    else:
        value.update(contents)
    return value
