"""What a call returns where the two sides of a branch have nothing in common.

No value of the graph can be None on one side and a tensor on the other. But both sides can be
handed out of it, with the condition: a ``Choice`` among what a frame returns is rebuilt as a tuple
that no program makes, and the boundary, which runs when the graph is done, puts the side taken in
its place.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any, Final

import torch

from bcmend.names import PREFIX
from bcmend.runtime import histories, late

__all__ = ["MARK", "is_choice", "is_searched", "resolve"]

#: The first item of the tuple (mark, condition, value if true, value if not).
MARK: Final = f"{PREFIX}choice"


def is_choice(value: object) -> bool:
    """Whether ``value`` is a choice that is still open."""
    return type(value) is tuple and len(value) == 4 and type(value[0]) is str and value[0] == MARK


def is_searched(kind: type) -> bool:
    """Whether choices are looked for in the attributes of objects of a class."""
    return dataclasses.is_dataclass(kind)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def resolve(value: Any) -> Any:
    """Return ``value`` with every choice in it made; lists, dictionaries and objects are kept.

    What is yet to be computed is computed.
    """
    return _resolved(value, {})


def _resolved(value: Any, seen: dict[Any, Any]) -> Any:
    while is_choice(value):
        _, condition, one, other = value
        value = one if bool(condition) else other
    if late.is_late(value):
        return late.computed(value, seen)
    if isinstance(value, torch.Tensor):
        return value
    if histories.is_marked(value):
        mark, name, tensor = value
        return histories.restored((mark, name, _resolved(tensor, seen)))
    if isinstance(value, tuple):
        return _resolved_tuple(value, seen)
    if id(value) in seen:
        return value
    seen[id(value)] = value
    _resolve_within(value, seen)
    return value


def _resolve_within(value: Any, seen: dict[Any, Any]) -> None:
    if isinstance(value, dict):
        _replace_within(value, list(value.items()), seen)
    elif isinstance(value, (list, deque)):
        _replace_within(value, list(enumerate(value)), seen)
    elif is_searched(type(value)):
        for name, item in list(vars(value).items()):
            replaced = _resolved(item, seen)
            if replaced is not item:
                object.__setattr__(value, name, replaced)


def _replace_within(container: Any, items: list[tuple[Any, Any]], seen: dict[Any, Any]) -> None:
    for place, item in items:
        if isinstance(item, torch.Tensor):
            continue
        replaced = _resolved(item, seen)
        if replaced is not item:
            container[place] = replaced


def _resolved_tuple(value: tuple[Any, ...], seen: dict[Any, Any]) -> tuple[Any, ...]:
    items = [_resolved(item, seen) for item in value]
    if all(one is other for one, other in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_fields"):
        return type(value)._make(items)  # type: ignore[attr-defined, no-any-return]
    if hasattr(value, "n_sequence_fields"):  # such as torch's operations return
        return type(value)(items)
    return tuple(items)
