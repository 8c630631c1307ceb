"""What is still known of a dictionary whose contents only the data tell.

The records of a trace say all that was done to an opened dictionary since it was opened, and most
of them name the keys that they set or remove. Any other key is as it was before. So layers that
each note something under a number of their own can look for their own number, whether or not the
layers before them ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import ConstantVariable, ConstDictVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.hashable import is_hashable

from bcmend.runtime import sinks

__all__ = ["READING", "untouched"]

#: Methods that look at one key, their first argument, and change nothing.
READING = ("get", "__getitem__", "__contains__")


def untouched(
    tx: Any, opened: Any, owner: VariableTracker, key: VariableTracker
) -> ConstDictVariable | None:
    """Return a dictionary that has ``key`` if and only if an opened one has, with the same value.

    ``None`` where the records up to here may have touched that key. ``owner`` is what the records
    call the dictionary.
    """
    key = key.realize()
    if not (key.is_python_constant() and is_hashable(key)):
        return None
    wanted = key.as_python_constant()
    touched = [each for inputs in sinks.records_until_now(tx) for each in _touched(inputs, owner)]
    if None in touched or any(each.as_python_constant() == wanted for each in touched if each):
        return None
    opened.install_dict_keys_match_guard()
    items = {
        known: value
        for known, value in vars(opened)["items"].items()
        if known.vt.is_python_constant() and known.vt.as_python_constant() == wanted
    }
    return ConstDictVariable(items, opened.user_cls)


def _touched(inputs: Any, owner: VariableTracker) -> Iterator[VariableTracker | None]:
    """Yield the keys that a record sets or removes in ``owner``; ``None`` for any key."""
    if not isinstance(inputs, TupleVariable) or not any(each is owner for each in inputs.items):
        return
    first, *rest = inputs.items
    keys = list(_named_keys(*rest)) if first is owner and len(rest) >= 2 else [None]
    yield from (each if each is not None and each.is_python_constant() else None for each in keys)


def _named_keys(how: Any, what: Any, *values: Any) -> Iterator[VariableTracker | None]:
    """Yield the keys in the arguments of ``records.alter`` or ``records.refill``."""
    if isinstance(how, ConstantVariable) and how.value == "__setitem__":
        yield what
    elif isinstance(how, TupleVariable) and isinstance(what, TupleVariable) and not values:
        yield from how.items
        for pair in what.items:
            yield pair.items[0] if isinstance(pair, TupleVariable) else None
    else:
        yield None
