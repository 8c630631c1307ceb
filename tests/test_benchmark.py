"""The result of `bcmend.bench`: ratios, what can be told apart, when a first call is paid back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bcmend.reports.benchmark import Benchmark, Measured, Spread, paid_back, spread_of
from tests.benchmarks import MENDED, STOCK, benchmark, spread


def _row(found: Benchmark, label: str) -> str:
    (row,) = [each for each in str(found).splitlines() if each.startswith(label)]
    return " ".join(row.removeprefix(label).split())


def test_a_spread_has_the_median_and_the_quartiles_of_turns() -> None:
    assert spread_of([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert spread_of([2.0]) == Spread(2.0, 2.0, 2.0, 1)
    assert spread_of([]) is None


def test_what_overlaps_cannot_be_told_apart() -> None:
    assert Spread(1.0, 0.5, 1.5, 5).overlaps(Spread(2.0, 1.5, 2.5, 5))
    assert not Spread(1.0, 0.5, 1.4, 5).overlaps(Spread(2.0, 1.5, 2.5, 5))
    assert Spread(1.0, 0.5, 1.4, 5).overlaps(Spread(2.0, 1.5, 2.5, 2))  # two turns say nothing


def test_the_verdict_comes_first_with_ratios_and_graphs() -> None:
    found = benchmark()
    verdict = "mended: 0.50 times stock's time and 0.38 times eager's time, one graph instead of 14"
    assert found.verdict == verdict == str(found).splitlines()[1]
    assert (found.ratio("mended", "stock"), found.ratio("stock", "eager")) == (0.5, 0.75)
    assert _row(found, "  ratio to stock") == "- - 0.50"
    assert verdict in json.loads(found.to_json())["verdict"]


def test_times_that_overlap_are_no_difference() -> None:
    near = replace(MENDED, later=spread(2.95))
    found = benchmark(mended=near)
    assert found.verdict.startswith(
        "mended: 0.74 times eager's time, no difference measurable to stock's time"
    )
    assert not found.is_measurable("mended", "stock")
    assert _row(found, "  ratio to stock") == "- - 0.98, not measurable"
    assert found.payback("mended", "stock") == "never"


def test_a_longer_first_call_is_paid_back_by_what_later_ones_save() -> None:
    found = benchmark()
    assert found.payback("mended", "stock") == 40  # 60 seconds more, 1.5 saved by each
    assert found.payback("mended", "eager") == 38  # 95 seconds more, 2.5 saved by each
    assert found.payback("mended", "stock", warm=True) == 0
    assert found.payback("mended", "eager", warm=True) == 6
    assert _row(found, "paid back beside stock, cold") == "- - after 40 calls"
    assert _row(found, "paid back beside stock, warm") == "- - at once"


@pytest.mark.parametrize(
    "extra, later, other, expected",
    [
        (10.0, spread(1.0), spread(2.0), 10),
        (10.1, spread(1.0), spread(2.0), 11),
        (10.0, spread(2.0), spread(1.0), "never"),
        (10.0, spread(1.0, 2.0), spread(2.0, 2.0), "never"),
        (0.0, spread(2.0), spread(1.0), 0),
        (-5.0, spread(1.0), spread(2.0), 0),
    ],
)
def test_paying_back(extra: float, later: Spread, other: Spread, expected: int | str) -> None:
    assert paid_back(extra, later, other) == expected


def test_no_times_are_compared_of_a_back_end_that_only_traces() -> None:
    found = benchmark(backend="eager", only_traces=True)
    assert found.verdict == "mended: one graph instead of 14"
    assert found.ratio("mended", "stock") is found.payback("mended", "stock") is None
    text = str(found)
    assert "ratio" not in text and "paid back" not in text and "'eager' only traces" in text
    assert [each["ratio"] for each in found.to_dict()["compared"]] == [None] * 3


def test_what_fails_is_in_its_row_and_loses_nothing_else() -> None:
    found = benchmark(mended=Measured(raised="ValueError: <no>"))
    assert found.verdict == "mended: the call raises ValueError: <no>" and found.raised == ""
    assert _row(found, "later call") == "4 s (3.95 to 4.05) 3 s (2.95 to 3.05) raised"
    assert "the call raises mended: ValueError: <no>" in str(found).splitlines()
    assert _row(found, "  ratio to eager") == "- 0.75 -"
    assert "ValueError: &lt;no&gt;" in found.to_html() and "<no>" not in found.to_html()
    assert benchmark(stock=Measured(raised="KeyError: 1")).raised == "KeyError: 1"
    alike = dict.fromkeys(("eager", "stock", "mended"), Measured(raised="KeyError: 1"))
    assert benchmark(**alike).verdict == "each call raises: KeyError: 1"


def test_what_was_not_measured_is_no_number() -> None:
    found = benchmark(is_complete=False, mended=Measured(first_cold=3.0))
    assert found.verdict == "mended: not measured"
    assert found.ratio("mended", "stock") is found.payback("mended", "stock") is None
    assert "interrupted" in str(found) and _row(found, "later call").endswith("-")


def test_stock_that_captures_nothing_has_no_graph() -> None:
    assert benchmark(stock=replace(STOCK, graphs=0)).verdict.endswith("one graph instead of none")
    assert benchmark(stock=replace(STOCK, graphs=1)).verdict.endswith("one graph, as stock")


def test_a_module_that_is_in_training_mode_is_noted() -> None:
    assert "call eval() first" in str(benchmark(in_training_mode=True))
    assert "call eval() first" not in str(benchmark(in_training_mode=True, train=True))


def test_the_page_needs_nothing_and_a_notebook_shows_the_table() -> None:
    found = benchmark()
    page, part = found.to_html(), found._repr_html_()
    assert page.startswith("<!doctype html>") and "http" not in page and "<script" not in page
    for text in (page, part):
        assert "<td>  ratio to stock</td><td>-</td><td>-</td><td>0.50</td>" in text
    assert part.lstrip().startswith('<div class="bcmend">') and "<html" not in part
