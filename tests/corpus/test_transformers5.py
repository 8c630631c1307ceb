"""The corpus of transformers 5.4.0, as far as it can be looked at without that version."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers

from corpus.models.observe import Line
from corpus.transformers5 import __main__ as command
from corpus.transformers5 import measure as measure_module
from corpus.transformers5.measure import (
    MODES,
    Measurement,
    Run,
    Seconds,
    Shown,
    _own_differences,
    now,
    ratios,
)
from corpus.transformers5.registry import CASES

BART = next(case for case in CASES if case.name == "BartModel")


def _measurement(**given: Any) -> Measurement:
    known: dict[str, Any] = {
        "name": "BartModel",
        "mode": "train",
        "stock_graphs": 9,
        "stock_error": None,
        "graphs": 1,
        "error": None,
        "differences": (),
        "refusals": (),
        "first_call": 1.0,
        "later_call": 1.0,
    }
    return Measurement(**known | given)


def test_each_model_is_there_once() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 20


def test_what_waits_waits_in_a_mode() -> None:
    assert all(set(case.waits) <= set(MODES) for case in CASES)


def test_another_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transformers, "__version__", "4.52.4")
    with pytest.raises(SystemExit) as stopped:
        command.main([])
    assert stopped.value.code == 2
    assert "needs transformers 5.4.0, and this is 4.52.4" in capsys.readouterr().err


def test_a_model_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(["NoModel"])
    assert "no model called NoModel" in capsys.readouterr().err


def _logged(*texts: str) -> Run:
    lines = tuple(Line("transformers", "WARNING", text) for text in texts)
    return Run(1, None, (Shown(None, lines, {}, {}, None),), ())


@pytest.mark.parametrize(
    ("mended", "stock", "count"),
    [(["old"], ["old"], 0), ([], [], 0), ([], ["old"], 1), (["new"], [], 1), (["new"], ["new"], 0)],
)
@pytest.mark.parametrize("backend", ["counting", "inductor"])
def test_a_log_is_that_of_eager_or_that_of_stock(
    mended: list[str], stock: list[str], count: int, backend: str
) -> None:
    found = _own_differences(_logged("old"), _logged(*mended), _logged(*stock), backend)
    assert len(list(found)) == count


def _given(*numbers: float) -> Run:
    outputs = (Shown(torch.tensor(each), (), {}, {}, None) for each in numbers)
    return Run(1, None, tuple(outputs), ())


@pytest.mark.parametrize(
    ("stock", "mended", "count"),
    [
        ((0.5, 0.5), (1.0, 0.5), 0),  # as stock, with a first call in plain Python
        ((0.5, 0.5 + 1e-6), (1.0, 0.5), 0),  # and what stock has rounded since
        ((1.0, 1.0 + 1e-6), (1.0, 1.0 + 2e-6), 1),  # stock rounds, and no more
        ((0.5, 0.5), (1.0, 0.6), 1),
        ((1.0, 1.0), (1.0, 0.5), 1),
    ],
)
def test_what_stock_changes_by_far_is_no_difference(
    stock: tuple[float, ...], mended: tuple[float, ...], count: int
) -> None:
    found = _own_differences(_given(1.0, 1.0), _given(*mended), _given(*stock), "counting")
    assert len(list(found)) == count


@pytest.mark.parametrize(("parameter", "count"), [(1.0, 1), (1.0 + 2e-7, 0), (1.1, 2)])
def test_what_a_step_rounds_later_calls_show(parameter: float, count: int) -> None:
    def run(parameter: float, later: float) -> Run:
        first = Shown(None, (), {}, {"weight": torch.tensor(parameter)}, None)
        return Run(1, None, (first, Shown(torch.tensor(later), (), {}, {}, None)), ())

    eager, mended = run(1.0, 1.0), run(parameter, 1.0 + 5e-7 if parameter < 1.1 else 2.0)
    found = _own_differences(eager, mended, eager, "counting")
    assert len(list(found)) == count


def test_what_fails_is_told() -> None:
    good, other = _measurement(), _measurement(differences=("output: other",))
    stopped = _measurement(error="Unsupported: a jump")
    assert command.failures([(BART, good)]) == []
    assert command.failures([(BART, other)]) == ["BartModel, train: output: other"]
    assert command.failures([(BART, stopped)]) == ["BartModel, train: Unsupported: a jump"]
    assert command.failures([(BART, _measurement(graphs=3))]) == ["BartModel, train: 3 graphs"]


def test_a_case_that_says_too_little_fails() -> None:
    waiting = next(case for case in CASES if "train" in case.waits)
    (line,) = command.failures([(waiting, _measurement(name=waiting.name))])
    assert line.endswith("is one graph, and its case says that it is none")


def test_a_later_call_is_the_median_of_several() -> None:
    ticks = iter([0, 1, 1, 3, 3, 4, 4, 9, 9, 10, 10, 11, 11, 12])

    def reading() -> Seconds:
        return Seconds(tick := float(next(ticks)), 2 * tick)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure_module, "now", reading)
        assert measure_module._steady(iter(range(7))) == Seconds(1.0, 2.0)


def test_seconds_of_processors_stand_beside_those_of_the_clock() -> None:
    stock = Run(1, None, (), (Seconds(4.0, 2.0), Seconds(9.0, 9.0)), Seconds(1.0, 0.5))
    mended = Run(1, None, (), (Seconds(5.0, 3.0), Seconds(1.0, 1.0)), Seconds(2.0, 0.5))
    assert ratios(stock, mended, Seconds(1.0, 1.0)) == (Seconds(1.5, 2.0), Seconds(2.0, 1.0))
    failed = Run(1, "Error: x", (), ())
    assert ratios(stock, failed, Seconds(1.0, 1.0)) == (Seconds(0.0, 0.0), Seconds(0.0, 0.0))


def test_children_that_have_ended_are_counted() -> None:
    start = now()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    assert now().since(start).processor > 0.01
