"""Conditions in ranges of exception tables, in front of a branch on a tensor.

From Python 3.13 on a truth is an instruction of its own, which Dynamo takes to stand directly in
front of its jump. A range may end between the two: that of an inlined comprehension, and from 3.14
on any, since jumps do not raise.
"""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call

CONDITIONS: Final = {
    "list": "[key for key in found if found[key]]",
    "negated": "[key for key in found if not found[key]]",
    "set-and": "{key for key in found if found[key] and key != 'c'}",
    "dictionary-or": "{key: 1 for key in found if found[key] or key == 'b'}",
    "nested": "[each for key in found if found[key] for each in range(2) if each]",
    "choice-of-items": "[1 if found[key] else 2 for key in found]",
    "generator": "sum(each for each in found.values() if each)",
    "none": "[key for key in found if found[key] is not None]",
    "and": "found.get('a') and found.get('b')",
    "choice": "1 if found.get('b') else 2",
    "not": "not found.get('b')",
}
AROUND: Final = {
    "nothing": "BODY",
    "finally": "try:\n    BODY\nfinally:\n    found.pop('z', None)",
    "except": "try:\n    BODY\nexcept KeyError:\n    x = x + 7",
    "with": "with torch.no_grad():\n    BODY",
    "try-in-a-loop": (
        "for _ in range(2):\n    try:\n        BODY\n    except ValueError:\n        continue"
    ),
    "with-in-a-while": (
        "while found.get('a'):\n    with torch.enable_grad():\n        BODY\n    break"
    ),
}
BRANCH: Final = "if x.sum() > 0:\n    x = x + 1\nelse:\n    x = x * 2"


def _program(condition: str, around: str) -> Callable[..., Any]:
    body = f"kept = {condition}\n{BRANCH}"
    lines = [
        indent(body, line[: line.index("BODY")]) if "BODY" in line else line
        for line in around.splitlines()
    ]
    begin, end = "found = {'a': 1, 'b': 0, 'c': 2}", "return x, kept, sorted(found)"
    text = "\n".join([begin, *lines, end])
    names: dict[str, Any] = {"torch": torch}
    exec("def program(x):\n" + indent(text, "    "), names)
    program: Callable[..., Any] = names["program"]
    return program


def _calls() -> list[Any]:
    return [call(torch.tensor(each)) for each in ([1.0, 2.0], [-1.0, -2.0], [4.0, -1.0])]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_in_a_range(condition: str, around: str) -> None:
    assert_equivalent(lambda: _program(CONDITIONS[condition], AROUND[around]), _calls)


def test_an_exception_leaves_a_block_that_swallows_none() -> None:
    def program(x: Tensor, fails: bool) -> Tensor:
        try:
            with torch.no_grad():
                if x.sum() > 0:
                    x = x + 1
                if fails:
                    raise ValueError(3)
        except ValueError:
            x = x * 5
        return x

    def inputs() -> list[Any]:
        x = torch.tensor([1.0, 2.0])
        return [call(x, True), call(-x, True), call(x, True)]

    assert_equivalent(lambda: program, inputs)


def test_of_two_nots_a_cast_to_a_bool_is_left_alone() -> None:
    """Dynamo fails at it, but not in mended code: the branch stands in front of it."""

    def program(x: Tensor, found: list[int]) -> Any:
        x = x + 1 if x.sum() > 0 else x * 2
        return x, not not found, [not not each for each in found]

    def inputs() -> list[Any]:
        x = torch.tensor([1.0, 2.0])
        return [call(x, [0, 1]), call(-x, [0, 1]), call(x / 8, [0, 1])]

    assert_equivalent(lambda: program, inputs)
