"""An arm as a graph of its own, made of hand-written graphs and run on real tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node, Proxy

from bcmend.tracing.lowering.arm_graphs import (
    arm_graph,
    gradients_flow,
    has_to_be_a_tensor,
    has_to_be_covered,
    is_of_a_transform,
    require_backward,
    requires_grad,
    with_example,
)
from bcmend.tracing.merging.shared_memory import is_among
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation.arms import ArmTrace, Effects

CONDITION: Any = SimpleNamespace(
    as_proxy=lambda: Proxy(with_example(Graph().placeholder("condition"), torch.tensor(True)))
)


def _variable(proxy: Proxy) -> Any:
    """Stand for Dynamo's model of a tensor."""
    return SimpleNamespace(as_proxy=lambda: proxy)


class _Arm:
    """An arm over tensors of a main graph, written node by node."""

    def __init__(self, *examples: Any) -> None:
        main, self.graph = Graph(), Graph()
        self.outer = [
            Proxy(with_example(main.placeholder(f"x{at}"), each))
            for at, each in enumerate(examples)
        ]
        self.inner = [
            Proxy(with_example(self.graph.placeholder(f"y{at}"), each))
            for at, each in enumerate(examples)
        ]

    def call(self, function: Any, *arguments: Any, example: Any) -> Proxy:
        nodes = tuple(each.node if isinstance(each, Proxy) else each for each in arguments)
        return Proxy(with_example(self.graph.call_function(function, nodes), example))

    @property
    def trace(self) -> ArmTrace:
        lifted = dict(zip(self.outer, self.inner, strict=True))
        result: Any = None
        return ArmTrace(result, self.graph, lifted, Effects(), ())

    def over_its_inputs(
        self, values: list[Any], others: list[Any] | None = None, changed: Any = ()
    ) -> GraphModule:
        graph = arm_graph(
            self.trace, self.outer, values, others or [None] * len(values), CONDITION, changed
        )
        graph.lint()
        return GraphModule({}, graph)


X = torch.tensor([1.0, -2.0])


def test_the_graph_computes_what_the_arm_does() -> None:
    arm = _Arm(X, X)
    total = arm.call(torch.add, *arm.inner, example=X + X)
    (result,) = arm.over_its_inputs([_variable(total)])(X, 2 * X)
    assert torch.equal(result, 3 * X)


def test_an_input_that_is_returned_is_copied() -> None:
    arm = _Arm(X)
    (result,) = arm.over_its_inputs([_variable(arm.outer[0])])(X)
    assert torch.equal(result, X) and result.data_ptr() != X.data_ptr()


def test_an_arm_without_results_returns_one_tensor() -> None:
    assert [each.shape for each in _Arm(X).over_its_inputs([])(X)] == [torch.Size([])]


@pytest.mark.parametrize(
    "example",
    [torch.ones(2, 3), torch.ones(2, 3).t(), torch.ones(2, 3, 4).permute(2, 0, 1)],
    ids=["contiguous", "transposed", "permuted"],
)
def test_zeros_for_a_missing_value_have_the_form_of_the_other_side(example: Tensor) -> None:
    other = _variable(Proxy(with_example(Graph().placeholder("other"), example)))
    (zeros,) = _Arm(X).over_its_inputs([None], [other])(X)
    assert zeros.shape == example.shape and zeros.stride() == example.stride()
    assert not zeros.any()


def test_zeros_for_an_expanded_tensor_are_laid_out_as_a_copy_of_it() -> None:
    example = torch.ones(2).expand(3, 2)
    other = _variable(Proxy(with_example(Graph().placeholder("other"), example)))
    (zeros,) = _Arm(X).over_its_inputs([None], [other])(X)
    assert zeros.stride() == example.clone().stride() == (2, 1)


def test_what_the_arm_changes_in_place_is_a_copy() -> None:
    arm = _Arm(X)
    changed = arm.call(torch.ops.aten.add_.Tensor, arm.inner[0], 1, example=X)
    given = X.clone()
    (result,) = arm.over_its_inputs([_variable(changed)], changed=arm.outer)(given)
    assert torch.equal(result, X + 1) and torch.equal(given, X)


