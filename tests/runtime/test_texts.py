"""Texts that leave a graph are texts, whatever is in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def _returned(x: Tensor, number: int) -> tuple[Tensor, str]:
    if x.sum() > 0:
        x = x + 1
    return x * number, f"{number}"


def _with_a_form(x: Tensor, number: int) -> tuple[Tensor, list[str]]:
    if x.sum() > 0:
        x = x + 1
    return x * number, [f"{number:>4}", f"{number!r:>4}", f"{number!s}:", f"{number!a:<4}|"]


def _level(x: Tensor) -> int:
    if x.sum() > 4:
        return 2
    return 0


def _behind_a_break(x: Tensor, number: int) -> Tensor:
    sys.stderr.write(f"{_level(x * number)}")
    return x


@pytest.mark.parametrize("program", [_returned, _with_a_form, _behind_a_break])
def test_a_number_that_changes_from_call_to_call(program: Callable[..., object]) -> None:
    inputs = [call(torch.ones(3), number) for number in (1, 2, 5, 7)]
    assert_equivalent(
        lambda: program, lambda: inputs, fullgraph=False, graphs=None, recompiles=None
    )
