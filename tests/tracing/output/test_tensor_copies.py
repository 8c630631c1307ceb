"""Tensors of records: copied where they are changed later, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.output import tensor_copies


class Graphs:
    """A back end that keeps the graphs and runs them as they are."""

    def __init__(self) -> None:
        self.found: list[torch.fx.GraphModule] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.found.append(module)
        return module.forward

    @property
    def copied(self) -> list[tuple[int, ...]]:
        """The shapes of what is cloned."""
        nodes = (node for module in self.found for node in module.graph.nodes)
        return [
            tuple(node.args[0].meta["example_value"].shape)
            for node in nodes
            if node.target == "clone"
        ]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _output_bytes(program: Any) -> list[int | None]:
    return [
        each.clone_bytes
        for each in bcmend.report(program, ahead=True).sites
        if each.kind == "output"
    ]


def _run(program: Any, *arguments: Tensor) -> Graphs:
    graphs = Graphs()
    bcmend.compile(program, backend=graphs, fullgraph=True)(*arguments)
    return graphs


def test_only_what_is_changed_later_is_copied(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor, total: Tensor) -> Tensor:
        y = x * 2
        print(x, y, total)
        total.add_(1)
        print(total)
        return y

    graphs = _run(program, torch.zeros(4), torch.zeros(3))
    assert graphs.copied == [(3,)]
    assert _output_bytes(program) == [12, 0]
    assert (
        capsys.readouterr().out
        == f"{torch.zeros(4)} {torch.zeros(4)} {torch.zeros(3)}\n{torch.ones(3)}\n"
    )


def test_one_copy_serves_all_records_up_to_the_change(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        for turn in range(4):
            print(turn, y)
            if turn == 1:
                y.mul_(2)
        return y

    graphs = _run(program, torch.zeros(2, dtype=torch.float64))
    assert graphs.copied == [(2,)]
    assert _output_bytes(program) == [16]
    one, two = torch.ones(2, dtype=torch.float64), 2 * torch.ones(2, dtype=torch.float64)
    assert capsys.readouterr().out == f"0 {one}\n1 {one}\n2 {two}\n3 {two}\n"


def test_a_site_without_a_copy_costs_nothing_and_one_not_reached_is_not_known() -> None:
    def program(x: Tensor, flag: bool) -> Tensor:
        print("plain", x)
        if flag:
            print("flag", x)
        return x * 2

    graphs = Graphs()
    bcmend.compile(program, backend=graphs, fullgraph=True)(torch.ones(2), False)
    assert graphs.copied == []
    assert _output_bytes(program) == [0, None]


def test_copies_in_arms_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        if x.sum() > 0:
            print("positive", y)
        y.add_(1)
        return y

    _run(program, torch.ones(5))
    assert _output_bytes(program) == [20]
    assert capsys.readouterr().out == f"positive {torch.ones(5)}\n"


def _value(node: torch.fx.Node, example: Tensor) -> Any:
    node.meta["example_value"] = example
    return SimpleNamespace(as_proxy=lambda: SimpleNamespace(node=node))


@pytest.mark.parametrize(("requires_grad", "expected"), [(True, True), (False, False)])
def test_a_detached_view_lies_in_the_memory_of_its_differentiable_base(
    requires_grad: bool, expected: bool
) -> None:
    graph = torch.fx.Graph()
    base = torch.ones(4, requires_grad=requires_grad)
    given = graph.placeholder("x")
    _value(given, base)
    part = graph.call_method("detach", (given,))
    _value(part, base.detach())
    value = _value(graph.call_method("narrow", (part, 0, 0, 2)), base.detach()[:2])
    assert tensor_copies.lies_in_differentiable(value) is expected


def test_what_is_computed_of_a_differentiable_tensor_has_memory_of_its_own() -> None:
    graph = torch.fx.Graph()
    base = torch.ones(4, requires_grad=True)
    given = graph.placeholder("x")
    _value(given, base)
    value = _value(graph.call_method("mul", (given, 2)), (base * 2).detach())
    assert not tensor_copies.lies_in_differentiable(value)
