"""What `bcmend.testing` asserts, called as functions."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import bcmend  # noqa: E402
from bcmend import testing  # noqa: E402
from bcmend.dynamo import compat  # noqa: E402
from bcmend.dynamo.models import methods  # noqa: E402
from bcmend.errors import CallError  # noqa: E402
from tests.testing import models  # noqa: E402

ROOT = Path(__file__).parents[2]
ONES = torch.ones(3)

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _call(model: torch.nn.Module) -> None:
    torch.compile(model, backend="eager")(ONES)


def _noted() -> list[object]:
    """The methods in whose place breaks are noted."""
    return [
        vars(compat.CatchErrorsWrapper)[methods.CALL],
        vars(compat.convert_frame)[methods.TRACE_FRAME],
        vars(compat.InstructionTranslatorBase)[methods.LOG_GRAPH_BREAK],
        vars(compat.OutputGraph)[methods.COMPILE_SUBGRAPH],
    ]


@pytest.mark.parametrize("model", [models.Whole(), models.Branch()])
def test_a_model_that_is_mended_whole_is_one_graph(model: torch.nn.Module) -> None:
    testing.assert_one_graph(model, ONES)


def test_each_break_that_stays_is_named_with_its_place_and_reason() -> None:
    with pytest.raises(AssertionError) as failed:
        testing.assert_one_graph(models.Opens(), x=ONES)
    first, _, place, source, kind, *_ = str(failed.value).splitlines()
    assert first == "Opens is not captured in one graph"
    assert place.startswith("1. tests/testing/models.py:") or "models.py:" in place
    assert "  forward" in place and source == "   | open(__file__)"
    assert "Failed to trace builtin operator (1 break stock, 1 mended)" in kind


def test_a_call_that_raises_is_not_one_graph() -> None:
    with pytest.raises(AssertionError, match="the call of Branch raises AttributeError"):
        testing.assert_one_graph(models.Branch(), "text")


def test_a_model_that_is_equal_gives_its_verdict() -> None:
    verdict = testing.assert_same_as_eager(models.Branch(), ONES, runs=1, sides="all")
    assert verdict.equal and verdict.sides is not None and verdict.runs == 1


def test_a_difference_fails_with_the_text_of_the_verdict() -> None:
    bcmend.register_capture(models.step, lambda x: x * 3)
    with pytest.raises(AssertionError, match=r"Steps: differs in 2 calls(.|\n)*call 1, result"):
        testing.assert_same_as_eager(models.Steps(), ONES)


def test_a_call_that_always_raises_is_not_the_same_as_eager() -> None:
    with pytest.raises(AssertionError, match="each call raised AttributeError"):
        testing.assert_same_as_eager(models.Branch(), "text")


def test_breaks_of_a_block_are_added_up() -> None:
    with testing.graph_breaks(max=2):
        _call(models.Branch())
        _call(models.Opens())
    with pytest.raises(AssertionError) as failed, testing.graph_breaks(max=1):
        _call(models.Branch())
        _call(models.Opens())
    text = str(failed.value)
    assert text.startswith("2 graph breaks, at most 1 allowed\n\n1. ")
    assert "GB0170 Data-dependent branching" in text and "   | open(__file__)" in text


def test_what_was_compiled_before_counts() -> None:
    _call(model := models.Branch())
    with pytest.raises(AssertionError, match="1 graph break,"), testing.graph_breaks(max=0):
        _call(model)


def test_mended_objects_have_no_breaks_in_a_block() -> None:
    with testing.graph_breaks(max=0), testing.graph_breaks(max=0):
        bcmend.compile(models.Branch(), backend="eager")(ONES)


def test_a_block_leaves_nothing_of_its_own_behind() -> None:
    bcmend.unpatch()
    before = _noted()
    bcmend.compile(models.Whole(), backend="eager")
    with testing.graph_breaks(max=0):
        bcmend.compile(models.Branch(), backend="eager")(ONES)
    bcmend.unpatch()
    assert _noted() == before


def test_an_error_of_the_block_is_raised_whatever_broke() -> None:
    with pytest.raises(ZeroDivisionError), testing.graph_breaks(max=0):
        _call(models.Branch())
        raise ZeroDivisionError


@pytest.mark.parametrize("limit", [-1, 1.0, True, None])
def test_a_limit_is_a_number_of_breaks(limit: object) -> None:
    with pytest.raises(CallError, match=r"graph_breaks\(max=...\) takes a number of breaks, 0 or"):
        testing.graph_breaks(max=limit).__enter__()  # type: ignore[arg-type]


def test_unittest_can_use_them() -> None:
    class Case(unittest.TestCase):
        def runTest(self) -> None:
            with testing.graph_breaks(max=0):
                _call(models.Opens())

    result = unittest.TestResult()
    Case().run(result)
    assert len(result.failures) == 1 and not result.errors


def test_importing_them_imports_no_torch() -> None:
    program = "import sys, bcmend.testing.plugin as p; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
    assert set(testing.__all__) <= set(dir(testing))
    with pytest.raises(AttributeError, match="no attribute 'one_graph'"):
        testing.one_graph  # noqa: B018


def _halved(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() / by)


def test_a_capture_that_is_equal_passes() -> None:
    bcmend.register_capture(_halved, lambda x, by=2.0: x.detach() / by)
    values = testing.tensors("float32 float64", dims=[1])
    testing.check_capture(_halved, testing.domain("target(t)", t=values), programs=9, seed=1)


def test_a_capture_that_differs_fails_with_the_program() -> None:
    bcmend.register_capture(_halved, lambda x, by=2.0: x.detach() * 0.5)
    values = testing.tensors("int64", dims=[1])
    with pytest.raises(AssertionError, match=r"def program(.|\n)*result = target\(t, 3\)"):
        testing.check_capture(_halved, testing.domain("target(t, 3)", t=values), programs=9)


def test_a_call_that_is_not_captured_fails() -> None:
    with pytest.raises(AssertionError, match="not captured in one graph"):
        testing.check_capture(open, testing.domain("target('/dev/null').name"), programs=9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: testing.check_capture(_halved, "target(t)"),  # type: ignore[arg-type]
        lambda: testing.check_capture(3, testing.domain("target()")),  # type: ignore[arg-type]
        lambda: testing.check_capture(_halved, testing.domain("target()"), programs=0),
        lambda: testing.domain("target(", t=testing.given("1")),
        lambda: testing.domain("target(t)", t="1"),  # type: ignore[arg-type]
        lambda: testing.domain("target(t)", t=testing.given()),
        lambda: testing.tensors("float33"),
        lambda: testing.arrays(dims=[7]),
        lambda: testing.given("1") | testing.constants("1"),
    ],
)
def test_wrong_domains_are_named(wrong: object) -> None:
    with pytest.raises(CallError):
        wrong()  # type: ignore[operator]
