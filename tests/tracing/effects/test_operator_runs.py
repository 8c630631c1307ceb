"""The ATen operators behind single nodes: what they write to, and whether they draw."""

from __future__ import annotations

import operator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional

from bcmend.tracing.effects import operator_runs
from bcmend.tracing.effects.operator_runs import (
    OperatorCall,
    call_target,
    is_in_place,
    node_draws,
    operators_of,
    stand_in,
    storage_of,
    storages_written,
    target_name,
)
from bcmend.tracing.search import strict
from tests import own_faults

ATEN = torch.ops.aten


class _Main:
    """A graph over fake tensors."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        self.graph = Graph()

    def input(self, *size: int) -> Node:
        node = self.graph.placeholder("x")
        with self.mode:
            node.meta["example_value"] = torch.empty(*size)
        return node

    def operators(self, node: Node) -> list[Any]:
        found = operators_of(node, self.mode)
        assert found is not None
        return [each.operator.overloadpacket for each in found.calls]


def test_a_function_consists_of_its_operators() -> None:
    main = _Main()
    x = main.input(2, 3)
    node = main.graph.call_function(functional.linear, (x, main.input(4, 3)))
    assert ATEN.mm in main.operators(node) or ATEN.addmm in main.operators(node)
    assert main.operators(main.graph.call_method("exp", (x,))) == [ATEN.exp]


@pytest.mark.parametrize("target", [torch.ops.higher_order.cond, "no_such_method"])
def test_of_what_cannot_be_run_nothing_is_known(target: Any) -> None:
    main = _Main()
    kind = "call_method" if isinstance(target, str) else "call_function"
    node = main.graph.create_node(kind, target, (main.input(2),))
    assert operators_of(node, main.mode) is None
    assert storages_written(node, main.mode) is None


def test_a_change_in_place_is_tried_on_another_tensor() -> None:
    main = _Main()
    x = main.input(2)
    example = x.meta["example_value"]
    node = main.graph.call_method("add_", (x, 1))
    assert storages_written(node, main.mode) == {storage_of(example)}
    assert example._version == 0
    assert storages_written(main.graph.call_method("add", (x, 1)), main.mode) == set()


@pytest.mark.parametrize(("name", "reshapes"), [("unsqueeze_", True), ("mul_", False)])
def test_what_changes_the_form_of_a_tensor_is_told_apart(name: str, reshapes: bool) -> None:
    main = _Main()
    x = main.input(2)
    found = operators_of(main.graph.call_method(name, (x, 0)), main.mode)
    assert found is not None
    assert bool(found.storages_written(reshaped=True)) is reshapes
    assert found.storages_written(reshaped=False) == {storage_of(x.meta["example_value"])}


@pytest.mark.parametrize(
    ("target", "named", "expected"),
    [
        (torch.add, {}, False),
        (torch.add, {"out": None}, True),
        (functional.relu, {"inplace": True}, True),
        (functional.relu, {"inplace": False}, False),
        (operator.iadd, {}, True),
        (operator.setitem, {}, True),
        (operator.getitem, {}, False),
        (torch.relu_, {}, True),
        ("add_", {}, True),
        ("add", {}, False),
    ],
)
def test_changes_in_place_are_known_by_name_and_arguments(
    target: Any, named: dict[str, Any], expected: bool
) -> None:
    kind = "call_method" if isinstance(target, str) else "call_function"
    assert is_in_place(Graph().create_node(kind, target, (), named)) is expected


def _call(target: Any, *arguments: Any, **named: Any) -> OperatorCall:
    return OperatorCall(target, None, arguments, named)


def test_the_schema_says_what_is_written() -> None:
    x, y = torch.ones(2), torch.ones(2)
    assert list(_call(ATEN.add.Tensor, x, y).written()) == []
    assert [each is x for each in _call(ATEN.add_.Tensor, x, y).written()] == [True]
    (written,) = _call(ATEN.add.out, x, x, out=y).written()
    assert written is y
    pair = [torch.ones(1), torch.ones(1)]
    found = list(_call(ATEN._foreach_add_.Scalar, pair, 1).written())
    assert [id(each) for each in found] == list(map(id, pair))


@pytest.mark.parametrize("training", [True, False])
def test_a_norm_writes_its_statistics_in_training(training: bool) -> None:
    mean, var = torch.zeros(2), torch.ones(2)
    norm = ATEN.native_batch_norm.default
    found = _call(norm, torch.ones(3, 2), None, None, mean, var, training, 0.1, 1e-5).written()
    assert list(map(id, found)) == ([id(mean), id(var)] if training else [])


@pytest.mark.parametrize(
    ("target", "arguments", "expected"),
    [
        (ATEN.bernoulli_.float, (None, 0.5), True),
        (ATEN.add.Tensor, (None, None), False),
        (ATEN._scaled_dot_product_flash_attention_for_cpu.default, (None,) * 3 + (0.5,), True),
        (ATEN._scaled_dot_product_flash_attention_for_cpu.default, (None,) * 3 + (0.0,), False),
        (ATEN._scaled_dot_product_flash_attention_for_cpu.default, (None,) * 3, False),
    ],
)
def test_attention_draws_only_with_dropout(target: Any, arguments: Any, expected: bool) -> None:
    assert _call(target, *arguments).draws is expected
    assert node_draws(Graph().call_function(target, arguments)) is expected


def test_only_an_aten_operator_is_asked_whether_it_draws() -> None:
    assert not node_draws(Graph().call_function(torch.rand, ((2,),)))


def test_tensors_that_share_memory_have_one_storage() -> None:
    x = torch.ones(4)
    assert storage_of(x) == storage_of(x[1:]) == storage_of(x.detach())
    assert storage_of(x) != storage_of(x.clone())
    sparse = torch.eye(2).to_sparse_csr()
    assert storage_of(sparse) == storage_of(sparse) != storage_of(torch.eye(2).to_sparse())


def test_a_stand_in_has_the_form_of_a_tensor_and_other_memory() -> None:
    x = torch.ones(2, 3).t().requires_grad_()
    other = stand_in(x)
    assert (other.shape, other.stride(), other.dtype) == (x.shape, x.stride(), x.dtype)
    assert storage_of(other) != storage_of(x) and not other.requires_grad
    assert stand_in(3) == 3


def test_a_node_runs_on_other_arguments() -> None:
    graph = Graph()
    node = graph.placeholder("x")
    x = torch.tensor([1.0, 4.0])
    assert call_target(graph.call_method("add", (node, 1)).target, (x, 2), {}).tolist() == [
        3.0,
        6.0,
    ]
    assert call_target(graph.call_function(torch.sqrt, (node,)).target, (x,), {}).tolist() == [
        1.0,
        2.0,
    ]
    assert target_name(graph.call_method("add", (node, 1))) == "add"
    assert target_name(graph.call_function(torch.sqrt, (node,))) == "sqrt"


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_fault_of_our_own_is_no_failure_of_the_node(
    is_strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = _Main()
    node = main.graph.call_method("exp", (main.input(2),))
    monkeypatch.setattr(strict, "IS_ON", is_strict)
    monkeypatch.setattr(operator_runs, "map_aggregate", own_faults.fault)
    with pytest.raises(strict.InternalError) if is_strict else nullcontext():
        assert operators_of(node, main.mode) is None


@pytest.mark.parametrize("target", [torch.mm, operator.matmul, functional.linear, len])
def test_a_failure_of_the_node_is_no_fault_of_our_own(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is written in C or in Python."""
    main = _Main()
    monkeypatch.setattr(strict, "IS_ON", True)
    x, y = main.input(2, 3), main.input(2, 5)
    node = main.graph.call_function(target, (3,) if target is len else (x, y))
    assert operators_of(node, main.mode) is None
