"""Comprehensions that shadow a variable of their function, beside branches on tensors.

CPython 3.12 and later run them in the frame of the function: the variable is cleared in front of
them and restored behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call


def _in_a_loop_that_is_left(x: Tensor, parts: list[int] | None) -> Any:
    t, kept = x.shape[0], []
    for _ in range(4):
        if parts is not None:
            kept = [t + 1 for t in parts]
        x = torch.cat((x, x[-1:] * 2))
        if (x > 6).any():
            break
    return x[t:], kept


def _in_one_arm(x: Tensor, parts: list[int] | None) -> Any:
    t = 2
    if x.sum() > 0:
        x = x + sum([t * 2 for t in parts or (1,)])
    else:
        x = x * t
    return x * t


def _before_and_in_both_arms(x: Tensor, parts: list[int] | None) -> Any:
    t = 2
    before = [t + 1 for t in range(t)]
    if x.sum() > 0:
        t = len([t for t in before if t])
    else:
        t = len([-t for t in before])
    return x * t, before


def _deleted_and_bound_anew(x: Tensor, parts: list[int] | None) -> Any:
    t = 1
    if x.sum() > 0:
        del t
        t = 2
    return x * t


def _bound_on_one_side(x: Tensor, parts: list[int] | None) -> Any:
    if parts is None:
        t = 3
    found = [0]
    if x.sum() > 0:
        found = [t * 2 for t in range(2)]
        x = x + 1
    try:
        return x + 1, found, t
    except UnboundLocalError:
        return x + 1, found


def _that_fails(x: Tensor, parts: list[int] | None) -> Any:
    t = 4
    try:
        if x.sum() > 0:
            x = x + len([1 // t for t in (1, 0)])
        else:
            x = x - 1
    except ZeroDivisionError:
        x = x * t
    return x + t


PROGRAMS: list[Callable[..., Any]] = [
    _in_a_loop_that_is_left,
    _in_one_arm,
    _before_and_in_both_arms,
    _deleted_and_bound_anew,
    _bound_on_one_side,
    _that_fails,
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("parts", [None, [1, 2]], ids=["without", "with"])
def test_the_variable_is_what_it_was(program: Callable[..., Any], parts: Any) -> None:
    def calls() -> list[Any]:
        x = torch.tensor([1.0, 2.0])
        return [call(each, parts) for each in (x, -x, x / 8)]

    # torch 2.13 and 2.14 break the graph where an unbound variable is read.
    is_whole = program is not _bound_on_one_side
    counts = {} if is_whole else {"graphs": None, "recompiles": None}
    assert_equivalent(lambda: program, calls, fullgraph=is_whole, **counts)


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("program", PROGRAMS[:4])
def test_one_graph(program: Callable[..., Any]) -> None:
    mended = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    x = torch.tensor([1.0, 2.0])
    for each in (x, -x, x / 8):
        torch.testing.assert_close(mended(each, [1, 2]), program(each, [1, 2]))
