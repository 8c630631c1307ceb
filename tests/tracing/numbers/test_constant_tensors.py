"""Numbers in tensors that are made of constants are constants."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import bcmend
from bcmend.dynamo import fx_graph
from bcmend.tracing.numbers import constant_tensors
from bcmend.tracing.numbers.constant_tensors import number_in
from bcmend.tracing.search import strict
from tests import own_faults
from tests.equivalence import call, compare
from tests.tracing.plain_trace import traced

Program = Callable[[Tensor], Any]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _graph_of(program: Program, *calls: Tensor) -> torch.fx.GraphModule:
    """Return the one graph of a program; all calls are equal to eager execution."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    expected = [program(each.clone()) for each in calls]
    compiled = bcmend.compile(program, backend=backend, fullgraph=True)
    for each, result in zip(calls, expected, strict=True):
        torch.testing.assert_close(compiled(each.clone()), result, rtol=0, atol=0)
    (graph,) = graphs
    return graph


def _takes_numbers(graph: torch.fx.GraphModule) -> bool:
    parts = [part for part in graph.modules() if isinstance(part, torch.fx.GraphModule)]
    return any(node.target == "item" for part in parts for node in part.graph.nodes)


X = torch.arange(12.0)


def _row(x: Tensor) -> Tensor:
    height, width = torch.tensor([[1, 2], [3, 4]])[1]
    return x.view(height, width) * 2


def _sums(x: Tensor) -> Tensor:
    sizes = torch.as_tensor([2, 3]).cumsum(0)
    return x[: sizes[-1] + sizes.prod() // 5] + x.new_ones(sizes[0]).sum()


def _truth(x: Tensor) -> Tensor:
    return x * 2 if (torch.tensor([1, 2]) > 1).any().item() else x


def _in_an_arm(x: Tensor) -> Tensor:
    size = torch.tensor([4, 3])
    if x.sum() > 0:
        x = x.view(size[1], size[0]).flatten() + 1
    return x


def _steps(x: Tensor) -> Tensor:
    places = torch.arange(0, x.shape[0]).to(x.dtype)
    return torch.arange(places[2] * 3, -places[-1], -places[1] / 2) + x.sum()


@pytest.mark.parametrize("program", [_row, _sums, _truth, _in_an_arm, _steps])
def test_numbers_made_of_constants_are_known(program: Program) -> None:
    assert not _takes_numbers(_graph_of(program, X, -X))


def _changed(x: Tensor) -> Tensor:
    size = torch.tensor([3, 4])
    size[0] = x.sum().long() % 5 + 1
    return torch.ones(int(size[0])) + x[0]


def _changed_by_a_view(x: Tensor) -> Tensor:
    size = torch.tensor([3, 4])
    size.view(2, 1)[0].add_(x.sum().long() % 5)
    return torch.ones(int(size[0])) + x[0]


def _changed_in_an_arm(x: Tensor) -> Tensor:
    size = torch.tensor([3, 4])
    if x.sum() > 0:
        size[0] = 2
    return torch.ones(int(size[0])) + x[0]


def _given(x: Tensor) -> Tensor:
    return torch.ones(int(x.long().max())) + x[0]


@pytest.mark.parametrize("program", [_changed, _changed_by_a_view, _changed_in_an_arm, _given])
def test_what_the_data_change_is_not_known(program: Program) -> None:
    assert _takes_numbers(_graph_of(program, X, X * 0.5 + 1, X - 11 + (X > 10) * 2))


def _rows_of_a_transform(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: x[row] * 2)(torch.arange(3))


def _rows_of_two_transforms(x: Tensor) -> Tensor:
    inner = torch.vmap(lambda row, more: x[row] + more, (None, 0))
    return torch.vmap(inner, (0, None))(torch.arange(3), torch.arange(2.0))


@pytest.mark.parametrize("program", [_rows_of_a_transform, _rows_of_two_transforms])
def test_a_number_of_each_call_of_a_transform_is_not_known(program: Program) -> None:
    assert not _takes_numbers(_graph_of(program, X, -X))


def test_numbers_that_are_known_break_no_graph() -> None:
    found = compare(lambda: _row, lambda: [call(X)], fullgraph=False)
    assert (found.eager_differences, found.differences, found.graphs) == ((), (), 1)


def _sum(tx: Any, x: Any) -> Any:
    rows = fx_graph.function(tx, torch.full, (2, 2), 3)
    return fx_graph.method(tx, "sum", fx_graph.function(tx, torch.mul, rows, 2))


def _drawn(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.randint, 5, (1,))


def _of_the_input(tx: Any, x: Any) -> Any:
    return fx_graph.method(tx, "sum", fx_graph.method(tx, "long", x))


def _changed(tx: Any, x: Any) -> Any:
    one = fx_graph.function(tx, torch.full, (1,), 3)
    fx_graph.method(tx, "add_", fx_graph.method(tx, "view", one, 1), 1)
    return one


def _drawn_by_a_function(tx: Any, x: Any) -> Any:
    ones = fx_graph.function(tx, torch.full, (1, 4, 4), 1.0)
    pooled = fx_graph.function(tx, functional.fractional_max_pool2d, ones, 2, 1)
    return fx_graph.function(tx, torch.gt, fx_graph.method(tx, "sum", pooled), 0)


def _changed_by_an_argument(tx: Any, x: Any) -> Any:
    ones = fx_graph.function(tx, torch.full, (3,), -1.0)
    fx_graph.function(tx, functional.relu, ones, True)
    return fx_graph.function(tx, torch.lt, fx_graph.method(tx, "sum", ones), 0)


def _changed_by_a_norm(tx: Any, x: Any) -> Any:
    ones, row = (fx_graph.function(tx, torch.full, each, 1) for each in ((3, 3), (1,)))
    weight = fx_graph.method(tx, "float", ones)
    fx_graph.function(tx, functional.embedding, row, weight, None, 0.1)
    return fx_graph.function(tx, torch.gt, fx_graph.method(tx, "sum", weight), 8)


def _floating(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.full, (1,), 3.0)


def _complex(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.full, (1,), 3.0 + 1.0j)


def _several(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.full, (2,), 3)


def _truth(tx: Any, x: Any) -> Any:
    return fx_graph.function(tx, torch.gt, fx_graph.function(tx, torch.full, (1,), 3.5), 3)


def _large(tx: Any, x: Any) -> Any:
    return fx_graph.method(tx, "sum", fx_graph.function(tx, torch.full, (100, 100), 1))


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (_sum, 24),
        (_truth, True),
        (_drawn, None),
        (_of_the_input, None),
        (_changed, None),
        (_drawn_by_a_function, None),
        (_changed_by_an_argument, None),
        (_changed_by_a_norm, None),
        (_floating, 3.0),
        (_complex, None),
        (_several, None),
        (_large, None),
    ],
)
def test_which_tensors_hold_a_known_number(make: Any, number: float | None) -> None:
    def step(tx: Any, x: Any) -> Any:
        found = number_in(tx, make(tx, x))
        assert found == number and type(found) is type(number)
        return x

    traced(step, torch.ones(3))


