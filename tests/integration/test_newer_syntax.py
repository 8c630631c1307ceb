"""Programs in the syntax of newer Pythons, which this file cannot hold as code."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import bcmend
from tests.equivalence import assert_equivalent, call

pytestmark = pytest.mark.skipif(sys.version_info < (3, 14), reason="the syntax of Python 3.14")


def _program(source: str) -> Any:
    names: dict[str, Any] = {"torch": torch}
    exec(compile(source, "newer.py", "exec", dont_inherit=True), names)
    return names["program"]


def _calls() -> list[Any]:
    return [call(torch.tensor(each)) for each in ([1.0, 2.0], [-1.0, -2.0], [4.0, -1.0])]


TEMPLATE_IN_AN_ARM = """
def shown(t):
    return "".join(each if isinstance(each, str) else str(each.value) for each in t)

def program(x):
    n = 3
    if x.sum() > 0:
        text = t"{n}!"
        x = x * 2
    else:
        text = t"{n:>4} {'a'!r}"
    return x + 1, shown(text)
"""
TEMPLATE_BESIDE_A_BRANCH = """
def program(x, n=2):
    t = t"{n=} {x.shape!r:>9}"
    if x.sum() > 0:
        x = x * 2
    return x + 1, t.strings, [each.expression for each in t.interpolations]
"""
RETURN_IN_FINALLY = """
def program(x):
    try:
        if x.sum() > 0:
            return x * 2
        x = x - 1
    finally:
        return x + 5
"""
RESULTS_IN_FINALLY = """
def program(x):
    found = []
    for n in range(3):
        try:
            if x[0] > n:
                found.append(x * n)
        finally:
            if n == 1:
                break
    return sum(found, x + 1)
"""


@pytest.mark.parametrize(
    "source", [TEMPLATE_IN_AN_ARM, TEMPLATE_BESIDE_A_BRANCH, RETURN_IN_FINALLY, RESULTS_IN_FINALLY]
)
def test_it_is_as_in_eager_execution(source: str) -> None:
    assert_equivalent(
        lambda: _program(source), _calls, fullgraph=False, graphs=None, recompiles=None
    )


@pytest.mark.parametrize("source", [RETURN_IN_FINALLY, RESULTS_IN_FINALLY])
def test_one_graph(source: str) -> None:
    assert_equivalent(lambda: _program(source), _calls)


def test_an_arm_with_a_template_is_refused() -> None:
    program = _program(TEMPLATE_IN_AN_ARM)
    with bcmend.patched(program):
        torch.compile(program, backend="eager")(torch.ones(2))
        report = bcmend.report(program)
    assert report.sites and not report.mended


def test_annotations_that_name_nothing_are_not_asked_for() -> None:
    program = _program(
        "def program(x: Missing, n: also.Missing = 1) -> Missing:\n"
        "    return x * n if x.sum() > 0 else x - n\n"
    )
    verdict = bcmend.verify(program, torch.ones(2), backend="eager")
    assert verdict.equal
    with pytest.raises(bcmend.CallError, match="does not take these arguments"):
        bcmend.verify(program, backend="eager")
