"""Blocks of ``warnings.catch_warnings`` in which records are delivered.

The block that a statement stands in has been left when its record is delivered. So the first record
of a block enters it anew, filters that the program sets in it are records too, and another record
leaves it. What is still open at the end of a delivery is left then: the block was left by an
exception, or under a condition.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, Final

#: A number that no other block has, and the arguments of ``catch_warnings``.
Block = tuple[int, tuple[tuple[str, Any], ...]]


class _Open(threading.local):
    """The blocks that the innermost delivery of a thread has entered, the outermost first."""

    def __init__(self) -> None:
        self.blocks: dict[int, warnings.catch_warnings[Any]] = {}


_OPEN: Final = _Open()


def call_within(
    blocks: tuple[Block, ...], action: Callable[..., None], inputs: tuple[Any, ...]
) -> None:
    """Call ``action(*inputs)`` within ``blocks``, the outermost first."""
    for number, arguments in blocks:
        if number not in _OPEN.blocks:
            entered = warnings.catch_warnings(**dict(arguments))
            entered.__enter__()
            _OPEN.blocks[number] = entered
    action(*inputs)


def leave(number: int) -> None:
    """Leave a block, if a record has entered it."""
    entered = _OPEN.blocks.pop(number, None)
    if entered is not None:
        entered.__exit__(None, None, None)


class Delivery:
    """A context manager: what is entered inside is left at its end.

    A delivery within another has blocks of its own.
    """

    def __enter__(self) -> None:
        self._outer, _OPEN.blocks = _OPEN.blocks, {}

    def __exit__(self, *_: object) -> None:
        for number in reversed(list(_OPEN.blocks)):
            leave(number)
        _OPEN.blocks = self._outer
