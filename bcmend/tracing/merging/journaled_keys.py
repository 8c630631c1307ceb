"""What is still known of a dictionary whose contents are data-dependent.

The records of a trace say all that was done to a journaled dictionary since, and most of them name
the keys that they set or remove. Any other key is as it was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import Value
from bcmend.tracing.output import record_builder

#: Methods that look at one key, their first argument, and change nothing.
READING = ("get", "__getitem__", "__contains__")


def untouched(
    tx: compat.Tracer, journaled: Any, owner: Value, key: Value
) -> compat.ConstDictVariable | None:
    """Return a dictionary that has ``key`` if and only if a journaled one has, with its value.

    ``None`` where the records may have touched that key; they call the dictionary ``owner``.
    """
    key = key.realize()
    if not (key.is_python_constant() and compat.is_hashable(key)):
        return None
    wanted = key.as_python_constant()
    for inputs in record_builder.records_until_now(tx):
        for each in _touched(inputs, owner):
            if each is None or not each.is_python_constant() or each.as_python_constant() == wanted:
                return None
    containers.guard_keys(journaled)
    items = {
        known: value
        for known, value in vars(journaled)["items"].items()
        if (model := containers.key_model(known)).is_python_constant()
        and model.as_python_constant() == wanted
    }
    return containers.part_of_dictionary(journaled, items)


def _touched(inputs: Any, owner: Value) -> Iterator[Value | None]:
    """Yield the keys that a record sets or removes in ``owner``; ``None`` for any key."""
    if not isinstance(inputs, compat.TupleVariable) or not any(
        each is owner for each in inputs.items
    ):
        return
    match inputs.items:
        case [first, compat.ConstantVariable(value="__setitem__"), key, *_] if first is owner:
            yield key  # of ``records.alter``
        case [first, compat.TupleVariable() as keys, compat.TupleVariable() as pairs] if (
            first is owner  # of ``records.refill``
        ):
            yield from keys.items
            for pair in pairs.items:
                yield pair.items[0] if isinstance(pair, compat.TupleVariable) else None
        case _:
            yield None
