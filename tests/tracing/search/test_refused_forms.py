"""A form that was refused in a place is known there, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bcmend.tracing.search import refused_forms
from bcmend.tracing.search.refused_forms import on_side, trying


def _trace() -> Any:
    return SimpleNamespace()


def test_a_form_refused_on_a_side_is_known_when_the_side_is_traced_again() -> None:
    trace, condition = _trace(), object()
    for form in (0, 1):
        with trying(trace, "outer", form, condition), on_side(trace, True):
            with trying(trace, "inner", 0, object()) as inner:
                assert inner.known == (("arms-differ", "so") if form else None)
                inner.refuse("arms-differ", "so")
            with trying(trace, "inner", 1, object()) as wider:
                assert wider.known is None


def test_another_side_or_condition_or_time_is_another_place() -> None:
    trace, condition = _trace(), object()
    with trying(trace, "outer", 0, condition), on_side(trace, True):
        with trying(trace, "inner", 0, object()) as inner:
            inner.refuse("arms-differ", "")
        with trying(trace, "inner", 0, object()) as later:
            assert later.known is None
    with trying(trace, "outer", 0, condition), on_side(trace, False):
        with trying(trace, "inner", 0, object()) as inner:
            assert inner.known is None
    with trying(trace, "outer", 0, object()), on_side(trace, True):
        with trying(trace, "inner", 0, object()) as inner:
            assert inner.known is None


def test_a_branch_in_no_arm_is_tried_again() -> None:
    trace, condition = _trace(), object()
    for _ in range(2):
        with trying(trace, "outer", 0, condition) as attempt:
            assert attempt.known is None
            attempt.refuse("arms-differ", "")


def test_what_an_error_leaves_is_no_part_of_later_places() -> None:
    trace = _trace()
    try:
        with trying(trace, "outer", 0, object()), on_side(trace, True):
            raise ValueError
    except ValueError:
        pass
    tried = refused_forms._TRIED.of(trace)
    assert len(tried.sides) == 1 and not tried.branches
