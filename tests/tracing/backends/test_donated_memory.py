"""Inductor writes over nothing of the program's in the backward of a branch or a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import bcmend
from bcmend.tracing.backends.donated_memory import changes_inputs, is_at_stake
from tests.equivalence import assert_equivalent, call


def in_place(x: torch.Tensor) -> torch.Tensor:
    own = x.abs() * 1
    if (x > 0).any():
        own.index_fill_(0, torch.tensor([0]), 1.0)
        own.masked_fill_(x > 0, 0.0)
    return own


def saved(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    y, z = x.sin() * one, x.cos() * other
    if x.sum() > 0:
        y = (y * one).exp() @ (z * other).tanh().t() @ one
    else:
        y = (y - one).sigmoid() * z.sin()
    return y * one


def loop(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = (x * weight).tanh()
    while y.sum() < 5:
        y = (y * weight).exp() + weight.sin() * y
    return y * weight


@pytest.mark.parametrize(
    ("program", "count"), [(in_place, 1), (saved, 3), (loop, 2)], ids=["in place", "saved", "loop"]
)
def test_arguments_and_gradients_are_those_of_eager(
    program: Callable[..., torch.Tensor], count: int
) -> None:
    torch._dynamo.reset()

    def inputs(sign: float) -> list[torch.Tensor]:
        torch.manual_seed(5)
        size = (4,) if count == 1 else (4, 4)
        drawn = [torch.rand(size) for _ in range(count)]
        drawn[0] = (drawn[0] - 0.2) * sign
        return [each.requires_grad_() for each in drawn]

    def outcome(called: Callable[..., torch.Tensor], sign: float) -> list[Any]:
        given = inputs(sign)
        result = called(*given)
        result.square().sum().backward()
        for one, other in zip(given, inputs(sign), strict=True):
            assert one.detach().equal(other.detach())
        return [result.detach(), *(each.grad for each in given)]

    expected = [outcome(program, sign) for sign in (1.0, -1.0)]
    compiled = torch.compile(bcmend.patch(program), backend="inductor", fullgraph=True)
    try:
        found = [outcome(compiled, sign) for sign in (1.0, -1.0)]
    finally:
        bcmend.unpatch()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def filled(x: torch.Tensor, weight: torch.Tensor, value: torch.Tensor) -> Any:
    y = x * weight
    y[x > 0] = value
    return y.sin() * y.amax(), y[0]


def test_no_result_is_written_over_that_a_mask_was_stored_in() -> None:
    torch._dynamo.reset()

    def outcome(called: Callable[..., Any]) -> list[Any]:
        x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
        weight, value = torch.full((2, 2), 2.0), torch.tensor(1.0)
        given = [each.requires_grad_() for each in (weight, value)]
        result, row = called(x, *given)
        result.sum().backward()
        return [result.detach(), row.detach(), *(each.grad for each in given)]

    expected = outcome(filled)
    compiled = torch.compile(bcmend.patch(filled), backend="inductor", fullgraph=True)
    try:
        found = outcome(compiled)
    finally:
        bcmend.unpatch()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_copy_to_an_argument_leaves_memory_to_be_reused() -> None:
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    made = graph.call_method("sin", (given,))
    graph.call_method("copy_", (given, made))
    graph.output(made)
    assert not is_at_stake(torch.fx.GraphModule(nn.Module(), graph))
    with graph.inserting_after(made):
        graph.call_method("copy_", (made, given))
    assert is_at_stake(torch.fx.GraphModule(nn.Module(), graph))


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8))
            for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if torch.rand([]) > 0.4:
                x = x + layer(x)
        return x


def test_no_weight_is_written_over_in_a_step() -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = Dropping()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    compiled = torch.compile(bcmend.patch(model), backend="inductor", fullgraph=True)
    for seed in range(4):
        torch.manual_seed(seed)
        compiled(torch.randn(4, 8, requires_grad=True)).sum().backward()
    bcmend.unpatch(model)
    for name, each in model.state_dict().items():
        assert each.equal(before[name]), name


def test_other_graphs_may_reuse_memory() -> None:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    assert not is_at_stake(torch.fx.symbolic_trace(Plain()))
    inner = torch.fx.Graph()
    inner.output(inner.call_function(torch.ops.higher_order.cond, ()))
    outer = torch.fx.Graph()
    outer.output(outer.call_module("side", ()))
    side = torch.fx.GraphModule(nn.Module(), inner)
    assert is_at_stake(side)
    assert is_at_stake(torch.fx.GraphModule(nn.ModuleDict({"side": side}), outer))


class Queue(nn.Module):
    """Keys of earlier calls, with which a loss compares before the call adds its own."""

    queue: torch.Tensor
    at: torch.Tensor
    before: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 3)
        self.register_buffer("queue", torch.randn(7, 3))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))
        self.register_buffer("before", torch.zeros(3))
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        compared = self.line(x) @ self.queue.clone().t()
        self.before[0:] = self.mean[0:]
        with torch.no_grad():
            at, count = int(self.at), len(keys)
            if at + count <= 7:
                self.queue[at : at + count] = keys
            else:
                self.queue[at:] = keys[: 7 - at]
                self.queue[: count - 7 + at] = keys[7 - at :]
            self.at[0] = (at + count) % 7
            self.mean.mul_(keys.mean(0))
        return compared.logsumexp(1)


@pytest.mark.parametrize("training", [False, True])
def test_a_copy_has_what_was_there_before_a_change(training: bool) -> None:
    assert_equivalent(
        Queue,
        lambda: [call(torch.randn(4, 3), torch.randn(4, 3)) for _ in range(4)],
        backend="inductor",
        training=training,
        graphs=None,
        recompiles=None,
    )


def test_copies_are_kept_where_an_input_is_changed() -> None:
    found: list[bool] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Any:
        found.append(changes_inputs(module))
        return module.forward

    for each in (torch.sin, torch.sin_, lambda x: x[1:].mul_(2), lambda x: x.clone().mul_(2)):
        torch._dynamo.reset()
        torch.compile(lambda x, each=each: each(x), backend=keep, fullgraph=True)(torch.ones(3))
    assert found == [False, True, True, False]
