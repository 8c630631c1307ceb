"""Which lowering two traced arms get, or which refusal; a trace asks directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import fx_graph
from bcmend.dynamo.values import constant
from bcmend.policy import BranchPolicy, Policy
from bcmend.tracing.lowering.choose_lowering import choose
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation.arms import ArmTrace, Effects
from tests.tracing.plain_trace import arm, traced

Compute = Callable[[Any, Any], Any]
Edit = Callable[[ArmTrace], ArmTrace]


def _chosen(
    compute: Compute, x: Tensor, policy: BranchPolicy = "auto", edit: Edit = lambda found: found
) -> tuple[str, list[ArmTrace]]:
    """Return the lowering of a branch of which one arm does nothing, and both arms."""
    outcome: list[Any] = []
    site = LiveSite("key", "branch", _chosen.__code__, Policy(branch=policy))

    def step(tx: Any, x: Any) -> Any:
        arms = arm(tx, lambda: constant(None)), edit(arm(tx, lambda: compute(tx, x)))
        choice, tensors = choose(tx, site, arms, [Pair(x, x)], returns=False)
        outcome.extend([choice.how, list(arms), tensors])
        return constant(None)

    traced(step, x)
    return outcome[0], outcome[1]


def _doubled(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.mul, x, 2)


def _indexed(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.gather, x, 0, fx_graph.method(tx, "long", x))


def _dropped_out(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.nn.functional.dropout, x, 0.5)


def _drawn_from_data(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.bernoulli, x)


X = torch.ones(3)


@pytest.mark.parametrize(
    ("compute", "how"), [(_doubled, "where"), (_indexed, "cond"), (_dropped_out, "cond")]
)
def test_where_only_for_what_cannot_fail_and_draws_nothing(compute: Compute, how: str) -> None:
    assert _chosen(compute, X)[0] == how


def test_the_policy_of_the_site_counts() -> None:
    assert _chosen(_doubled, X, "cond")[0] == "cond"
    with pytest.raises(Refusal) as refusal:
        _chosen(_indexed, X, "where")
    assert refusal.value.slug == "where-would-speculate"


def test_under_gradients_what_an_arm_draws_is_taken_out_of_it() -> None:
    how, (_, drawing) = _chosen(_dropped_out, X.clone().requires_grad_())
    assert how == "where", "what is left is a product"
    assert [each.operator for each in drawing.draws] == [torch.ops.aten.bernoulli_.float]


def test_without_gradients_an_arm_keeps_what_it_draws() -> None:
    _, (_, drawing) = _chosen(_dropped_out, X)
    assert not drawing.draws and not drawing.states


def test_a_draw_that_depends_on_data_is_refused_under_gradients() -> None:
    with pytest.raises(Refusal, match="bernoulli from data") as refusal:
        _chosen(_drawn_from_data, X.clone().requires_grad_())
    assert refusal.value.slug == "random-under-gradients"


def test_an_effect_that_nothing_can_make_conditional_is_refused() -> None:
    def edit(found: ArmTrace) -> ArmTrace:
        return replace(found, effects=Effects(other=("arm-effects", "a hook is registered")))

    with pytest.raises(Refusal, match="a hook is registered") as refusal:
        _chosen(_doubled, X, edit=edit)
    assert refusal.value.slug == "arm-effects"


def test_a_change_in_place_is_taken_out_of_the_arm() -> None:
    def step(tx: Any, x: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 1)
        arms = arm(tx, lambda: constant(None)), arm(tx, lambda: fx_graph.method(tx, "add_", y, 1))
        site = LiveSite("key", "branch", step.__code__)
        choice, tensors = choose(tx, site, arms, [], returns=False)
        assert choice.how == "where"
        assert [each.outer.node for each in tensors] == [y.as_proxy().node]
        return y

    traced(step, X)
