"""The line table, as the running CPython reads it."""

from __future__ import annotations

from types import CodeType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmend.bytecode.instructions import AssembleError, Location
from bcmend.bytecode.line_table import checked, divided, encode

FIRST_LINE = 40


def template() -> None:
    pass


def positions(table: bytes, units: int) -> list[tuple[int | None, ...]]:
    """Let CPython read a table of ``units`` code units."""
    code: CodeType = template.__code__.replace(
        co_code=bytes([9, 0]) * units, co_linetable=table, co_firstlineno=FIRST_LINE
    )
    return list(code.co_positions())


def fields(location: Location) -> tuple[int | None, ...]:
    return (
        location.lineno,
        location.end_lineno,
        location.col_offset,
        location.end_col_offset,
    )


@st.composite
def locations(draw: st.DrawFn) -> Location:
    kind = draw(st.sampled_from(["none", "line", "short", "any"]))
    if kind == "none":
        return Location()
    line = draw(st.integers(1, 2000))
    if kind == "line":
        return Location(line, line)
    column = draw(st.integers(0, 300))
    if kind == "short":
        return Location(line, line, column, column + draw(st.integers(0, 40)))
    end_line = line + draw(st.integers(1, 99))
    return Location(line, end_line, column, draw(st.integers(0, 300)))


runs = st.lists(st.tuples(locations(), st.integers(1, 20)), min_size=1, max_size=12)


@given(runs)
def test_cpython_reads_what_was_encoded(given_runs: list[tuple[Location, int]]) -> None:
    expected = [fields(location) for location, units in given_runs for _ in range(units)]
    assert positions(encode(given_runs, FIRST_LINE), len(expected)) == expected


@given(runs, st.data())
def test_a_table_can_be_continued_after_a_split(
    given_runs: list[tuple[Location, int]], data: st.DataObject
) -> None:
    expected = [fields(location) for location, units in given_runs for _ in range(units)]
    at = data.draw(st.integers(1, len(expected)))
    before, uncovered, after = divided(encode(given_runs, FIRST_LINE), at)
    assert positions(before, at) == expected[:at]
    here = Location(*expected[at - 1])
    line = FIRST_LINE if here.lineno is None else here.lineno
    if here.lineno is None:
        earlier = [each[0] for each in expected[:at] if each[0] is not None]
        line = earlier[-1] if earlier else FIRST_LINE
    again = before + encode([(here, uncovered)], line) + after
    assert positions(again, len(expected)) == expected


@pytest.mark.parametrize(
    ("known_in_part", "kept"),
    [
        (Location(None, 3, 1, 2), Location()),
        (Location(3, None, 1, 2), Location(3, 3)),
        (Location(3, 9, None, 2), Location(3, 3)),
        (Location(3, 9, 1, None), Location(3, 3)),
    ],
)
def test_what_is_known_in_part_keeps_its_line(known_in_part: Location, kept: Location) -> None:
    assert checked(known_in_part) == kept


@pytest.mark.parametrize(
    "location", [Location(3, 2, 1, 1), Location(3, 3, 5, 4), Location(3, 3, -1, 4)]
)
def test_a_location_that_ends_before_it_starts_is_refused(location: Location) -> None:
    with pytest.raises(AssembleError):
        checked(location)
