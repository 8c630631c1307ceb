"""A short run of the fuzzer, the same every time; and checks that its parts do what they say."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

import bcmend
from tests.differences_of_torch import CHECKS_OF_NUMBERS_PASS
from tests.fuzz.grammar import programs
from tests.fuzz.oracles import WRONG, judge
from tests.fuzz.programs import Program
from tests.fuzz.saved import Saved, saved
from tests.samples import is_of_a_sample


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """Keep the compiler's log out of what programs write, as the command does."""
    torch._dynamo.reset()
    log = logging.getLogger("torch")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)
    bcmend.unpatch()
    torch._dynamo.reset()


def _run(oracle: str, examples: int) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def check(program: Program) -> None:
        verdict = judge(oracle, program)
        assert verdict.kind != WRONG, f"{verdict.differences}\n{program.text}"

    check()


@pytest.mark.filterwarnings("ignore")
def test_mended_code_in_plain_python() -> None:
    _run("plain", 60)


@pytest.mark.filterwarnings("ignore")
def test_patched_programs_in_eager_execution() -> None:
    _run("eager", 40)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("oracle", ["compiled", "fullgraph", "aot_eager"])
def test_patched_programs_compiled(oracle: str) -> None:
    _run(oracle, 5)


#: Failures that are torch's own in the running release, and what it does.
_OF_TORCH = {"fuzz_46add652a6": "checks of numbers"} if CHECKS_OF_NUMBERS_PASS else {}


def _marked(one: Saved) -> object:
    reason = one.open or _OF_TORCH.get(one.name, "")
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    if not is_of_a_sample(one.name, of=2):
        marks.append(pytest.mark.slow)
    return pytest.param(one, id=one.name, marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", [_marked(each) for each in saved()])
def test_a_failure_that_was_found(one: Saved) -> None:
    verdict = judge(one.oracle, one.program)
    assert verdict.kind != WRONG, verdict.differences


@settings(max_examples=50, derandomize=True, deadline=None, database=None)
@given(programs())
def test_programs_are_valid_and_have_calls(program: Program) -> None:
    ast.parse(program.source)
    for each in program.calls:
        ast.parse(f"program({each})")
