"""Tuples, and lists and dictionaries that the trace has made, as what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import Value, is_named_tuple, items_in, made_of
from bcmend.tracing.heap import roots

_CHANGEABLE: Final = (compat.ListVariable, *containers.DICTIONARIES)


def is_changeable(value: Value) -> bool:
    """Return whether a value is a list or a dictionary, which the program can change."""
    return type(value.realize()) in _CHANGEABLE


def has_parts(value: Value) -> bool:
    """Return whether a value is a container that another one like it can stand for.

    It may be a tuple, named or not, or a new list or dictionary, and holds anything but itself.
    """
    known = value.realize()
    if is_changeable(known):
        is_one = isinstance(known.mutation_type, compat.ValueMutationNew)
    else:
        is_one = type(known) is compat.TupleVariable or is_named_tuple(known)
    items = (items_in(known) if is_one else None) or ()
    return bool(items) and not roots.holds(items, known)


def leaves_of(value: Value) -> Iterator[Value]:
    """Yield what a container holds, and those inside of it; the value itself if it is none."""
    if not has_parts(value):
        yield value
        return
    for each in items_in(value.realize()) or ():
        yield from leaves_of(each)


def changeable_in(value: Value) -> Iterator[Value]:
    """Yield the lists and dictionaries of which ``leaves_of`` yields what they hold."""
    if not has_parts(value):
        return
    known = value.realize()
    if is_changeable(known):
        yield known
    for each in items_in(known) or ():
        yield from changeable_in(each)


def made_like(value: Value, leaves: Iterable[Value]) -> Value:
    """Return a value like one of which the leaves are others; what is met again is one again."""
    return _made_like(value, iter(leaves), {})


def _made_like(value: Value, leaves: Iterator[Value], made: dict[int, Value]) -> Value:
    if not has_parts(value):
        return next(leaves)
    known = value.realize()
    items = [_made_like(each, leaves, made) for each in items_in(known) or ()]
    if not (is_changeable(known) and id(known) in made):
        made[id(known)] = made_of(known, items)
    return made[id(known)]


def are_alike(one: Value, other: Value) -> bool:
    """Return whether two values are the same kinds of containers of as much, or both none."""
    if not (has_parts(one) and has_parts(other)):
        return not has_parts(one) and not has_parts(other)
    known = one.realize(), other.realize()
    first, second = map(_by_key, known)
    return (
        type(known[0]) is type(known[1])
        and known[0].python_type() is known[1].python_type()
        and containers.have_same_keys(first, second)
        and all(map(are_alike, first.values(), second.values()))
    )


def _by_key(value: Any) -> dict[Any, Value]:
    """Return what a container holds by its keys, or by its positions."""
    return containers.by_key(value.items)
