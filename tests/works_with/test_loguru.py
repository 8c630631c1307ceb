"""Lines of loguru name the function and line that wrote them, as in eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend

loguru = pytest.importorskip("loguru")

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

FORM = "{name}:{function}:{line} {level} {message} {extra}"


def _in_an_arm(x: Tensor) -> Tensor:
    if x.sum() > 0:
        loguru.logger.debug("sum {}", x.sum())
    else:
        loguru.logger.error(f"mean {x.mean()}")
    return x + 1


_BOUND = loguru.logger.bind(part="head")


def _bound(x: Tensor) -> Tensor:
    _BOUND.info("size {size}", size=tuple(x.shape))
    return x + 1


def _by_level(x: Tensor) -> Tensor:
    loguru.logger.log("SUCCESS", "done")
    loguru.logger.trace("below the level of the sink")
    return x + 1


def _bound_anew(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    loguru.logger.bind(part="tail").warning("sum {}", x.sum())
    return x + 1


def _lines(program: Callable[[Tensor], Tensor], call: Any) -> list[str]:
    taken: list[str] = []
    loguru.logger.remove()
    sink = loguru.logger.add(taken.append, format=FORM, level="DEBUG")
    try:
        for sign in (1, -1, 1):
            torch.testing.assert_close(call(torch.ones(2) * sign), program(torch.ones(2) * sign))
    finally:
        loguru.logger.remove(sink)
    of_program = taken[1::2]  # each call is followed by one in eager execution
    assert taken[::2] == of_program
    return of_program


@pytest.mark.parametrize("program", [_in_an_arm, _bound, _by_level])
def test_lines_are_written_behind_one_graph(program: Callable[[Tensor], Tensor]) -> None:
    mended = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    assert len(_lines(program, mended)) == 3


def test_lines_behind_a_break_name_what_wrote_them() -> None:
    mended = torch.compile(bcmend.patch(_bound_anew), backend="eager")
    assert len(_lines(_bound_anew, mended)) == 3
    assert bcmend.report(_bound_anew).sites  # the branch is mended, the line is not
