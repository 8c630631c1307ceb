"""Flags by which a block is left, and variables that are dead on one of the ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.names import DEAD
from bcmend.tracing.merging.live_outs import merge_exit
from bcmend.tracing.sites.refusal import Refusal
from tests.tracing.merging.joins import join_of
from tests.tracing.plain_trace import traced

YES, NO = torch.tensor(True), torch.tensor(False)


def test_a_variable_that_one_arm_leaves_dead_is_that_of_the_other() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        join = join_of(tx, flag, x)
        for sides, taken in (((x, constant(DEAD)), True), ((constant(DEAD), x), False)):
            build = merge_exit(join, *sides, is_flag=False)
            assert build is not None
            pair = join.merger.pairs[-1]
            assert (pair.then_value, pair.else_value) == ((x, None) if taken else (None, x))
            assert build([flag, flag]) is flag
        assert merge_exit(join, x, constant(True), is_flag=False) is None
        return x

    traced(step, YES, torch.ones(2))


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_that_differs_is_the_condition_or_its_contrary(value: bool) -> None:
    def step(tx: Any, flag: Any) -> Any:
        join = join_of(tx, flag)
        same = merge_exit(join, constant(value), constant(value), is_flag=True)
        assert same is None, "equal constants are merged as such"
        build = merge_exit(join, constant(value), constant(not value), is_flag=True)
        assert build is not None
        return compat.TupleVariable([build([]), flag])

    assert traced(step, YES).result[0].item() is value
    assert traced(step, NO).result[0].item() is not value


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("taken", [True, False])
def test_a_flag_that_is_a_tensor_on_one_side(taken: bool, value: bool) -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        sides = (x, constant(value)) if taken else (constant(value), x)
        build = merge_exit(join_of(tx, flag), *sides, is_flag=True)
        assert build is not None
        return compat.TupleVariable([build([]), flag, x])

    found = traced(step, YES, NO)
    for flag in (YES, NO):
        for x in (YES, NO):
            sides = (x.item(), value) if taken else (value, x.item())
            assert found.run(flag, x)[0].item() is sides[0 if flag else 1]


def test_tensors_on_both_sides_are_merged_as_others_are() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        assert merge_exit(join_of(tx, flag), x, flag, is_flag=True) is None
        with pytest.raises(Refusal, match="how a block is left"):
            merge_exit(join_of(tx, flag), x, compat.TupleVariable([]), is_flag=True)
        return x

    traced(step, YES, NO)