def _counted(x: Tensor) -> Tensor:
    return x * torch.tensor([2, 3])[0].item()


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_fault_of_our_own_makes_no_number_depend_on_data(
    is_strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict, "IS_ON", is_strict)
    monkeypatch.setattr(constant_tensors, "call_target", own_faults.fault)
    with pytest.raises(strict.InternalError) if is_strict else nullcontext():
        assert _takes_numbers(_graph_of(_counted, X))


def _fails(x: Tensor) -> Tensor:
    size = torch.tensor([4, 3]).div(torch.tensor([1, 0]), rounding_mode="trunc")
    return x[: int(size[0])]


def test_an_operation_that_fails_is_no_fault_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers divided by zero: torch raises in C."""
    monkeypatch.setattr(strict, "IS_ON", True)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        _fails(X)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        bcmend.compile(_fails, backend="eager")(X.clone())


def _chain(length: int) -> Program:
    def program(x: Tensor) -> Tensor:
        sizes = torch.tensor([0, 0])  # of one element torch itself knows the number
        for _ in range(length):
            sizes = sizes + 1
        return x + int(sizes[0])

    return program


@pytest.mark.parametrize(("length", "is_taken"), [(6, False), (7, True)])
def test_so_many_operations_are_run_for_a_number_and_no_more(
    monkeypatch: pytest.MonkeyPatch, length: int, is_taken: bool
) -> None:
    monkeypatch.setattr(constant_tensors, "_OPERATIONS", 8)
    assert _takes_numbers(_graph_of(_chain(length), X)) is is_taken


def test_a_long_chain_needs_no_deep_stack() -> None:
    assert not _takes_numbers(_graph_of(_chain(constant_tensors._OPERATIONS - 2), X))
