"""Both arms run and each result is selected; a trace calls the lowering directly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import compat, fx_graph
from bcmend.tracing.lowering.where import by_where, gated
from bcmend.tracing.merging.merge import Pair
from tests.tracing.plain_trace import arm, traced

YES, NO = torch.tensor(True), torch.tensor(False)


def _double_or_negate(tx: Any, predicate: Any, x: Any) -> Any:
    then_arm = arm(tx, lambda: fx_graph.function(tx, torch.mul, x, 2))
    else_arm = arm(tx, lambda: fx_graph.function(tx, torch.neg, x))
    pair = Pair(then_arm.result, else_arm.result)
    (result,) = by_where(tx, predicate, then_arm, else_arm, [pair])
    return result


def test_the_result_is_that_of_the_arm_taken() -> None:
    x = torch.tensor([1.0, -3.0])
    found = traced(_double_or_negate, YES, x)
    assert torch.equal(found.run(YES, x)[0], 2 * x)
    assert torch.equal(found.run(NO, x)[0], -x)


def test_without_gradients_tensors_enter_arms_as_they_are() -> None:
    found = traced(_double_or_negate, YES, torch.ones(2))
    assert found.targets == [torch.mul, torch.neg, torch.where]


def test_with_gradients_each_arm_has_a_gate() -> None:
    found = traced(_double_or_negate, YES, torch.ones(2, requires_grad=True))
    assert found.targets.count("detach") == 2
    assert found.targets.count(torch.where) == 3


@pytest.mark.parametrize(("predicate", "gradient"), [(YES, 2.0), (NO, -1.0)])
def test_only_the_arm_taken_has_a_gradient(predicate: Tensor, gradient: float) -> None:
    x = torch.ones(2, requires_grad=True)
    found = traced(_double_or_negate, predicate, x)
    found.run(predicate, x)[0].sum().backward()
    assert x.grad is not None and x.grad.tolist() == [gradient, gradient]


def test_an_infinite_gradient_of_the_other_arm_is_kept_out() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        then_arm = arm(tx, lambda: fx_graph.function(tx, torch.sqrt, x))
        else_arm = arm(tx, lambda: fx_graph.function(tx, torch.mul, x, 3))
        pair = Pair(then_arm.result, else_arm.result)
        return by_where(tx, predicate, then_arm, else_arm, [pair])[0]

    x = torch.zeros(1, requires_grad=True)
    traced(step, NO, x).run(NO, x)[0].sum().backward()
    assert x.grad is not None and x.grad.item() == 3.0


def test_a_value_of_one_side_is_computed_whatever_the_condition_is() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        then_arm = arm(tx, lambda: fx_graph.function(tx, torch.exp, x))
        else_arm = arm(tx, lambda: x)
        return by_where(tx, predicate, then_arm, else_arm, [Pair(then_arm.result, None)])[0]

    x = torch.tensor([0.0, 1.0])
    found = traced(step, YES, x)
    assert found.targets == [torch.exp]
    assert torch.equal(found.run(x)[0], x.exp()), "the condition is no input of the graph"


def _added_in_place(tx: Any, predicate: Any, x: Any) -> Any:
    y = fx_graph.function(tx, torch.mul, x, 1)
    then_arm = arm(tx, lambda: fx_graph.method(tx, "add_", y, 1))
    else_arm = arm(tx, lambda: fx_graph.method(tx, "add_", y, 5))
    (outer,) = then_arm.effects.tensors
    pairs = [Pair(then_arm.result, else_arm.result)]
    (changed,) = by_where(tx, predicate, then_arm, else_arm, pairs, [outer])
    return compat.TupleVariable([y, changed])


@pytest.mark.parametrize(("predicate", "more"), [(YES, 1.0), (NO, 5.0)])
def test_each_arm_changes_a_copy_of_its_own(predicate: Tensor, more: float) -> None:
    x = torch.tensor([1.0, 2.0])
    unchanged, changed = traced(_added_in_place, predicate, x).run(predicate, x)
    assert torch.equal(unchanged, x)
    assert torch.equal(changed, x + more)


def test_a_gate_lets_gradients_through_where_its_side_is_taken() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        outer = [x.as_proxy()]
        one, other = (gated(tx, predicate, outer, taken=taken)[0] for taken in (True, False))
        return compat.TupleVariable([fx_graph.variable_of(tx, each) for each in (one, other)])

    x = torch.tensor([2.0], requires_grad=True)
    one, other = traced(step, YES, x).run(YES, x)
    assert torch.autograd.grad(one.sum(), x, retain_graph=True)[0].item() == 1.0
    assert torch.autograd.grad(other.sum(), x)[0].item() == 0.0
    assert one.item() == other.item() == 2.0
