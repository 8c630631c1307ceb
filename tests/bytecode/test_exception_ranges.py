"""Flattening of try ranges against a search for the innermost one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmend.bytecode.exception_ranges import flatten, placed_index, range_of_each
from bcmend.bytecode.instructions import AssembleError, Label, TryRange

COUNT = 12


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Draw extents of which any two are nested or apart, and none are the same."""
    made: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, COUNT - 1))
        end = draw(st.integers(start + 1, COUNT))
        if all(
            (end <= a or b <= start or (a <= start and end <= b) or (start <= a and b <= end))
            and (a, b) != (start, end)
            for a, b in made
        ):
            made.append((start, end))
    return draw(st.permutations(made))


@given(nested())
def test_each_instruction_gets_its_innermost_range(extents: list[tuple[int, int]]) -> None:
    labels = [Label(str(index)) for index in range(COUNT + 1)]
    placed = {label: index for index, label in enumerate(labels)}
    # The handler shows which range an entry comes from.
    tries = [
        TryRange(labels[start], labels[end], labels[number], 0, False)
        for number, (start, end) in enumerate(extents)
    ]
    found: list[int | None] = [None] * COUNT
    last_end = 0
    for entry in flatten(tries, placed, COUNT):
        assert isinstance(entry.start, int) and isinstance(entry.end, int)
        assert last_end <= entry.start < entry.end
        last_end = entry.end
        for index in range(entry.start, entry.end):
            assert isinstance(entry.handler, int)
            found[index] = entry.handler
    for index in range(COUNT):
        covering = [n for n, (start, end) in enumerate(extents) if start <= index < end]
        innermost = min(covering, key=lambda n: extents[n][1] - extents[n][0], default=None)
        assert found[index] == innermost


LABELS = [Label(str(index)) for index in range(6)]
PLACED = {label: index for index, label in enumerate(LABELS)}


def try_range(start: int, end: int, handler: int, depth: int = 0) -> TryRange:
    return TryRange(LABELS[start], LABELS[end], LABELS[handler], depth, False)


def test_neighbours_with_one_handler_are_joined() -> None:
    joined = flatten([try_range(2, 4, 5), try_range(0, 2, 5)], PLACED, 6)
    assert joined == [TryRange(0, 4, 5, 0, False)]


def test_empty_ranges_vanish() -> None:
    assert flatten([try_range(2, 2, 5)], PLACED, 6) == []


def test_of_two_ranges_of_one_extent_the_deeper_is_the_inner_one() -> None:
    shallow, deep = try_range(0, 2, 4), try_range(0, 2, 5, 1)
    for tries in ([shallow, deep], [deep, shallow]):
        assert flatten(tries, PLACED, 6) == [TryRange(0, 2, 5, 1, False)]


@pytest.mark.parametrize(
    "tries",
    [
        [try_range(0, 3, 5), try_range(2, 4, 5)],
        [try_range(0, 3, 4), try_range(0, 3, 5)],
        [try_range(3, 2, 5)],
    ],
)
def test_ranges_without_a_reading_are_refused(tries: list[TryRange]) -> None:
    with pytest.raises(AssembleError):
        flatten(tries, PLACED, 6)


def test_a_label_has_to_be_placed() -> None:
    assert placed_index(LABELS[3], PLACED) == 3
    with pytest.raises(AssembleError, match="not placed"):
        placed_index(Label("elsewhere"), PLACED)
    with pytest.raises(AssembleError, match="not placed"):
        placed_index(3, PLACED)


def test_of_several_ranges_the_last_applies() -> None:
    outer, inner = TryRange(0, 4, 9, 0, False), TryRange(1, 3, 8, 1, False)
    assert range_of_each([outer, inner], 6) == [outer, inner, inner, outer, None, None]
    assert range_of_each([], 2) == [None, None]
