"""Encodes values that no graph can return as tuples ``(MARK, kind, *fields)``.

They are decoded when the graph has run:

- ``CHOICE``: condition, value if true, value if not: a phi without a common form;
- ``LATE``: number of a graph, position among its results, whether a number is wanted, inputs: a
  value that is computed only if it is delivered (``lazy_values``);
- ``LABELED``: name, tensor: a tensor that shows the name of another history (``grad_fn_label``);
- ``TEXT``: format string, values, pairs of name and value: a text to be formatted.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import deque
from collections.abc import Callable
from types import NoneType
from typing import Any, Final

import torch

from bcmend.delivery import grad_fn_label, lazy_values
from bcmend.names import PREFIX

MARK: Final = f"{PREFIX}value"
CHOICE: Final = "choice"
LATE: Final = "late"
LABELED: Final = "labeled"
TEXT: Final = "text"


def encoded(kind: str, *fields: Any) -> tuple[Any, ...]:
    """Return the tuple that stands for a value."""
    return (MARK, kind, *fields)


def kind_of(value: object) -> str:
    """Return the kind of an encoded value; empty for anything else."""
    if type(value) is not tuple or len(value) < 3 or type(value[0]) is not str:
        return ""
    return value[1] if value[0] == MARK else ""


#: Types of objects whose items are looked into.
_CONTAINERS: Final = (dict, list, deque)

#: Types of values that hold nothing.
_LEAVES: Final = frozenset((NoneType, bool, int, float, complex, str, bytes, torch.Tensor))


def is_searched(kind: type) -> bool:
    """Return whether encoded values are looked for in the attributes of objects of a class."""
    return dataclasses.is_dataclass(kind)


def decode(value: Any) -> Any:
    """Return ``value`` with all that is encoded in it decoded, except texts.

    Lists, dictionaries and objects are changed in place. It is for code that nothing compiles.
    """
    return _decoded(value, {})


#: The same, for code that may be compiled.
decoded: Final = torch.compiler.disable(decode)  # type: ignore[no-untyped-call]


def formatted(value: Any) -> Any:
    """Return ``value`` with the texts in it, and in tuples of it, formatted."""
    if type(value) is not tuple:
        return value
    if kind_of(value) != TEXT:
        return tuple(map(formatted, value))
    _, _, text, parts, named = value
    return text.format(*map(formatted, parts), **{name: formatted(part) for name, part in named})


def _decoded(value: Any, seen: dict[Any, Any]) -> Any:
    if type(value) in _LEAVES:
        return value
    while (kind := kind_of(value)) == CHOICE:
        _, _, condition, one, other = value
        value = one if bool(condition) else other
    if kind == LATE:
        _, _, number, position, is_number, inputs = value
        return lazy_values.computed(number, position, is_number, inputs, seen)
    if kind == LABELED:
        return grad_fn_label.labeled(value[2], _decoded(value[3], seen))
    if isinstance(value, tuple):
        return _decoded_tuple(value, seen)
    if id(value) not in seen and _may_hold(value):
        seen[id(value)] = value
        _decode_within(value, seen)
    return value


def _may_hold(value: Any) -> bool:
    """Return whether encoded values are looked for in an object."""
    return isinstance(value, _CONTAINERS) or (
        is_searched(type(value)) and not isinstance(value, torch.Tensor)
    )


def _decode_within(value: Any, seen: dict[Any, Any]) -> None:
    items: Any = ()
    store: Callable[..., None] = operator.setitem
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, _CONTAINERS):
        items = enumerate(value)
    else:
        items, store = _attributes(value).items(), object.__setattr__
    for place, item in list(items):
        replaced = _decoded(item, seen)
        if replaced is not item:
            store(value, place, replaced)


def _attributes(value: object) -> dict[str, Any]:
    """Return what an object of a dataclass holds, in slots too."""
    found = dict(getattr(value, "__dict__", {}))
    named = (each.name for each in dataclasses.fields(value))  # type: ignore[arg-type]
    return found | {name: getattr(value, name) for name in named if hasattr(value, name)}


def _decoded_tuple(value: tuple[Any, ...], seen: dict[Any, Any]) -> tuple[Any, ...]:
    items = [_decoded(item, seen) for item in value]
    if all(map(operator.is_, items, value)):
        return value
    if hasattr(value, "_fields"):
        return type(value)._make(items)  # type: ignore[attr-defined, no-any-return]
    if hasattr(value, "n_sequence_fields"):  # such as torch's operations return
        return type(value)(items)
    return tuple(items)