def test_what_the_arm_changes_is_one_tensor_by_all_its_names() -> None:
    arm = _Arm(X, X)
    changed = arm.call(torch.ops.aten.add_.Tensor, arm.inner[0], 1, example=X)
    both = arm.call(torch.stack, [changed.node, arm.inner[1].node], example=torch.stack([X, X]))
    (result,) = arm.over_its_inputs([_variable(both)], changed=arm.outer[:1])(X.clone(), X.clone())
    assert torch.equal(result[0], result[1])


@pytest.mark.parametrize("grad", [True, False])
def test_integers_travel_as_doubles_only_where_gradients_are_recorded(grad: bool) -> None:
    numbers = torch.tensor([3, 4])
    with torch.set_grad_enabled(grad):
        assert has_to_be_covered(numbers) is grad
        assert not has_to_be_covered(X)
        arm = _Arm(numbers)
        doubled = arm.call(torch.mul, arm.inner[0], 2, example=numbers * 2)
        (result,) = arm.over_its_inputs([_variable(doubled)])(numbers)
    assert result.dtype is (torch.float64 if grad else torch.int64)
    assert (result.view(torch.int64) if grad else result).tolist() == [6, 8]


def _number(kind: Any, expression: Any) -> Any:
    """Return a symbolic number without a shape environment."""
    found = kind.__new__(kind)
    found.node = expression
    return found


def test_a_number_enters_as_a_tensor_and_is_taken_out_where_it_is_read() -> None:
    number = _number(torch.SymFloat, None)
    arm = _Arm(X, number)
    assert [has_to_be_a_tensor(each) for each in arm.outer] == [False, True]
    product = arm.call(torch.mul, *arm.inner, example=X)
    (result,) = arm.over_its_inputs([_variable(product)])(X, torch.tensor(3.0))
    assert torch.equal(result, 3 * X)


def test_a_number_that_is_not_read_is_not_taken_out() -> None:
    arm = _Arm(X, _number(torch.SymBool, None))
    module = arm.over_its_inputs([_variable(arm.outer[0])])
    assert "item" not in {node.target for node in module.graph.nodes}


def test_gradients_flow_only_into_tensors_that_require_them_while_they_are_recorded() -> None:
    plain, weighted = _Arm(X), _Arm(X, X.clone().requires_grad_())
    assert [requires_grad(each) for each in (*weighted.outer, None, 3)] == [False, True] + [
        False
    ] * 2
    assert gradients_flow(plain.trace, weighted.trace)
    assert not gradients_flow(plain.trace)
    with torch.no_grad():
        assert not gradients_flow(weighted.trace)


def test_one_tensor_is_among_others_by_each_of_its_names() -> None:
    one, same, other = _Arm(X, X, X.clone()).outer
    assert is_among(same, [one]) and is_among(one, [one])
    assert not is_among(other, [one]) and not is_among(one, [])


def _vmap_increment_nesting() -> None:
    """Stand for the function of torch that begins a transform."""


def _node(target: Any) -> Node:
    return Graph().call_function(target, ())


def test_transforms_are_known_by_their_nesting() -> None:
    assert is_of_a_transform(_node(_vmap_increment_nesting))
    assert not is_of_a_transform(_node(torch.add))


@pytest.mark.parametrize(
    ("function", "detail"), [(torch.lstm, "lstm"), (_vmap_increment_nesting, "torch.func")]
)
def test_what_has_no_backward_in_an_arm_is_refused(function: Any, detail: str) -> None:
    arm, plain = _Arm(X), _Arm(X)
    arm.call(function, example=None)
    plain.call(torch.exp, plain.inner[0], example=X)
    require_backward(plain.trace)
    with pytest.raises(Refusal, match=detail):
        require_backward(plain.trace, arm.trace)
