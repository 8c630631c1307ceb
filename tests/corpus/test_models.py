"""Real models reach the figures that the corpus requires, and a worse figure is noticed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import transformers
from torch.nn import Linear, Module

import corpus.models.__main__ as command
from corpus.models import CASES, ModelCase, case_named, failures, measure
from tests.corpus.measurements import GOOD

AS_MEASURED = torch.__version__.startswith("2.13.") and transformers.__version__ == "4.52.4"
FAST = ("t5",)


class Branching(Module):
    """One branch on a tensor, so one graph break as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = Linear(4, 4)

    def forward(self, given: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.linear(given)
        if hidden.sum() > 0:
            hidden = hidden * 2
        else:
            hidden = hidden - 1
        return {"hidden": hidden}


class Straight(Module):
    """Nothing to mend."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given + 1


def _case(model: type[Module]) -> ModelCase:
    return ModelCase("tiny", lambda: (model(), {"given": torch.randn(2, 4)}), 1, 0)


BRANCHING, STRAIGHT = _case(Branching), _case(Straight)


def _parameters() -> list[object]:
    return [
        pytest.param(case, id=case.name, marks=[] if case.name in FAST else pytest.mark.slow)
        for case in CASES
    ]


@pytest.mark.parametrize("case", _parameters())
def test_a_mended_model_is_as_good_as_required(case: ModelCase):
    measurement = measure(case, backend="counting")
    assert failures(case, measurement) == ()
    if AS_MEASURED:
        assert measurement.stock_breaks == case.stock_breaks


def test_a_branch_on_a_tensor_is_one_break_and_none_once_mended():
    measurement = measure(BRANCHING, backend="counting")
    assert (measurement.stock_breaks, measurement.mended_breaks) == (1, 0)
    assert measurement.fullgraph_error is None
    assert measurement.mended_sites == 1
    assert failures(BRANCHING, measurement) == ()


def test_every_stage_is_announced():
    stages: list[str] = []
    measure(STRAIGHT, backend="counting", on_stage=stages.append)
    assert stages == ["eager", "stock", "mended", "fullgraph"]


def test_the_names_are_unique_and_found():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) == 13
    assert [case_named(name) for name in names] == list(CASES)


def test_a_name_that_is_not_there_is_an_error_that_lists_the_others():
    with pytest.raises(KeyError, match="no model 't6'; there are t5, whisper"):
        case_named("t6")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_mending_is_never_allowed_to_be_worse_than_stock(case: ModelCase):
    assert 0 <= case.required_breaks <= case.stock_breaks


WORSE = {
    "a break": ({"mended_graphs": 2}, "1 breaks, required 0"),
    "nothing compiled": ({"mended_graphs": 0}, "-1 breaks, required 0"),
    "an error": ({"mended_error": "E: x"}, "does not run once mended: E: x"),
    "fullgraph": ({"fullgraph_error": "E: x"}, "fullgraph=True fails: E: x"),
    "output": ({"output_differences": ("a: 1",)}, "output differs: a: 1"),
    "log": ({"line_differences": ("missing: x",)}, "log differs: missing: x"),
}


@pytest.mark.parametrize("changes, expected", WORSE.values(), ids=WORSE)
def test_a_worse_figure_is_a_failure(changes: dict[str, object], expected: str):
    assert failures(BRANCHING, replace(GOOD, **changes)) == (expected,)


def test_good_figures_are_no_failure():
    assert failures(BRANCHING, GOOD) == ()


def test_a_line_that_stock_loses_too_is_no_failure():
    lost = ("missing: x",)
    measurement = replace(GOOD, line_differences=lost, stock_line_differences=lost)
    assert failures(BRANCHING, measurement) == ()


@pytest.mark.parametrize(
    "backend, stock, count",
    [("inductor", ("a: 2",), 0), ("inductor", ("b: 1",), 1), ("counting", ("a: 2",), 1)],
)
def test_a_back_end_that_rounds_differently_unpatched_too_is_no_failure(
    backend: str, stock: tuple[str, ...], count: int
):
    measurement = replace(
        GOOD, backend=backend, output_differences=("a: 1",), stock_output_differences=stock
    )
    assert len(failures(BRANCHING, measurement)) == count


@pytest.mark.parametrize("graphs, expected", [(1, 0), (2, 1)])
def test_the_command_says_in_its_exit_code_whether_a_figure_is_worse(
    monkeypatch, capsys, tmp_path, graphs: int, expected: int
):
    case = replace(STRAIGHT, name="straight")
    monkeypatch.setattr(command, "CASES", (case,))
    monkeypatch.setattr(command, "measure", lambda *_, **__: replace(GOOD, mended_graphs=graphs))
    written = tmp_path / "figures.json"

    assert command.main(["straight", "--json", str(written)]) == expected

    document = json.loads(written.read_text())
    assert document["torch"] == torch.__version__
    assert [model["mended_breaks"] for model in document["models"]] == [graphs - 1]
    assert "straight" in capsys.readouterr().out


def test_the_command_refuses_a_model_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["t6"])
    assert ended.value.code == 2
    assert "no model called t6" in capsys.readouterr().err
