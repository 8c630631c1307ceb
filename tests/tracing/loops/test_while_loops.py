"""Loops that a tensor ends: one operator, or unrolled iterations, and always the same."""

# The programs begin with a copy, so that a loop of no iterations does not give back its argument.

from __future__ import annotations

import random
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


def _to_five(x: Tensor, steps: Tensor) -> Tensor:
    total = turns = x.sum() * 0
    while total < 5:  # without an end if ``steps`` has nothing
        total, turns = total + steps.sum(), turns + 1
    return turns


def _behind_a_check(x: Tensor) -> Tensor:
    positive = x > 0
    if positive.sum() == 0:
        raise ValueError("nothing is positive")
    return _to_five(x, positive)


def _left_while_true(x: Tensor) -> Tensor:
    positive = x > 0
    if positive.sum() == 0:
        raise ValueError("nothing is positive")
    total = x.sum() * 0
    while not total >= 5:
        total = total + positive.sum()
    return total


def _behind_a_check_in_an_arm(x: Tensor) -> Tensor:
    positive = x > 0
    if x[0] > -10:
        if positive.sum() == 0:
            raise ValueError("nothing is positive")
        return _to_five(x, positive)
    return x.sum()


def _behind_a_check_in_a_turn(x: Tensor) -> Tensor:
    positive, turns = x > 0, x.sum() * 0
    outer = turns
    while outer < 2:
        if positive.sum() == 0:
            raise ValueError("nothing is positive")
        outer, turns = outer + 1, turns + _to_five(x, positive)
    return turns


class _Beside(torch.nn.Module):
    """Does what cannot be undone, so that the exception is raised after the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, float] = {}

    def forward(self, x: Tensor) -> Tensor:
        positive = x > 0
        if positive.sum() == 0:
            raise ValueError("nothing is positive")
        self.seen["number"] = random.random()
        return _to_five(x, positive)


class _Selected(torch.nn.Module):
    """Where nothing is selected the call is made in plain Python."""

    def losses(self, x: Tensor) -> dict[str, Any]:
        chosen = (x > 0).nonzero()[:, 0]
        if len(chosen) == 0:
            return {"kind": "nothing", "losses": 0, "indices": None}
        drawn = torch.rand(len(chosen))
        return {"kind": "each", "losses": x[chosen] + drawn, "indices": chosen}

    def nothing(self, losses: int, indices: None) -> Tensor:
        return losses * torch.zeros(())

    def each(self, losses: Tensor, indices: Tensor) -> Tensor:
        if len(losses) != len(indices):
            raise ValueError("sizes")
        return losses.sum() * _to_five(losses.detach(), torch.ones(len(indices)))

    def forward(self, x: Tensor) -> Tensor:
        found = self.losses(x)
        return getattr(self, found["kind"])(found["losses"], found["indices"])  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: _behind_a_check,
        lambda: _left_while_true,
        lambda: _behind_a_check_in_an_arm,
        lambda: _behind_a_check_in_a_turn,
        _Beside,
        _Selected,
    ],
)
def test_a_loop_makes_no_turn_where_a_check_has_failed(
    make: Callable[[], Any], backend: str
) -> None:
    """Eager execution does not come to it, and it would have no end."""
    inputs = _inputs(1.0, -2.0, 3.0)
    found = assert_equivalent(
        make,
        lambda: [*inputs(), call(torch.tensor([-3.0, -1.0])), *inputs()],
        backend=backend,
        graphs=None,
        recompiles=None,
    )
    assert "while_loop" in _lowerings(found)
