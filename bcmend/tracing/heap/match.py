"""Whether two heaps are one: a partial bijection of their objects.

What a branch or a loop leaves has to be, on each side, what that side has left: two places that
have one object there have one in the joined heap, and two objects there are two. What is from
before is itself on both sides, unless nothing else holds it: then nobody can tell. Nothing is asked
of values, nor of what is opaque in one of the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from bcmend.dynamo import compat
from bcmend.dynamo.slots import pushed
from bcmend.dynamo.values import Value
from bcmend.tracing.heap import heap
from bcmend.tracing.heap.heap import Heap, Key, Object
from bcmend.tracing.search import strict
from bcmend.tracing.sites.site_table import LiveSite

#: How an object is reached: from a root, by the keys of what holds it.
Path = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Torn:
    """Places of a joined heap that are not as those of a side.

    Attributes:
        how: what is so in the joined heap, and is not on the side.
        places: where.
    """

    how: str
    places: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.how}: {', '.join('/'.join(map(str, path)) for path in self.places)}"


#: Where joins that do not match are noted; none is compared while that is nowhere.
_NOTED: Final[list[list[tuple[str, Torn]]]] = []


@contextmanager
def noting() -> Iterator[list[tuple[str, Torn]]]:
    """Have joins be compared in a block; yield those that do not match, by the name of the site."""
    found: list[tuple[str, Torn]] = []
    with pushed(_NOTED, found):
        yield found


def compared(
    tx: compat.Tracer, result: Value, scope: int | None = None, *, returns: bool = False
) -> Heap | None:
    """Return the heap as it is now, with ``result`` among the roots; None if none are compared.

    Args:
        scope: that of the trace around the arms, by default the present one.
        returns: whether the function being traced returns ``result``.
    """
    if not (strict.IS_ON or _NOTED):
        return None
    around = compat.current_scope_id() if scope is None else scope
    return heap.of(tx, result, around, returns=returns)


def require_match(site: LiveSite, joined: Heap | None, *sides: Heap | None) -> None:
    """Require that a joined heap is, on each side, that of the side; nothing if none are compared.

    Raises:
        InternalError: it is not, in strict mode and where that is not noted.
    """
    known = [each for each in sides if each is not None]
    if joined is None or len(known) < len(sides):
        return
    for side in known:
        found = torn(joined, side, known)
        if found is not None and not _NOTED:
            raise strict.InternalError(f"what a join leaves is not what a side leaves: {found}")
        if found is not None:
            _NOTED[-1].append((site.name, found))


def torn(joined: Heap, side: Heap, sides: Sequence[Heap]) -> Torn | None:
    """Return where a joined heap is not that of one of ``sides``; None if it is."""
    pairs = _Pairs()
    seen: set[tuple[int, int]] = set()
    left: deque[tuple[Path, Value, Value]] = deque(
        ((key,), joined.held[key], side.held[key]) for key in joined.held if key in side.held
    )
    while left:
        path, here, there = left.popleft()
        one, other = joined.object_of(here), side.object_of(there)
        if one is None or other is None or type(one.model) is not type(other.model):
            continue
        if (id(one.model), id(other.model)) in seen:
            continue
        seen.add((id(one.model), id(other.model)))
        if one.has_identity and other.has_identity:
            is_other = one.model is not other.model
            if is_other and (_is_older(one, sides) or _is_seen(other, side)):
                return Torn("another object than that from before", (path,))
            found = pairs.add(one, other, path)
            if found is not None:
                return found
        left.extend(
            ((*path, key), each, other.fields[key])
            for key, each in one.fields.items()
            if key in other.fields
        )
    return None


def _is_seen(older: Object, side: Heap) -> bool:
    """Return whether an object is from before, and anything holds it beside the place itself."""
    return not older.is_new and side.counts[id(older.model)] > 1


def _is_older(joined: Object, sides: Sequence[Heap]) -> bool:
    """Return whether an object of a joined heap is from before what is joined."""
    known = (side.objects.get(id(joined.model)) for side in sides)
    return any(each is not None and not each.is_new for each in known)


@dataclass(slots=True)
class _Pairs:
    """Which objects of two heaps are one, and where they were met first."""

    of_joined: dict[int, tuple[int, Path]] = field(default_factory=dict)
    of_side: dict[int, tuple[int, Path]] = field(default_factory=dict)

    def add(self, joined: Object, side: Object, path: Path) -> Torn | None:
        """Have two objects be one; return why they cannot be."""
        here, there = id(joined.model), id(side.model)
        for known, key, partner, how in (
            (self.of_joined, here, there, "one object in place of two"),
            (self.of_side, there, here, "two objects in place of one"),
        ):
            first, before = known.setdefault(key, (partner, path))
            if first != partner:
                return Torn(how, (before, path))
        return None
