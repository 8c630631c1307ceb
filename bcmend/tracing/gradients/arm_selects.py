"""Marks the nodes by which a lowered branch takes one of two sides, where eager has but one.

A ``torch.where`` or ``torch.cond`` of the program has no mark: both of its sides get gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from torch.fx import Node

from bcmend import meta_keys
from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot

_IS_WANTED: Final = Slot(lambda: True, rolls_back=False)


@contextmanager
def under(tx: compat.Tracer, policy: str) -> Iterator[None]:
    """Have what is written in a block marked as the policy for untaken gradients asks."""
    before = _IS_WANTED.of(tx.output)
    _IS_WANTED.put(tx.output, policy == "none")
    try:
        yield
    finally:
        _IS_WANTED.put(tx.output, before)


def mark_select(tx: compat.Tracer, node: Node) -> None:
    """Note that ``node`` takes the side that its first argument says."""
    node.meta[meta_keys.SELECTS] = True
    if _IS_WANTED.of(tx.output):
        node.meta[meta_keys.TAKES_A_SIDE] = True


def is_select(node: Node) -> bool:
    """Return whether ``node`` takes a side of a lowered branch, whatever the policy asks."""
    return meta_keys.SELECTS in node.meta


def is_marked(node: Node) -> bool:
    """Return whether ``node`` is the select or the operator of a lowered branch."""
    return meta_keys.TAKES_A_SIDE in node.meta
