"""What objects that were there before the call hold: the objects themselves, not models of them.

The trace has models only of what the program reads.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    ModuleType,
    TracebackType,
)

import torch

from bcmend.knowledge.static_lookup import captured

#: What is no object to look through, or leads to all the code of the program.
_PLAIN = (
    str, bytes, int, float, complex, bool, type(None), type, ModuleType, FunctionType,
    BuiltinFunctionType, CodeType, FrameType, TracebackType, torch.dtype, torch.device,
)  # fmt: skip


class Reach:
    """All that objects hold, and what that holds; looked through when it is asked for first.

    Dynamo changes nothing that was there before the call until its trace is complete.
    """

    def __init__(self, roots: Iterable[object] = ()) -> None:
        self._roots = list(roots)

    @functools.cached_property
    def identities(self) -> frozenset[int]:
        """The identities of all of it, the roots included."""
        return frozenset(identities_behind(self._roots))


def identities_behind(roots: Iterable[object]) -> set[int]:
    """Return the identities of all that ``roots`` hold, themselves included.

    No code of the program runs: the collector knows what each object holds.
    """
    seen: set[int] = set()
    waiting: list[object] = []
    for root in roots:
        waiting += _named_by(root) if isinstance(root, FunctionType) else (root,)
    while waiting:
        looked_at = []
        for value in waiting:
            if not (issubclass(type(value), _PLAIN) or id(value) in seen):
                seen.add(id(value))
                if not issubclass(type(value), torch.Tensor):
                    looked_at.append(value)
        waiting = gc.get_referents(*looked_at)
    return seen


def _named_by(function: FunctionType) -> Iterator[object]:
    """Yield what a function finds in its cells, and in global variables."""
    yield from (value for _, value in captured(function))
    names = function.__globals__
    yield from (names[name] for name in function.__code__.co_names if name in names)
