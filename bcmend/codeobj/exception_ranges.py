"""Try ranges between labels to ranges of indices that do not overlap.

Reads try ranges in any order, nested or not, and where the labels are placed; produces the ranges
as CPython's exception table wants them: in order, and at most one for each instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bcmend.codeobj.decode import Label, TryRange
from bcmend.codeobj.errors import AssembleError


def placed_index(label: int | Label | None, placed: Mapping[Label, int]) -> int:
    """Return the index of the instruction that ``label`` stands before."""
    if not isinstance(label, Label) or label not in placed:
        raise AssembleError(f"{label} is not placed")
    return placed[label]


def flatten(tries: Iterable[TryRange], placed: Mapping[Label, int], count: int) -> list[TryRange]:
    """Return ranges of indices that do not overlap, in order; the innermost range wins."""
    ranges = []
    for entry in tries:
        start, end = placed_index(entry.start, placed), placed_index(entry.end, placed)
        handler = placed_index(entry.handler, placed)
        if start > end or handler == count:
            raise AssembleError(f"try range from {start} to {end} with handler {handler}")
        ranges.append(TryRange(start, end, handler, entry.depth, entry.push_lasti))
    # Outer ranges first, so that inner ones overwrite them.
    ranges.sort(key=lambda entry: (entry.start, -end_of(entry), entry.depth))
    _check_nesting(ranges)
    owner: list[TryRange | None] = [None] * count
    for entry in ranges:
        owner[start_of(entry) : end_of(entry)] = [entry] * (end_of(entry) - start_of(entry))
    return list(_runs(owner))


def start_of(entry: TryRange) -> int:
    """Return the index that a flat range starts at."""
    assert isinstance(entry.start, int)
    return entry.start


def end_of(entry: TryRange) -> int:
    """Return the index that a flat range ends before."""
    assert isinstance(entry.end, int)
    return entry.end


def _check_nesting(ranges: Sequence[TryRange]) -> None:
    enclosing: list[TryRange] = []
    for entry in ranges:
        while enclosing and end_of(enclosing[-1]) <= start_of(entry):
            enclosing.pop()
        if enclosing:
            outer = enclosing[-1]
            if end_of(entry) > end_of(outer):
                raise AssembleError(f"{entry} and {outer} overlap without nesting")
            same_extent = (entry.start, entry.end) == (outer.start, outer.end)
            if same_extent and entry != outer and entry.depth == outer.depth:
                raise AssembleError(f"neither of {entry} and {outer} is the inner one")
        if entry.start != entry.end:
            enclosing.append(entry)


def _runs(owner: Sequence[TryRange | None]) -> Iterator[TryRange]:
    """Join neighbours that have the same handler, depth and lasti."""
    start = 0
    for index in range(1, len(owner) + 1):
        entry = owner[start]
        if index == len(owner) or not _same_handling(entry, owner[index]):
            if entry is not None:
                yield replace(entry, start=start, end=index)
            start = index


def _same_handling(one: TryRange | None, other: TryRange | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.handler, one.depth, one.push_lasti) == (
        other.handler,
        other.depth,
        other.push_lasti,
    )
