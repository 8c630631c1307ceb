"""Deliver what one call recorded, in the order of the program.

A record is ``(site key, predicate, raises, action, inputs)``. An output record's action makes the
call of the original statement; a guard's action raises the original exception, from the original
file and line. Delivery stops at the first guard that failed: eager would not have gone further.
"""

from __future__ import annotations

from typing import Any

import torch

from bcmend.runtime import choices

__all__ = [
    "OUTLET",
    "Buffer",
    "add_member",
    "deliver",
    "settle_attribute",
    "settle_item",
    "store_item",
]

Record = tuple[str, "torch.Tensor | None", bool, Any, tuple[Any, ...]]
Buffer = list[Record]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def deliver(buffer: Buffer) -> None:
    """Run the records of ``buffer`` and leave it empty, whatever happens."""
    records = list(buffer)
    buffer.clear()
    for key, predicate, raises, action, inputs in records:
        if predicate is None or bool(predicate):
            action(*choices.resolve(inputs))
            if raises:
                raise AssertionError(
                    f"{key}: this code raised while it was traced and does not now, so the result "
                    f'of the call is unknown; switch the site off with Policy(off=("{key}",))'
                )


class _Outlet:
    """Delivers what is assigned to ``records``.

    A frame that Dynamo enters without a boundary of ours (``nn.Sequential``, a function of the
    user's that calls a patched model) has nobody to deliver its records. Dynamo replays stores to
    attributes when the graph has run: such a frame's trace ends with one to this object.
    """

    @property
    def records(self) -> Buffer:
        return []

    @records.setter
    def records(self, buffer: Buffer) -> None:
        deliver(buffer)


OUTLET = _Outlet()


def store_item(owner: dict[Any, Any], key: Any, value: Any) -> None:
    """Store what only the taken side adds to a dictionary."""
    owner[key] = value


def add_member(owner: set[Any], key: Any, value: Any) -> None:
    """Add what only the taken side adds to a set."""
    owner.add(key)


def settle_attribute(
    owner: Any, name: str, merged: Any, predicate: torch.Tensor, one: Any, other: Any
) -> None:
    """Replace a merged value of an attribute by the very object that eager would have stored."""
    if getattr(owner, name, None) is merged:
        setattr(owner, name, one if predicate else other)


def settle_item(
    owner: dict[Any, Any], key: Any, merged: Any, predicate: torch.Tensor, one: Any, other: Any
) -> None:
    """Replace a merged value of a dictionary by the very object that eager would have stored."""
    if owner.get(key) is merged:
        owner[key] = one if predicate else other
