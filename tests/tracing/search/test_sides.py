"""Which side of a branch graphs have, and when that is another one."""

from __future__ import annotations

import pytest

from bcmend.policy import Policy
from bcmend.tracing.search import sides
from bcmend.tracing.search.sides import Exits, NotedSides
from bcmend.tracing.sites.site_table import LiveSite


def _site(name: str = "tests.site", *, one_sided: bool = True) -> LiveSite:
    policy = Policy(one_sided="exit" if one_sided else "break")
    site = LiveSite(name, "branch", (lambda: None).__code__, policy)
    site.outcome.refused = {"arms-differ": ""}
    return site


def _noted(*refused: tuple[LiveSite, bool]) -> NotedSides:
    noted = NotedSides()
    noted.refused.extend(refused)
    return noted


def _one_sided() -> tuple[LiveSite, NotedSides]:
    """Return a branch of which a trace has taken the side where the condition is false."""
    site, noted = _site(), NotedSides()
    sides.have_one(site, False)
    site.exits = Exits()
    noted.taken.append((site, False))
    return site, noted


@pytest.mark.parametrize(
    ("left", "turns_at"),
    [
        ("yy", 2),
        ("yn" * 8, None),
        ("ny" * 8, None),
        ("n" * 7 + "y" * 9, 16),
        ("n" * 16 + "y" * 99, None),
    ],
)
def test_most_of_the_first_calls_decide(left: str, turns_at: int | None) -> None:
    exits, found = Exits(), []
    for each in left:
        exits.note(is_left=each == "y")
        found.append(exits.are_most)
    assert (found.index(True) + 1 if True in found else None) == turns_at
    exits.is_settled = True
    assert not exits.are_most


@pytest.mark.parametrize("traceable", [None, False, True])
def test_the_first_side_is_the_one_that_can_be_traced(traceable: bool | None) -> None:
    site = _site()
    assert sides.side_of(site) is None
    site.outcome.traceable = traceable
    assert _noted((site, False)).leave()
    assert sides.side_of(site) is bool(traceable)
    assert not _noted((site, False)).leave(), "it has one side already"


def test_nothing_is_left_by_default() -> None:
    site = _site(one_sided=False)
    noted = _noted((site, False))
    noted.decided.append((site, True))
    assert not noted.leave() and sides.side_of(site) is None


def test_a_branch_in_an_arm_comes_first_unless_it_is_behind_the_branch() -> None:
    before, inner, outer, behind = map(_site, "abcd")
    noted = _noted((before, False), (inner, True), (outer, False), (behind, True), (outer, False))
    assert noted.leave()
    assert [sides.side_of(each) for each in (before, inner, outer, behind)] == [
        *(None, False, None, None)
    ]
    assert noted.leave() and sides.side_of(outer) is False
    assert not noted.leave() and sides.side_of(behind) is None


def test_a_trace_that_stops_turns_a_side_once_and_back_once() -> None:
    site, noted = _one_sided()
    assert noted.turn() and sides.side_of(site) is True
    assert noted.turn() and sides.side_of(site) is False
    assert not noted.turn() and sides.side_of(site) is False


def test_a_side_that_a_graph_has_had_is_turned_for_calls_alone() -> None:
    site, noted = _one_sided()
    noted.note_captured()
    assert not noted.turn()
    assert sides.turn(site) and sides.is_turned_for_calls(site)
    site.exits.is_captured = False
    assert sides.side_of(site) is True
    assert noted.turn() and sides.side_of(site) is False, "the other side stops a trace"


def test_a_branch_decided_in_front_of_the_graph_has_the_other_side_if_that_one_stops() -> None:
    site, noted = _site(), NotedSides()
    site.outcome.refused.clear()
    noted.decided.append((site, True))
    assert noted.leave() and sides.side_of(site) is False
