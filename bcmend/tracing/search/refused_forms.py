"""Which forms of branches were refused in a trace, so that none is tried twice in one place.

Where a branch stands in an arm of another, or is met again in a turn of its own loop, the arm is
traced for each form of the outer one. What is in it is the same each time, up to the first branch
that is lowered in another way; so a form that was refused there would be refused again. Each level
would double what is traced without that, and a loop of n turns that is left early take n * n of
them.

A place is the condition of the outermost branch, and then for each level the side, the branch, and
how often it was met on that side before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot, pushed

#: Slug and detail of a refusal.
_Reason = tuple[str, str]


@dataclass(slots=True)
class _Side:
    """A side of a branch being traced; ``place`` is empty outside of all."""

    place: tuple[Hashable, ...] = ()
    met: Counter[Hashable] = field(default_factory=Counter)


@dataclass(slots=True)
class _Tried:
    """What a trace has tried: the sides and the branches around the present one, and refusals."""

    sides: list[_Side] = field(default_factory=lambda: [_Side()])
    branches: list[tuple[Hashable, ...]] = field(default_factory=list)
    refused: dict[tuple[Hashable, ...], _Reason] = field(default_factory=dict)


_TRIED: Final = Slot(_Tried, rolls_back=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a form of a branch in one place; ``known`` says why it was refused there."""

    key: tuple[Hashable, ...]
    tried: _Tried

    @property
    def known(self) -> _Reason | None:
        return self.tried.refused.get(self.key)

    def refuse(self, slug: str, detail: str) -> None:
        """Note that it is refused, unless it is in no arm, where it is tried once."""
        if len(self.tried.sides) > 1:
            self.tried.refused[self.key] = slug, detail


@contextmanager
def trying(
    output: compat.OutputGraph, branch: Hashable, form: int, condition: Any
) -> Iterator[Attempt]:
    """Try a form of a branch in a block; forms are tried in order, the first of them always."""
    tried = _TRIED.of(output)
    side = tried.sides[-1]
    if not side.place:
        place: tuple[Hashable, ...] = (condition,)
    else:
        side.met[branch] += not form
        place = (*side.place, branch, side.met[branch])
    with pushed(tried.branches, place):
        yield Attempt((*place, form), tried)


def on_side(output: compat.OutputGraph, side: Hashable) -> AbstractContextManager[None]:
    """Trace in a block a side of the branch that is being tried, or a turn of its loop."""
    tried = _TRIED.of(output)
    return pushed(tried.sides, _Side((*tried.branches[-1], side)))
