"""Live-outs without a common form: mended where nobody reads them, or else where that can be."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.differences_of_torch import NAMESPACES_ARE_TRACED

INPUTS = (torch.ones(2, 3), -torch.ones(2, 3))

SOURCE = """
def program(x):
    if x.sum() > 0:
        h = (None, None)
    else:
        h = (x * 3,)
        x = h[0]
    {use}
    return x
"""


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _outcome(program: Callable[[Tensor], Any], box: SimpleNamespace, x: Tensor) -> str:
    vars(box).clear()
    result = program(x)
    if isinstance(result, tuple) and callable(result[-1]):
        result = (result[0], result[1]())
    return repr((result, getattr(box, "kept", None)))


def _lowering_with(use: str) -> str:
    """Compare the program with eager execution; return what became of its first branch."""
    box = SimpleNamespace()
    names: dict[str, Any] = {"torch": torch, "box": box, "same": lambda value: value}
    exec(compile(SOURCE.format(use=use), "lazy_phi.py", "exec"), names)
    program = names["program"]
    expected = [_outcome(program, box, x) for x in INPUTS]
    assert expected[0] != expected[1]
    mended = bcmend.compile(program, backend="eager")
    assert [_outcome(mended, box, x) for x in INPUTS] == expected
    site = bcmend.report(program).sites[0]
    return site.lowering or f"{site.refusal}: {site.detail}"


@pytest.mark.parametrize(
    "use",
    [
        "pass",
        "del h",
        "h = 1; x = x + h",
        "g = h; x = x + (1 if g is h else 2)",
        "x = x + (1 if h is None else 2)",
        "kept = [h]; x = x + len(kept)",
        "torch._dynamo.graph_break(); x = x + 1",
        "if x.dim() > 5: x = x + len(h)",
    ],
)
def test_what_nobody_reads_needs_no_form(use: str) -> None:
    assert _lowering_with(use) == "where"


@pytest.mark.parametrize(
    "use",
    [
        "x = x + (h[0] is None)",
        "x = x + (1 if h else 2)",
        "x = x + len(h)",
        "x = x + (1 if isinstance(h, tuple) else 2)",
        "x = x + (1 if type(h) is tuple else 2)",
        "x = x + (1 if h == (None, None) else 2)",
        "x = x + (None in h)",
        "x = x + hasattr(h, 'count')",
        "x = x + len(same(h))",
        "for one in h: x = x + 1",
        "a, *b = h; x = x + len(b)",
        "x = x + len({'h': h}['h'])",
        "x = x + len({h: 1})",
        "h = h + (1,); x = x + len(h)",
        "x = x + sum(1 for one in h)",
        "x = x + len(list(zip(h, h)))",
        "x = x + len(h) if x.sum() > 100 else x",
    ],
)
def test_what_reads_it_becomes_part_of_the_arms(use: str) -> None:
    assert _lowering_with(use).startswith("split by ")


@pytest.mark.parametrize("use", ["return x, h", "return x, [h]", "return x, {'h': h}"])
def test_what_is_returned_is_chosen_after_the_graph(use: str) -> None:
    assert _lowering_with(use).startswith("choice by ")


@pytest.mark.parametrize(
    "use",
    ["box.kept = h", "box.kept = [h]", "torch._dynamo.graph_break(); x = x + len(h)"],
)
def test_what_others_see_during_the_call_keeps_the_branch(use: str) -> None:
    found = _lowering_with(use)
    if NAMESPACES_ARE_TRACED and use.startswith("box"):
        assert found.startswith("choice by ")  # others see it only when the graph has run
    else:
        assert found == "arms-differ: `h`: 2 items on one side, 1 on the other"
