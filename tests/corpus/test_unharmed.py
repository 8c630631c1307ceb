"""Models that need no mending are left as good as they were, and harm is noticed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch.nn import Module

import corpus.unharmed.__main__ as command
import corpus.unharmed.measure as measuring
from bcmend.patching import waiting
from corpus.models.case import ModelCase
from corpus.models.measure import BACKENDS, measure
from corpus.unharmed.measure import Comparison, broken, compare, harm, patch_seconds
from corpus.unharmed.registry import CASES
from tests.corpus import measurements

FAST = (
    "DistilBertModel",
    "GPTBigCodeForCausalLM",
    "ViTForImageClassification",
    "PatchTSMixerModel",
)

#: Of those, what is compiled as users do.
COMPILED = ("DistilBertModel", "PatchTSMixerModel")

MEASURED = replace(
    measurements.GOOD, backend="inductor", stock_graphs=1, lines=0, mended_sites=0, stock_seconds=10
)
GOOD = Comparison(MEASURED, patch_seconds=0.49)


class Asking(Module):
    """A jump that a tensor might decide, so that there is something to patch; here none does."""

    def forward(self, given: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        if factor > 1.0:
            return given * factor
        return given


class Branching(Module):
    """Stock breaks the graph here."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if given.sum() > 0:
            given = given * 2
        return given + 1


def _case(model: type[Module]) -> ModelCase:
    return ModelCase("tiny", lambda: (model(), {"given": torch.ones(2, 4)}), 0, 0)


ASKING = _case(Asking)


def _parameters() -> list[object]:
    quick = [(name, "counting") for name in FAST] + [(name, "inductor") for name in COMPILED]
    return [
        pytest.param(
            case,
            backend,
            id=f"{case.name}-{backend}",
            marks=[] if (case.name, backend) in quick else pytest.mark.slow,
        )
        for case in CASES
        for backend in BACKENDS
    ]


@pytest.mark.parametrize(("case", "backend"), _parameters())
def test_a_model_that_is_captured_whole_stays_so(case: ModelCase, backend: str):
    assert broken(case, measure(case, backend=backend)) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_patching_is_cheap_beside_the_first_call(name: str):
    case = next(each for each in CASES if each.name == name)
    assert harm(case, compare(case)) == ()


def test_there_are_enough_models_and_each_is_there_once():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 60
    assert set(FAST) < set(names)


def test_nothing_is_worse_in_good_figures():
    assert harm(ASKING, GOOD) == ()


WORSE = {
    "a break": ({"mended_graphs": 2}, "1 breaks, required 0"),
    "nothing compiled": ({"mended_graphs": 0}, "-1 breaks, required 0"),
    "an error": ({"mended_error": "E: x"}, "does not run once mended: E: x"),
    "output": ({"output_differences": ("a: 1",)}, "output differs: a: 1"),
    "no case": ({"stock_graphs": 3}, "3 graphs with stock torch.compile, and not one"),
    "no case either": ({"stock_error": "E: x"}, "does not run with stock torch.compile: E: x"),
}


@pytest.mark.parametrize("changes, expected", WORSE.values(), ids=WORSE)
def test_a_worse_figure_is_told(changes: dict[str, object], expected: str):
    worse = replace(GOOD, measurement=replace(MEASURED, **changes))
    assert harm(ASKING, worse) == broken(ASKING, worse.measurement) == (expected,)


def test_expensive_patching_is_told():
    (line,) = harm(ASKING, replace(GOOD, patch_seconds=0.5))
    assert line == "patching takes 5.0% of the first call with inductor"


def test_a_small_model_is_compared():
    stages: list[str] = []
    found = compare(ASKING, backend="counting", on_stage=stages.append)
    assert broken(ASKING, found.measurement) == ()
    assert found.patch_seconds > 0
    assert found.share == found.patch_seconds / found.first_call_seconds
    assert found.first_call_seconds == found.measurement.stock_seconds > 0
    assert stages[-2:] == ["fullgraph", "patching"]


def test_a_model_that_stock_breaks_is_no_case():
    (line,) = broken(ASKING, measure(_case(Branching), backend="counting"))
    assert line == "2 graphs with stock torch.compile, and not one"


def test_the_quickest_round_counts_and_nothing_stays_patched(monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])
    patched: list[bool] = []

    def reading() -> float:
        patched.append(waiting.is_waited_for(Asking.forward.__code__))
        return next(clock)

    monkeypatch.setattr(measuring, "perf_counter", reading)
    assert patch_seconds(ASKING) == 2.0
    assert patched == [False, True] * 3
    assert not waiting.is_waited_for(Asking.forward.__code__)


@pytest.mark.parametrize("seconds, expected", [(0.1, 0), (5.0, 1)])
def test_the_command_says_in_its_exit_code_whether_a_model_is_worse(
    monkeypatch, capsys, tmp_path, seconds: float, expected: int
):
    monkeypatch.setattr(command, "CASES", (ASKING,))
    monkeypatch.setattr(command, "compare", lambda *_, **__: replace(GOOD, patch_seconds=seconds))
    written = tmp_path / "figures.json"

    assert command.main(["tiny", "--json", str(written)]) == expected

    (model,) = json.loads(written.read_text())["models"]
    assert model["share"] == seconds / 10.0
    assert len(model["harm"]) == expected
    assert f"{1 - expected} of 1 unharmed" in capsys.readouterr().out


def test_the_command_refuses_a_model_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["NoModel"])
    assert ended.value.code == 2
    assert "no model called NoModel" in capsys.readouterr().err
