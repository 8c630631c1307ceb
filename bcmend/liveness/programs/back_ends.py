"""What back ends get of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bcmend.liveness.program import Arguments, program

Function = Callable[..., Any]


def matrices() -> list[Arguments]:
    """Calls with a matrix that requires gradients, and a truth."""
    return [
        (torch.eye(3).requires_grad_(), torch.tensor(truth), torch.ones(3, 3))
        for truth in (True, False, True)
    ]


@program(
    "OutputGraph.call_user_compiler",
    "kernels[cond, FunctionalTensorMode]",
    "kernels[cond, ProxyTorchDispatchMode]",
    "kernels[cond, FakeTensorMode]",
    inputs=matrices,
    backend="aot_eager",
    training=True,
)
def sides_in_aot_autograd() -> Function:
    places = torch.tensor([[0, 2, 1]] * 3)

    def program(x: Tensor, truth: Tensor, y: Tensor) -> Any:
        if truth:
            return (x @ y).gather(0, places)
        return x @ x

    return program


@program("effects.has_effects", inputs=matrices, backend="aot_eager", training=True)
def a_check_in_a_side() -> Function:
    def program(x: Tensor, truth: Tensor, y: Tensor) -> Any:
        return torch.linalg.solve(x, y) if truth else x @ y

    return program


def repeats() -> list[Arguments]:
    """Calls with a row that requires gradients, and a fraction that says how often it is had."""
    return [
        (torch.ones(1, 3, requires_grad=True), torch.tensor(count)) for count in (2.0, 3.5, 1.0)
    ]


@program(
    "fractions that a backward needs",
    inputs=repeats,
    backend="aot_eager",
    training=True,
)
def a_size_from_a_fraction() -> Function:
    def program(x: Tensor, count: Tensor) -> Any:
        return x.expand(max(int(count.item()), 0), -1).sin()

    return program


def large_matrices() -> list[Arguments]:
    """Calls with a matrix of which a product takes longer than a decision, and a truth."""
    return [(torch.eye(1024), torch.tensor(truth)) for truth in (True, False, True)]


def compiled_anew(program: Any, options: dict[str, Any]) -> Callable[..., Any]:
    """Compile a program that Inductor has not kept from an earlier run."""
    found: Callable[..., Any] = torch.compile(program, options={"fx_graph_cache": False}, **options)
    return found


@program(
    "operands with the strides traced",
    inputs=large_matrices,
    backend="inductor",
    way=compiled_anew,
)
def a_choice_in_inductor() -> Function:
    def program(x: Tensor, truth: Tensor) -> Any:
        return x @ x @ x if truth else x @ x  # calls of a library, as below

    return program


def masked_matrices() -> list[Arguments]:
    """Calls with the same, and a mask of rows."""
    mask = torch.arange(1024) % 3 == 0
    return [(*each, mask if at else ~mask) for at, each in enumerate(large_matrices())]


@program(
    "sizes that have another name already",
    inputs=masked_matrices,
    backend="inductor",
    way=compiled_anew,
)
def rows_behind_a_choice_in_inductor() -> Function:
    def program(x: Tensor, truth: Tensor, mask: Tensor) -> Any:
        y = x @ x @ x if truth else x @ x  # calls of a library, as below
        return y[mask]

    return program


@program("AotAutograd.__call__", inputs=matrices, backend="inductor")
def a_graph_in_inductor() -> Function:
    def program(x: Tensor, truth: Tensor, y: Tensor) -> Any:
        print("before", truth)
        return x.detach() @ y  # a call of a library: needs no compiler of C++

    return program
