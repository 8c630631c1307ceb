"""Output that is not written and checks that are met cost nothing that a user sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.ratios import (
    Ratio,
    disabled_level_overhead,
    false_predicate_overhead,
    met_check_overhead,
    numbers_overhead,
)


@pytest.mark.parametrize(
    "take", [disabled_level_overhead, false_predicate_overhead, met_check_overhead]
)
def test_what_does_not_show_costs_nothing(
    take: Callable[[], Ratio], show: Callable[[Ratio], Ratio]
) -> None:
    assert show(take()).good


def test_numbers_in_front_of_the_graph_cost_what_reading_them_costs(
    show: Callable[[Ratio], Ratio],
) -> None:
    assert show(numbers_overhead()).good
