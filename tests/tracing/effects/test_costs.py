"""What operators are estimated to cost, on fake tensors of devices that need not be there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.flop_counter import flop_registry

from bcmend.tracing.effects.costs import DECISION, bytes_of, flops_of, seconds_of
from bcmend.tracing.effects.operator_runs import OperatorCall
from bcmend.tracing.search import strict
from tests import own_faults

MM = torch.ops.aten.mm.default
SORT = torch.ops.aten.sort.default


def _square(size: int, device: str) -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(size, size, device=device)


def _call(operator: Any, result: Any, *arguments: Any) -> OperatorCall:
    return OperatorCall(operator, result, arguments, {})


def _seconds_of_product(size: int, device: str) -> float:
    matrix = _square(size, device)
    return seconds_of(_call(MM, matrix, matrix, matrix))


def test_a_decision_on_a_cpu_is_free_and_any_product_expensive() -> None:
    assert _seconds_of_product(4, "cpu") == math.inf


@pytest.mark.parametrize(("size", "costs_more"), [(4, False), (64, False), (4096, True)])
def test_on_an_accelerator_only_large_products_cost_more_than_a_decision(
    size: int, costs_more: bool
) -> None:
    assert (_seconds_of_product(size, "cuda") / 2 > DECISION) is costs_more


def test_a_product_is_counted_in_multiplications_and_additions() -> None:
    matrix = _square(8, "cuda")
    assert flops_of(_call(MM, matrix, matrix, matrix)) == 2 * 8**3


def test_an_operator_without_a_formula_is_counted_in_bytes() -> None:
    matrix = _square(4096, "cuda")
    assert flops_of(_call(SORT, (matrix, matrix), matrix)) == 0
    small = _square(4, "cuda")
    of_small = seconds_of(_call(SORT, small, small))
    assert seconds_of(_call(SORT, matrix, matrix)) > of_small > 0


def test_symbolic_sizes_count_as_they_were_at_the_call() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    real = torch.ones(6, 7)
    fake = mode.from_tensor(real, static_shapes=False)
    assert not isinstance(fake.shape[0], int), "otherwise this shows nothing"
    assert bytes_of(fake) == 6 * 7 * 4


@pytest.mark.parametrize("unknown", [lambda u: torch.empty(u), lambda u: torch.empty(u, 4)])
def test_sizes_that_are_unbacked_are_expensive(unknown: Callable[..., torch.Tensor]) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    assert mode.shape_env is not None
    with mode:
        assert bytes_of(unknown(mode.shape_env.create_unbacked_symint())) == math.inf


def test_a_form_that_a_formula_does_not_foresee_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    with FakeTensorMode():
        row = torch.empty(4)
    assert flops_of(_call(MM, row, row)) == math.inf  # an operand is missing
    assert flops_of(_call(MM, row, row, row)) == math.inf  # vectors are no matrices


def test_a_fault_of_our_own_is_no_form_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    monkeypatch.setitem(flop_registry, MM.overloadpacket, own_faults.fault)
    matrix = _square(4, "cuda")
    with pytest.raises(strict.InternalError, match="a fault"):
        flops_of(_call(MM, matrix, matrix, matrix))
