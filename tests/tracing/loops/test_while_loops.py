"""Loops that a tensor ends: one operator, or unrolled iterations, and always the same."""

# The programs begin with a copy, so that a loop of no iterations does not give back its argument.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Comparison, assert_equivalent, call, fresh


def _inputs(*values: float) -> Callable[[], list[Any]]:
    return lambda: [call(torch.tensor([value, 1.0])) for value in values]


def _lowerings(found: Comparison) -> set[str | None]:
    assert found.report is not None
    return {site.lowering for site in found.report.sites}


def _doubled(x: Tensor) -> Tensor:
    x = x * 1
    while x.sum() < 100:
        x = x * 2
    return x


def _counted(x: Tensor) -> tuple[Tensor, int]:
    x = x * 1
    turns = 0
    while x.sum() < 100:
        x = x * 2
        turns += 1
    return x, turns


def _left_in_a_range(x: Tensor) -> Tensor:
    x = x * 1
    for _ in range(40):
        if x.sum() > 100:
            break
        x = x * 2
    return x + 1


@pytest.mark.parametrize("program", [_doubled, _counted, _left_in_a_range])
def test_a_loop_of_tensors_is_one_operator(program: Any) -> None:
    found = assert_equivalent(lambda: fresh(program), _inputs(1.0, 200.0, 30.0))
    assert "while_loop" in _lowerings(found)


def test_a_range_that_runs_out_ends_the_loop_too() -> None:
    found = assert_equivalent(lambda: fresh(_left_in_a_range), _inputs(-1.0, 1.0, 500.0))
    assert "while_loop" in _lowerings(found)


def test_a_loop_of_tensors_has_gradients() -> None:
    found = assert_equivalent(lambda: fresh(_doubled), _inputs(30.0, 2.0, 200.0), training=True)
    assert "while_loop" in _lowerings(found)


def test_a_turn_that_is_not_made_sends_no_gradient_back() -> None:
    def program(x: Tensor) -> Tensor:
        x = x * 1
        while x.sum() < 100:
            x = x + torch.sqrt(100 - x.sum())
        return x

    found = assert_equivalent(lambda: fresh(program), _inputs(99.0, 200.0), training=True)
    assert "while_loop" in _lowerings(found)


def test_what_only_a_turn_reads_gets_no_gradient_where_there_is_none() -> None:
    def program(x: Tensor, weight: Tensor) -> Tensor:
        x = x * 1
        while x.sum() < 100:
            x = x * 2 + torch.sqrt(weight)
        return x

    found = assert_equivalent(
        lambda: fresh(program),
        lambda: [call(torch.tensor([each, 1.0]), torch.zeros(2)) for each in (200.0, 300.0)],
        training=True,
        zero_gradients=True,
    )
    assert "while_loop" in _lowerings(found)


def _few_iterations(x: Tensor) -> Tensor:
    x = x * 1
    for _ in range(3):
        if x.sum() > 10:
            break
        x = x * 2
    return x


def _over_a_list(x: Tensor) -> Tensor:
    x = x * 1
    for each in [1.0, 2.0, 3.0]:
        if x.sum() > 4:
            break
        x = x + each
    return x


def _grows(x: Tensor) -> Tensor:
    for _ in range(9):
        if x.sum() > 10:
            break
        x = torch.cat([x, x])
    return x.sum()


def _keeps_a_python_value(x: Tensor) -> tuple[Tensor, float]:
    x = x * 1
    factor = 1.0
    for _ in range(9):
        if x.sum() > 10:
            break
        factor = factor * 2
        x = x * 2
    return x, x.sum() * 0


def _changes_in_place(x: Tensor) -> Tensor:
    y = x * 1
    for _ in range(9):
        if y.sum() > 10:
            break
        y.mul_(2)
    return y


def _changes_a_value_now_and_then(x: Tensor) -> Tensor:
    x = x * 1
    first = True
    for _ in range(9):
        if x.sum() > 10:
            break
        x = x + 5 if first else x * 2
        first = False
    return x


def _has_effects(x: Tensor) -> Tensor:
    x = x * 1
    for _ in range(9):
        if x.sum() > 10:
            break
        print("turn")
        x = x * 2
    return x


UNROLLED = (
    _few_iterations,
    _over_a_list,
    _grows,
    _keeps_a_python_value,
    _changes_in_place,
    _changes_a_value_now_and_then,
    _has_effects,
)


@pytest.mark.parametrize("program", UNROLLED, ids=lambda program: program.__name__[1:])
def test_where_there_is_no_operator_the_turns_follow_one_another(program: Any) -> None:
    found = assert_equivalent(
        lambda: fresh(program),
        _inputs(1.0, 200.0, 5.0, -1.0),
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )
    assert "while_loop" not in _lowerings(found)


def test_a_random_draw_under_gradients_is_no_operator() -> None:
    def program(x: Tensor) -> Tensor:
        for _ in range(9):
            if x.sum() > 10:
                break
            x = x + torch.rand_like(x)
        return x

    found = assert_equivalent(
        lambda: fresh(program),
        _inputs(11.0, 8.0),
        fullgraph=False,
        graphs=None,
        recompiles=None,
        training=True,
    )
    assert "while_loop" not in _lowerings(found)


def test_the_graph_holds_a_while_loop_and_no_iteration() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def back_end(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    program = fresh(_doubled)
    with bcmend.patched(program):
        torch.compile(program, backend=back_end, fullgraph=True)(torch.ones(2))
    (graph,) = graphs
    targets = [node.target for node in graph.graph.nodes]
    assert targets.count(torch.ops.higher_order.while_loop) == 1
    torch._dynamo.reset()
