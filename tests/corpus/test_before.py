"""Code as it was before a break was removed by hand: mended it is one graph, and equal to eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import bcmend
from bench import before as command
from corpus.before.case import SMALL, Case
from corpus.before.cases import images
from corpus.before.registry import CASES
from corpus.models.compare import differences
from corpus.towers.measure import MODES, Way, measure
from tests.samples import sampled

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

#: By how many more variants than the fix: a list of another length, a flag that the data set, a
#: text that is there or not in each of two samples.
MORE_VARIANTS: Final = {"clips-by-split": 1, "molecules-in-rows": 1, "positions-by-sample": 5}
#: With Inductor by default: one by a select, one whose sizes are computed in front.
SAMPLE: Final = ("cast-overflow-tensors", "molecules-in-one")

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def _way(case: Case, form: str, way: str, mode: str = "eval", backend: str = "counting") -> Way:
    with torch._dynamo.config.patch(**case.settings_of(form)):
        return measure(case.kind(form), mode, backend=backend, ways=(way,)).ways[way]


def _built(case: Case, form: str) -> nn.Module:
    return case.kind(form).build().eval()


def test_names_are_there_once():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 11
    assert {*MORE_VARIANTS, *SAMPLE} < set(names)


@pytest.mark.parametrize(
    ("case", "form"),
    [
        pytest.param(case, form, id=f"{case.name}-{form}")
        for case in CASES
        for form in case.forms[1:]
    ],
)
def test_all_forms_compute_the_same(case: Case, form: str):
    old, new = _built(case, "before"), _built(case, form)
    new.load_state_dict(old.state_dict())
    layouts = case.layouts(SMALL)
    assert len(layouts) >= 5
    for arguments in layouts:
        found = differences(old(**arguments), new(**arguments), tolerance=case.tolerance)
        assert list(found) == []


@pytest.mark.parametrize("case", [case for case in CASES if case.same], ids=lambda case: case.name)
def test_what_computes_the_same_needs_no_mending(case: Case):
    found = _way(case, "same", "stock, fullgraph")
    assert (found.error, found.differences) == (None, ()) and found.is_whole


@each_case
def test_stock_breaks_or_fails(case: Case):
    ways = "stock", "stock, fullgraph"
    assert not all(_way(case, "before", way).is_whole for way in ways)


@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", sampled(CASES, lambda case: case.name, of=2))
def test_mended_it_is_one_graph_in_no_more_variants(case: Case, mode: str):
    mended = _way(case, "before", "mended, fullgraph", mode)
    assert (mended.error, mended.differences) == (None, ())
    assert mended.is_whole
    fixed = _way(case, "fixed", "stock, fullgraph", mode)
    assert sum(mended.compiled) <= sum(fixed.compiled) + MORE_VARIANTS.get(case.name, 0)


@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name in SAMPLE else pytest.mark.slow)
        for case in CASES
    ],
)
def test_with_inductor(case: Case, mode: str):
    mended = _way(case, "before", "mended, fullgraph", mode, "inductor")
    assert (mended.error, mended.differences) == (None, ())
    assert mended.is_whole


@pytest.mark.slow
@each_case
def test_strides_are_those_of_eager_execution(case: Case):
    model = _built(case, "before")
    bcmend.patch(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for arguments in case.layouts(SMALL)[:3]:
            assert _strides(compiled(**arguments)) == _strides(model(**arguments))


def _strides(output: object) -> list[tuple[int, ...]]:
    return [each.stride() for each in tree_leaves(output) if isinstance(each, Tensor)]


def _outcome(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        call(**arguments)
    except Exception as error:  # whatever it is, it is compared
        return type(error), error.args
    return None


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", [images.CheckedWithMessage, images.CompilableCheck])
def test_a_check_raises_what_eager_execution_raises(form: type[nn.Module], backend: str):
    (case,) = (each for each in CASES if each.name == "check-with-message")
    layouts = case.layouts(SMALL)
    wrong = {**layouts[1], "features": layouts[1]["features"][:2]}
    model = form(SMALL).eval()
    bcmend.patch(model)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        for arguments in (layouts[0], wrong, layouts[1], wrong):
            assert _outcome(compiled, arguments) == _outcome(model, arguments)
    kind, (message,) = _outcome(model, wrong)
    assert kind is ValueError and message.endswith("tokens: 4, features: 2")


def test_the_check_of_transformers_raises_what_eager_execution_raises():
    tools = pytest.importorskip("transformers.utils.import_utils")
    if not hasattr(tools, "torch_compilable_check"):
        pytest.skip("transformers has no such check before release 5")

    def program(x: Tensor, count: Tensor) -> Tensor:
        total = count.sum()
        told = lambda: f"{total} in place of {x.shape[0]}"  # noqa: E731
        tools.torch_compilable_check(total == x.shape[0], told, IndexError)
        return x * total

    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    for counts in ([1, 2], [2, 2], [3, 0]):
        arguments = {"x": torch.ones(3), "count": torch.tensor(counts)}
        assert _outcome(compiled, arguments) == _outcome(program, arguments)


def test_the_command_refuses_a_case_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        command.main(["no-case"])
    assert ended.value.code == 2
    assert "no case called no-case" in capsys.readouterr().err


def test_a_ratio_beyond_the_limit_is_no_success(monkeypatch, capsys):
    slow = command.Found("a", (3.0, 2.0), 1.0, 0.001, (1, 1))
    late = command.Found("a, same", (2.0, 2.0), 1.03, 0.001, (1, 1))
    quick = command.Found("a", (2.0, 2.0), 1.02, 0.001, (1, 1))
    monkeypatch.setattr(command, "_warm_up", lambda: None)
    for found, code in (([slow], 1), ([quick, late], 1), ([quick], 0)):
        monkeypatch.setattr(command, "measure", lambda name, forms, found=found: found)
        assert command.main(["mask-by-sample"]) == code
    assert "1.50" in capsys.readouterr().out
