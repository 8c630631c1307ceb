"""Flatten try ranges between labels to ranges of indices, at most one for each instruction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from bcmend.bytecode.instructions import AssembleError, Label, TryRange


def placed_index(label: int | Label | None, placed: Mapping[Label, int]) -> int:
    """Return the index of the instruction that ``label`` stands before."""
    if not isinstance(label, Label) or label not in placed:
        raise AssembleError(f"{label} is not placed")
    return placed[label]


def flatten(tries: Iterable[TryRange], placed: Mapping[Label, int], count: int) -> list[TryRange]:
    """Return ranges of indices that do not overlap, in order; the innermost range wins."""
    ranges = [entry.moved(lambda label: placed_index(label, placed)) for entry in tries]
    for entry in ranges:
        start, end = entry.bounds
        if start > end or entry.handler == count:
            raise AssembleError(f"try range from {start} to {end} with handler {entry.handler}")
    # Outer ranges first, so that inner ones overwrite them.
    ranges.sort(key=lambda entry: (entry.bounds[0], -entry.bounds[1], entry.depth))
    _check_nesting(ranges)
    return list(_runs(range_of_each(ranges, count)))


def range_of_each(ranges: Iterable[TryRange], count: int) -> list[TryRange | None]:
    """Return the range that each of ``count`` instructions is in: of several, the last."""
    found: list[TryRange | None] = [None] * count
    for entry in ranges:
        start, end = entry.bounds
        found[start:end] = [entry] * (end - start)
    return found


def _check_nesting(ranges: Sequence[TryRange]) -> None:
    enclosing: list[TryRange] = []
    for entry in ranges:
        start, end = entry.bounds
        while enclosing and enclosing[-1].bounds[1] <= start:
            enclosing.pop()
        if enclosing:
            outer = enclosing[-1]
            if end > outer.bounds[1]:
                raise AssembleError(f"{entry} and {outer} overlap without nesting")
            if entry.bounds == outer.bounds and entry != outer and entry.depth == outer.depth:
                raise AssembleError(f"neither of {entry} and {outer} is the inner one")
        if start != end:
            enclosing.append(entry)


def _runs(owner: Sequence[TryRange | None]) -> Iterator[TryRange]:
    """Yield ranges; neighbours that have the same handler, depth and lasti are joined."""
    start = 0
    for handling, run in groupby(owner, _handling):
        end = start + len(list(run))
        if handling is not None:
            yield TryRange(start, end, *handling)
        start = end


def _handling(entry: TryRange | None) -> tuple[int | Label, int, bool] | None:
    return None if entry is None else (entry.handler, entry.depth, entry.push_lasti)
