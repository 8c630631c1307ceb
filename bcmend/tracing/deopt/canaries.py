"""Canaries: the call in which a branch first takes a side gives up its graph, to be compared.

That is ``Policy(verify="sides")``. A trace notes the sides that no call has taken yet, each with
the condition under which a call comes to it and takes it. They are read when the graph has run,
before effects on Python objects are replayed. If one holds for the first time, the boundary
compares the call with eager execution, in copies of the process, and makes it eagerly. Once all of
them were taken the code is compiled anew, and nothing is read any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Final, NamedTuple

from bcmend.dynamo import compat, frames, plain_python
from bcmend.tracing.deopt import rerun_policy
from bcmend.tracing.sites import site_table

_LOG: Final = logging.getLogger("bcmend")
_SEEN: Final = "bcmend has seen all sides of its branches"


class Side(NamedTuple):
    """A side of the branch that has a key: the one taken where its condition is ``truth``."""

    key: str
    truth: bool

    def __str__(self) -> str:
        return f"{self.key}, {str(self.truth).lower()}"

    @property
    def is_new(self) -> bool:
        """Return whether no call has taken it."""
        site = site_table.find(self.key)
        return site is not None and self.truth not in site.seen_sides

    def note_seen(self) -> None:
        site = site_table.find(self.key)
        if site is not None:
            site.seen_sides.add(self.truth)


class NewSide(Exception):
    """Tells a boundary that a call takes sides that no call has taken; its graph has no effects.

    Attributes:
        sides: which; they count as seen from now on.
        is_last: whether no side is left that the graph looks for.
    """

    def __init__(self, sides: tuple[Side, ...], is_last: bool) -> None:
        super().__init__("; ".join(map(str, sides)))
        self.sides, self.is_last = sides, is_last


#: The code of a frame, and the sides that its graph looks for.
Watched = tuple[CodeType, tuple[Side, ...]]


def new_sides(watched: Watched, holds: Iterator[bool]) -> NewSide | None:
    """Return what to raise where a call takes new sides; ``None`` where it takes no such.

    Args:
        watched: what the graph looks for.
        holds: for each side whether the call takes it.
    """
    code, sides = watched
    if rerun_policy.may_be_computed_again():
        return None  # a backward pass, which has to save the same tensors
    if not any(each.is_new for each in sides):
        frames.forget(code, _SEEN)
        return None
    taken = dict.fromkeys(side for side, is_taken in zip(sides, holds, strict=True) if is_taken)
    found = [each for each in taken if each.is_new]
    for each in found:
        each.note_seen()
    return NewSide(tuple(found), not any(each.is_new for each in sides)) if found else None


def end(failure: NewSide, code: CodeType) -> None:
    """Have code compiled anew, without canaries, if the last side was seen."""
    if failure.is_last:
        frames.forget(code, _SEEN)


#: What was told of, by the place and the reason.
_TOLD: Final[set[tuple[str, str]]] = set()


def say_not_compared(code: CodeType, sides: Sequence[Side], why: str) -> None:
    """Warn that sides are not compared in the graph of some code, once for each reason."""
    told = code.co_qualname, why
    if sides and told not in _TOLD:
        _TOLD.add(told)
        text = "bcmend: sides of branches are not compared in calls of %s: %s (%s)"
        _LOG.warning(text, code.co_qualname, why, "; ".join(map(str, sides)))


def at_boundary_only(tx: compat.Tracer, sides: Sequence[Side]) -> bool:
    """Return whether a frame being traced ends at a boundary, and say so where it does not."""
    if frames.ends_at_a_boundary(tx):
        return True
    why = "the graph breaks, or begins in a function that is not patched"
    say_not_compared(tx.output.root_tx.f_code, sides, why)
    return False


plain_python.have_dynamo_skip(new_sides)
