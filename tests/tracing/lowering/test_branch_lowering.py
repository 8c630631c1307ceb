"""A branch is merged and written into the graph; a trace lowers one directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import constant, example_of
from bcmend.policy import BranchPolicy, Policy
from bcmend.tracing.effects import watches
from bcmend.tracing.lowering.branch_lowering import TracedBranch, lower
from bcmend.tracing.merging.location_phi import append_under
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite
from tests.tracing.merging import joins
from tests.tracing.plain_trace import Traced, arm, traced

YES, NO = torch.tensor(True), torch.tensor(False)
Compute = Callable[[Any, Any], Any]


def _site(policy: BranchPolicy = "auto") -> LiveSite:
    return joins.site(policy=Policy(branch=policy))


def _lowered(site: LiveSite, one: Compute, other: Compute, x: Tensor) -> Traced:
    """Lower a branch whose arms return a tuple with what `one` and `other` compute."""

    def step(tx: Any, predicate: Any, x: Any) -> Any:
        arms = [
            arm(tx, lambda compute=compute: compat.TupleVariable([compute(tx, x)]))
            for compute in (one, other)
        ]
        branch = TracedBranch(site, predicate, (arms[0], arms[1]), 0, predicate)
        return lower(tx, branch, fx_graph.Transaction(tx))

    return traced(step, YES, x)


def _doubled(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.mul, x, 2)


def _negated(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.neg, x)


def _incremented(tx: Any, x: Any) -> Any:
    return fx_graph.method(tx, "add_", x, 1)


@pytest.mark.parametrize(("policy", "operator"), [("auto", torch.where), ("cond", "cond")])
def test_a_tensor_of_each_arm_becomes_one(policy: str, operator: Any) -> None:
    site, x = _site(policy), torch.tensor([1.0, -3.0])
    found = _lowered(site, _doubled, _negated, x)
    names = {getattr(each, "__name__", each) for each in found.targets}
    assert getattr(operator, "__name__", operator) in names
    assert torch.equal(found.run(YES, x)[0], 2 * x)
    assert torch.equal(found.run(NO, x)[0], -x)
    assert site.outcome.lowering == ("where" if policy == "auto" else "cond")
    assert site.outcome.why


def test_what_is_the_same_on_both_sides_needs_no_operation() -> None:
    site = _site()
    found = _lowered(site, lambda tx, x: constant(3), lambda tx, x: constant(3), torch.ones(2))
    assert not found.graphs or not found.targets
    assert found.result == (3,)
    assert site.outcome.lowering == "nothing to merge"


def test_a_change_in_place_is_written_back_where_its_arm_is_taken() -> None:
    site, results = _site(), []
    found = _lowered(site, _incremented, lambda tx, x: x, torch.zeros(2))
    for predicate in (YES, NO):
        x = torch.zeros(2)
        found.run(predicate, x)
        results.append(x.tolist())
    assert results == [[1.0, 1.0], [0.0, 0.0]]
    assert site.outcome.lowering == "where with effects"


def test_tensors_of_two_forms_are_refused() -> None:
    with pytest.raises(Refusal) as refusal:
        _lowered(_site(), _doubled, lambda tx, x: fx_graph.method(tx, "long", x), torch.ones(2))
    assert refusal.value.slug == "arms-differ"


def test_without_recording_gradients_a_tensor_that_requires_them_is_refused() -> None:
    with torch.no_grad(), pytest.raises(Refusal, match="requires gradients"):
        _lowered(_site(), lambda tx, x: x, _doubled, torch.ones(2, requires_grad=True))


def test_a_merged_tensor_that_is_an_older_one_is_watched() -> None:
    """A change of either, later in the trace, would show that they are two tensors."""
    site = _site()

    def step(tx: Any, predicate: Any, x: Any) -> Any:
        arms = [
            arm(tx, lambda compute=compute: compat.TupleVariable([compute(tx, x)]))
            for compute in (lambda tx, x: x, _negated)
        ]
        branch = TracedBranch(site, predicate, (arms[0], arms[1]), 0, predicate)
        with (
            mock.patch.object(watches, "add") as add,
            mock.patch.object(watches, "add_question") as asked,
        ):
            (merged,) = lower(tx, branch, fx_graph.Transaction(tx)).items  # type: ignore[attr-defined]
        (watched,) = (call.args[1] for call in add.call_args_list)
        assert watched is example_of(x)
        assert add.call_args.args[2] == Finding(Claim.NEW, site, 0)
        is_seen, finding = asked.call_args_list[0].args[1:]
        assert finding == Finding(Claim.NEW, site, 0) and not is_seen()
        increment_version(example_of(merged))
        assert is_seen()  # the older one is an argument of the call
        return merged

    traced(step, YES, torch.ones(2))


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_a_record_of_an_arm_has_the_condition_of_the_arm(taken: bool, inner: bool) -> None:
    def step(tx: Any, predicate: Any, other: Any) -> Any:
        inputs = constant(1)
        draft = Draft(_site(), constant(None), other if inner else None, inputs, Kind.OUTPUT)
        with record_builder.open_arm(tx) as drafts:
            append_under(tx, predicate, draft, taken=taken)
        (record,) = drafts
        assert record.inputs is inputs
        return record.predicate

    found = traced(step, YES, NO)
    for condition in (YES, NO):
        for more in (YES, NO):
            used = [condition, more][: 1 + inner]
            (holds,) = found.run(*used) if found.targets else (condition,)
            assert bool(holds) is ((bool(condition) is taken) and (not inner or bool(more)))
