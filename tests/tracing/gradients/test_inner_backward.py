"""``loss.backward()`` inside of a call, and what the leaves have then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import bcmend
from tests.equivalence import Call, assert_equivalent, call, compare

BACKENDS = ["eager", "aot_eager", "inductor"]


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


def _rows(count: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


def _labelled() -> list[Call]:
    return [call(_rows(seed=each), torch.tensor([0, 3, 1, 2])) for each in range(4)]


class Sign(_Net):
    """One step against a loss (FGSM)."""

    @torch.enable_grad()
    def forward(self, x: Tensor, y: Tensor) -> Any:
        x = x.clone().detach().requires_grad_(True)
        loss = functional.cross_entropy(self.net(x), y)
        loss.backward()
        assert x.grad is not None
        if x.grad.abs().max() < 1e-9:
            print("flat")
        return (x + 0.1 * x.grad.sign()).detach()


class Projected(_Net):
    """Several steps (PGD), each of which adds to the gradients of the parameters."""

    @torch.enable_grad()
    def forward(self, x: Tensor, y: Tensor) -> Any:
        x = x.detach()
        moved = x.clone()
        for _ in range(3):
            moved.requires_grad_()
            loss = functional.cross_entropy(self.net(moved), y)
            loss.backward()
            assert moved.grad is not None
            moved = (moved + 0.1 * moved.grad.sign()).detach()
            moved = torch.min(torch.max(moved, x - 0.2), x + 0.2).clamp(-3, 3)
        if moved.mean() > 1e3:
            print("far")
        return moved


class Frozen(_Net):
    def __init__(self) -> None:
        super().__init__()
        self.net.requires_grad_(False)

    @torch.enable_grad()
    def forward(self, x: Tensor, y: Tensor) -> Any:
        x = x.clone().detach().requires_grad_()
        torch.autograd.backward([functional.cross_entropy(self.net(x), y), x.square().mean()])
        assert x.grad is not None
        if x.grad.sum() > 0:
            return x.grad * 2
        return x.grad


class Trained(_Net):
    """A step of training in the call, without an optimizer."""

    @torch.enable_grad()
    def forward(self, x: Tensor, y: Tensor) -> Any:
        for each in self.parameters():
            each.grad = None
        loss = functional.cross_entropy(self.net(x), y)
        loss.backward()
        with torch.no_grad():
            for each in self.parameters():
                assert each.grad is not None
                each.sub_(each.grad, alpha=0.1)
        if loss > 1e3:
            print("large")
        return loss.detach()


class Weighted(_Net):
    @torch.enable_grad()
    def forward(self, x: Tensor, y: Tensor) -> Any:
        x = x.clone().detach().requires_grad_()
        out = self.net(x)
        out.backward(torch.ones_like(out) * 0.5, retain_graph=True)
        out.sum().backward(inputs=[x, self.net[0].weight])
        if out.sum() > 0:
            print("positive")
        return x.grad


class ByParts(_Net):
    """A tensor that is written to by parts, and several readers of one weight."""

    @torch.enable_grad()
    def forward(self, x: Tensor, y: Tensor) -> Any:
        x = x.clone().detach().requires_grad_()
        out = torch.zeros(4, 4)
        out[:2] = self.net(x[:2])
        out[2:] = self.net(x[2:] * 2)
        torch.nn.functional.cross_entropy(out, y).backward()
        if out.sum() > 0:
            print("positive")
        return x.grad


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", [Sign, Projected, Frozen, Trained, Weighted, ByParts])
def test_backward(model: Callable[[], Any], backend: str, training: bool) -> None:
    assert_equivalent(model, _labelled, backend=backend, training=training)
    found = compare(model, _labelled, backend=backend, training=training, fullgraph=False)
    assert (found.eager_differences, found.differences) == ((), ())


class _Lines(_Net):
    """What all have in common: the data decide whether a line is written."""

    def _end(self, loss: Tensor) -> Tensor:
        if loss > 1e3:
            print("large")
        return loss.detach()


def _leaves() -> list[Call]:
    """Return calls with leaves, every second of which has a gradient."""
    calls = []
    for seed in range(4):
        x = _rows(seed=seed).requires_grad_()
        x.grad = torch.ones_like(x) if seed % 2 else None
        calls.append(call(x))
    return calls


class OfAnArgument(_Lines):
    def forward(self, x: Tensor) -> Any:
        before = x.grad
        loss = self.net(x).square().sum()
        loss.backward()
        return self._end(loss), x.grad is before, before is None, x.grad


class OneObject(_Lines):
    """Several names of one leaf, and steps in place between two backwards."""

    def forward(self, x: Tensor) -> Any:
        leaf = x.detach().clone().requires_grad_()
        same, again = leaf.to(torch.float32), leaf.contiguous()
        loss = self.net(leaf).square().sum()
        loss.backward()
        with torch.no_grad():
            for each in self.parameters():
                each -= 0.01 * each.grad  # type: ignore[operator]
                each.grad = None
        loss = self.net(same).square().sum()
        loss.backward(inputs=[again, *self.parameters()])
        assert leaf.grad is not None
        return self._end(loss), same.grad is leaf.grad, again.grad


class Strided(_Lines):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(4, 3).t(), torch.randn(4, 1), torch.ones(1)])

    def forward(self, x: Tensor) -> Any:
        leaf = x.detach().t().clone().t().requires_grad_()
        loss = (leaf @ self.weights[0] @ self.weights[1] * self.weights[2]).square().sum()
        loss.backward()
        return self._end(loss), leaf.grad


class Shared(_Lines):
    """One gradient for two leaves, one of which is then changed."""

    def forward(self, x: Tensor) -> Any:
        one, other = x.detach().clone().requires_grad_(), x.detach().clone().requires_grad_()
        both = one + other
        both.backward(torch.ones_like(both))
        assert one.grad is not None
        one.grad.mul_(2)
        return self._end(both.sum()), one.grad, other.grad


class ThenFails(_Lines):
    """What the graph has added is taken back before the call is made again."""

    def forward(self, x: Tensor) -> Any:
        loss = self.net(x).sum()
        loss.backward()
        if loss > 0:
            raise ValueError(f"too much: {loss.item()}")
        return loss.detach()


class Printed(_Lines):
    def forward(self, x: Tensor) -> Any:
        loss, bias = self.net(x).square().sum(), self.net[0].bias
        loss.backward()
        print(bias.grad)
        bias.grad.mul_(2)
        self.seen = bias.grad
        print(round(self.seen.sum().item(), 3))
        return loss.detach()


class BehindSlopes(_Lines):
    def forward(self, x: Tensor) -> Any:
        leaf = x.detach().clone().requires_grad_()
        loss = self.net(leaf).square().sum()
        (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
        total = slope.square().sum() + loss
        with torch.no_grad():
            total.backward()
        return self._end(loss), leaf.grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "model", [OfAnArgument, OneObject, Strided, Shared, ThenFails, Printed, BehindSlopes]
)
def test_what_leaves_have_then(model: Callable[[], Any], backend: str) -> None:
    assert_equivalent(model, _leaves, backend=backend, training=True, graphs=None, recompiles=None)


def test_one_tensor_is_given_twice() -> None:
    class Both(_Lines):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            loss = (self.net(x) * self.net(y)).sum()
            loss.backward()
            return self._end(loss), x.grad, y.grad is x.grad

    def calls() -> list[Call]:
        x, y = _rows().requires_grad_(), _rows(seed=1).requires_grad_()
        return [call(x, x), call(x, y), call(y, y)]

    found = compare(Both, calls, backend="aot_eager", training=True)
    assert (found.eager_differences, found.differences) == ((), ())


# What is left to torch


class CreatesAGraph(_Lines):
    def forward(self, x: Tensor) -> Any:
        leaf = x.detach().clone().requires_grad_()
        loss = self.net(leaf).square().sum()
        loss.backward(create_graph=True)
        assert leaf.grad is not None
        return self._end(loss), leaf.grad.detach()


class WithHooks(_Lines):
    def __init__(self) -> None:
        super().__init__()
        self.net[0].weight.register_hook(lambda gradient: gradient * 2)

    def forward(self, x: Tensor) -> Any:
        loss = self.net(x).square().sum()
        loss.backward()
        return self._end(loss)


class HooksOfTheCall(_Lines):
    def forward(self, x: Tensor) -> Any:
        x.register_hook(lambda gradient: gradient * 2)
        loss = self.net(x).square().sum()
        loss.backward()
        return self._end(loss), x.grad


class WithGaps(_Lines):
    def forward(self, x: Tensor) -> Any:
        leaf = torch.cat([x, x])[::2].detach().requires_grad_()
        loss = self.net(leaf).square().sum()
        loss.backward()
        return self._end(loss), leaf.grad


class InABranch(_Lines):
    def forward(self, x: Tensor) -> Any:
        loss = self.net(x).square().sum()
        if loss > 3:
            loss.backward()
        return self._end(loss)


class ThroughABranch(_Lines):
    def forward(self, x: Tensor) -> Any:
        loss = self.net(x).square().sum()
        if loss > 3:
            loss = loss * 2
        loss.backward()
        return loss.detach()


class TwiceThrough(_Lines):
    """An error."""

    def forward(self, x: Tensor) -> Any:
        loss = self.net(x).square().sum()
        loss.backward()
        loss.backward()
        return self._end(loss)


class OfNothing(_Lines):
    """An error."""

    def forward(self, x: Tensor) -> Any:
        loss = x.detach().sum()
        loss.backward()
        return self._end(loss)


class OfRows(_Lines):
    """An error."""

    def forward(self, x: Tensor) -> Any:
        self.net(x).backward()
        return self._end(x.sum())


class LeafReturned(_Lines):
    def forward(self, x: Tensor) -> Any:
        leaf = x.detach().clone().requires_grad_()
        loss = self.net(leaf).square().sum()
        loss.backward()
        return self._end(loss), leaf


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "model",
    [
        *(CreatesAGraph, WithHooks, HooksOfTheCall, WithGaps, InABranch, ThroughABranch),
        *(TwiceThrough, OfNothing, OfRows, LeafReturned),
    ],
)
def test_what_is_left_to_torch(model: Callable[[], Any], backend: str) -> None:
    found = compare(model, _leaves, backend=backend, fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


class Plain(_Lines):
    def forward(self, x: Tensor) -> Any:
        loss = self.net(x).square().sum()
        loss.backward()
        return self._end(loss)


def test_a_history_outside_of_the_graph_is_gone_through() -> None:
    """A call that brings such a history is not one for the graph of a call that brought none."""

    def calls() -> list[Call]:
        weight = torch.ones(3, requires_grad=True)
        tensors = [_rows(seed=each).requires_grad_() for each in range(4)]
        return [call(each * weight if at % 2 else each) for at, each in enumerate(tensors)]

    found = compare(Plain, calls, backend="aot_eager", fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


def test_hooks_that_are_put_on_a_parameter_between_calls() -> None:
    both = [Plain(), Plain()]
    both[1].load_state_dict(both[0].state_dict())
    compiled = torch.compile(bcmend.patch(both[0]), backend="aot_eager")
    for seed in range(3):
        if seed == 1:
            both[0].net[0].weight.register_hook(lambda gradient: gradient * 2)
            both[1].net[0].weight.register_hook(lambda gradient: gradient * 2)
        compiled(_rows(seed=seed))
        both[1](_rows(seed=seed))
        for one, other in zip(both[0].parameters(), both[1].parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)


def test_a_gradient_that_is_sparse_stays_sparse() -> None:
    class Rows(_Lines):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Embedding(5, 3, sparse=True)

        def forward(self, places: Tensor) -> Any:
            loss = self.net(self.rows(places)).square().sum()
            loss.backward()
            return self._end(loss)

    both = [Rows(), Rows()]
    both[1].load_state_dict(both[0].state_dict())
    compiled = torch.compile(bcmend.patch(both[0]), backend="aot_eager")
    for at in range(2):
        compiled(torch.tensor([at, 2]))
        both[1](torch.tensor([at, 2]))
        found = [each.rows.weight.grad for each in both]
        assert found[0].is_sparse
        torch.testing.assert_close(found[0].to_dense(), found[1].to_dense(), rtol=0, atol=0)


def test_inductor_makes_one_tensor_of_a_gradient_and_its_copy() -> None:
    """As docs/deviations.md says; so it does of copies that the program makes."""

    class Copied(_Lines):
        def forward(self, x: Tensor) -> Any:
            leaf = x.detach().clone().requires_grad_()
            loss = self.net(leaf).square().sum()
            loss.backward()
            assert leaf.grad is not None
            self._end(loss)
            return leaf.grad, leaf.grad.clone()

    def copied(x: Tensor) -> Any:
        first = x.sin().clone()
        return first, first.clone()

    for program in (bcmend.patch(Copied()), copied):
        first, second = torch.compile(program, backend="inductor", fullgraph=True)(_rows())
        assert first is second
