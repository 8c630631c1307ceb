"""Gradients that a call computes itself, of inputs that it has require gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad

import bcmend
from tests.equivalence import Call, assert_equivalent, call, compare

BACKENDS = ["eager", "aot_eager", "inductor"]


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def _rows(count: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


def _held() -> list[Call]:
    """Return calls with tensors in dictionaries, which require no gradients yet."""
    return [call({"x": _rows(seed=each) * 2}) for each in range(4)]


class Forces(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        if not x.requires_grad:
            x.requires_grad_(True)
        energy = self.net(x).sum()
        forces = -grad([energy], [x], create_graph=True, retain_graph=True)[0]
        if not torch.isfinite(forces).all():
            raise ValueError(f"no forces at {x}")
        return energy, forces


class Residual(_Net):
    """An equation with a second derivative."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        held["x"].requires_grad = True
        u = self.net(held["x"])
        first = grad(u, held["x"], torch.ones_like(u), create_graph=True)[0]
        second = grad(first[:, 0].sum(), held["x"], create_graph=True)[0]
        if second.abs().max() > 1e3:
            print("steep")
        return u, (first.square() + second).mean()


class Penalty(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        mixed = (0.3 * held["x"] + 0.7 * held["x"].flip(0)).requires_grad_()
        found = self.net(mixed)
        (slope,) = grad(
            outputs=found, inputs=mixed, grad_outputs=torch.ones_like(found), create_graph=True
        )
        norm = slope.norm(2, dim=1)
        if norm.max() > 1e3:
            print("steep")
        return (norm - 1).square().mean()


class Steps(_Net):
    """Steps against gradients, cut where these are long."""

    def forward(self, held: dict[str, Tensor]) -> Tensor:
        x = held["x"].detach().requires_grad_()
        for _ in range(3):
            (slope,) = grad(self.net(x).sum(), x)
            if slope.norm() > 0.3:
                slope = slope * 0.3 / slope.norm()
            x = (x - 0.1 * slope).detach().requires_grad_()
        return x.detach()


class Inner(_Net):
    """One step of the weights, and what the new ones give."""

    def forward(self, held: dict[str, Tensor]) -> Tensor:
        loss = self.net(held["x"]).square().mean()
        slopes = grad(loss, list(self.parameters()), create_graph=True)
        one, bias, two, end = (
            weight - 0.1 * slope for weight, slope in zip(self.parameters(), slopes, strict=True)
        )
        result = torch.tanh(held["x"] @ one.t() + bias) @ two.t() + end
        if result.mean() > 0:
            result = result * 2
        return result.mean()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", [Forces, Residual, Penalty, Steps, Inner])
def test_forces(model: Callable[[], Any], backend: str) -> None:
    assert_equivalent(model, _held, backend=backend, training=True)


class FromOutside(_Net):
    def forward(self, x: Tensor) -> Any:
        energy = self.net(x).sum()
        if energy > 0:
            print("positive")
        return energy, grad(energy, x, create_graph=True)[0]


def test_of_tensors_that_others_have_computed() -> None:
    def calls() -> list[Call]:
        return [call(_rows(seed=each).requires_grad_() * 2) for each in range(3)]

    assert_equivalent(FromOutside, calls, training=True)


class InEvaluation(_Net):
    """Nothing of the graph is kept, and the energy is a result."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        with torch.enable_grad():
            x = held["x"].requires_grad_()
            energy = self.net(x).sum()
            forces = grad(energy, x)[0]
        if forces.norm() > 1e3:
            print("large")
        return energy.detach(), forces


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("training", [False, True])
def test_without_a_graph_of_gradients(training: bool, backend: str) -> None:
    assert_equivalent(InEvaluation, _held, backend=backend, training=training)


class ThroughABranch(_Net):
    """The derivative of the side that is not taken is infinite."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        if x.sum() > 0:
            y = (x * x).sum().sqrt()
        else:
            y = (x * 0).sum().sqrt()
        return grad(y, x, create_graph=True)[0]


class ThroughMemory(_Net):
    """What a branch gives is written into what the gradients are computed of."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x, y = held["x"].requires_grad_(), held["x"].detach().clone().requires_grad_()
        kept = torch.zeros(2)
        total = x.sum()
        if total > 0:
            total = total + y.sum()
        kept[0] = total
        found = grad(kept.sum(), [x, y], allow_unused=True)
        return [each is None for each in found]


class ThroughAChoice(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        if x.sum() > 0:
            y = torch.linalg.inv(x.t() @ x + torch.eye(3)).sum() * self.net(x).sum()
        else:
            y = self.net(x).exp().sum()
        return grad(y, x, create_graph=True)[0]


class ThroughOneSide(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x, y = held["x"].requires_grad_(), held["x"].detach().clone().requires_grad_()
        total = x.sum()
        if total > 0:
            total = total + y.sum()
        found = grad(total, [x, y], allow_unused=True)
        return [each is None for each in found]


@pytest.mark.parametrize("model", [ThroughABranch, ThroughMemory, ThroughAChoice, ThroughOneSide])
def test_gradients_through_a_branch_are_left_to_torch(model: Callable[[], Any]) -> None:
    found = compare(model, _held, fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


class Twice(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        energy = self.net(x).square().sum()
        return grad(energy, x)[0] + grad(energy, x)[0]


def test_what_is_gone_through_twice_is_an_error() -> None:
    found = compare(Twice, _held, fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


class Checked(_Net):
    """Checks in front of the change and behind it."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        if held["y"].sum() > 20:
            raise ValueError("too much")
        x = held["x"].requires_grad_()
        slope = grad(self.net(x).sum() * held["y"].sum(), x)[0]
        if slope.norm() > 2:
            raise RuntimeError("too steep")
        return slope


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_is_left_as_the_program_leaves_it(backend: str) -> None:
    def calls() -> list[Call]:
        return [
            call({"x": _rows(seed=each), "y": torch.full((2,), value)})
            for each, value in enumerate((0.1, 11.0, 5.0, 0.2, 12.0))
        ]

    assert_equivalent(Checked, calls, backend=backend, training=True)


class AsTheSizeSays(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        if x.shape[0] > 4:
            x.requires_grad_()
        energy = self.net(x).sum()
        if energy > 0:
            print("positive")
        return grad(energy, x)[0] if x.requires_grad else energy


def test_guards_are_asked_before_an_input_is_changed() -> None:
    def calls() -> list[Call]:
        return [call({"x": _rows(each)}) for each in (4, 5, 4, 6, 3)]

    found = compare(AsTheSizeSays, calls, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


class CheckedBefore(_Net):
    """What is computed before the change has no history, and no gradient goes through it."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        if torch.isnan(x).any():
            raise ValueError(f"not a number in {x}")
        near, origin = (torch.cdist(x, x) < 3.0).nonzero(as_tuple=True)
        doubled, energy = x * 2, self.net(x)
        x.requires_grad_()
        both = self.net(x[near] - x[origin]).sum() * doubled.sum() + energy.sum()
        return doubled, energy, grad(both, x, create_graph=True)[0]


class BranchesBefore(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        first = x[:2]
        if x.mean() > 0:
            scale = torch.linalg.inv(x.t() @ x + torch.eye(3)).sum()
        else:
            scale = first.sum()
        x.requires_grad_()
        return grad(self.net(x).sum() * scale, x, create_graph=True)[0]


class ShownBefore(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        print("before", x, x.requires_grad, x.mean().item())
        x.requires_grad_()
        print("after", x, x.requires_grad)
        return grad(self.net(x).sum(), x)[0]


class FlagBefore(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        self.was = x.requires_grad
        states = [getattr(x, "requires_grad"), x.is_leaf]  # noqa: B009
        x.requires_grad_()
        slope = grad(self.net(x).sum(), x)[0]
        if slope.norm() > 1e3:
            print("steep")
        return slope, states, x.requires_grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", [CheckedBefore, BranchesBefore, ShownBefore, FlagBefore])
def test_an_input_was_read_before(model: Callable[[], Any], backend: str) -> None:
    assert_equivalent(model, _held, backend=backend, training=True)


class SetBack(_Net):
    """The flag of the argument is as it was when the call ends."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        was = x.requires_grad
        x.requires_grad_(True)
        energy = self.net(x).square().sum()
        slope = grad(energy, x, create_graph=True)[0]
        between = x.requires_grad
        print(x, x.requires_grad)
        x.requires_grad_(was)
        print(x, x.requires_grad)
        if slope.norm() > 1e3:
            print("steep")
        return energy, slope, between, x.requires_grad, x


class StoredBack(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        was, x.requires_grad = x.requires_grad, True
        slope = grad(self.net(x).square().sum(), x)[0]
        x.requires_grad = was
        if slope.norm() > 1.5:
            raise ValueError(f"steep: {x} {x.requires_grad}")
        return slope


class FailsBetween(_Net):
    """The flag stays where the call ends before it is set back."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        was = x.requires_grad
        x.requires_grad_()
        slope = grad(self.net(x).square().sum(), x)[0]
        if slope.norm() > 1.5:
            raise ValueError(f"steep: {x}")
        x.requires_grad_(was)
        return slope


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", [SetBack, StoredBack, FailsBetween])
def test_a_flag_is_set_back(model: Callable[[], Any], backend: str) -> None:
    assert_equivalent(model, _held, backend=backend, training=True)


class UsedBehind(_Net):
    """Nothing flows back through what is computed when the flag is set back."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        slope = grad(self.net(x).square().sum(), x)[0]
        x.requires_grad_(False)
        if slope.norm() > 1e3:
            print("steep")
        return slope, self.net(x) + x


class OnceMore(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        slope = torch.zeros_like(x)
        for _ in range(2):
            x.requires_grad_(True)
            slope = slope + grad(self.net(x).square().sum(), x)[0]
            x.requires_grad_(False)
        if slope.norm() > 1e3:
            print("steep")
        return slope


class SetBackInABranch(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        slope = grad(self.net(x).square().sum(), x)[0]
        if slope.norm() > 1.5:
            x.requires_grad_(False)
        return slope


class FlagOfAView(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        first = x[:2]
        before = first.requires_grad
        x.requires_grad_()
        if x.sum() > 0:
            print("positive")
        return before, first.requires_grad, first.is_leaf, grad(self.net(x).sum(), x)[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("model", [UsedBehind, OnceMore, SetBackInABranch, FlagOfAView])
def test_flags_that_are_left_to_torch(model: Callable[[], Any], backend: str) -> None:
    found = compare(model, _held, backend=backend, fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


class WrittenBefore(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        x.mul_(2)
        x.requires_grad_()
        if x.sum() > 0:
            print("positive")
        return grad(self.net(x).sum(), x)[0]


class ViewWritten(_Net):
    """An error: the view is one of a leaf."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        first = x[:2]
        x.requires_grad_()
        if x.sum() > 0:
            print("positive")
        first.mul_(2)
        return grad(self.net(x).sum(), x)[0]


class ViewReturned(_Net):
    """The view requires gradients as well, and is no part of what the gradients go through."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"]
        first = x[:2]
        x.requires_grad_()
        if x.sum() > 0:
            print("positive")
        return first, grad(self.net(x).sum() * first.sum(), x)[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("model", [WrittenBefore, ViewWritten, ViewReturned])
def test_an_input_that_is_written_or_seen_is_left_to_torch(
    model: Callable[[], Any], backend: str
) -> None:
    found = compare(model, _held, backend=backend, fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


def test_an_input_is_given_twice() -> None:
    def calls() -> list[Call]:
        held = {"x": _rows()}
        return [call(held), call(held), call({"x": _rows(seed=1)})]

    found = compare(Forces, calls, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


class ByPlace(_Net):
    """All arguments by their places, and twice through the same operations."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x, weight = held["x"].requires_grad_(), self.net[0].weight
        u = self.net(x)
        first = grad(u, x, torch.ones_like(u), True, True)[0]
        if first.norm() > 1e3:
            print("steep")
        return grad(u, weight, torch.ones_like(u), True, True)[0] + first.mean()


def test_all_arguments_are_given_by_place() -> None:
    assert_equivalent(ByPlace, _held, training=True)


class ByName(_Net):
    """The history of the first argument leads to the second."""

    def forward(self, x: Tensor, scale: Tensor) -> Any:
        energy = self.net(x).square().sum() * scale
        if energy > 1e3:
            print("large")
        return grad(outputs=energy, inputs=[scale], allow_unused=True)[0]


class ByBoth(_Net):
    def forward(self, x: Tensor, scale: Tensor) -> Any:
        energy = self.net(x).square().sum() * scale
        if energy > 1e3:
            print("large")
        return grad(energy, [x, scale])


class TwiceByName(_Net):
    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        energy = self.net(x).square().sum()
        return grad(outputs=energy, inputs=x)[0] + grad(outputs=energy, inputs=x)[0]


def _scaled(*, first_is_a_leaf: bool) -> list[Call]:
    calls = []
    for seed in range(3):
        scale = torch.tensor(2.0, requires_grad=True)
        x = _rows(seed=seed)
        calls.append(call(x.requires_grad_() if first_is_a_leaf and not seed else x * scale, scale))
    return calls


@pytest.mark.parametrize("first_is_a_leaf", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("model", [ByName, ByBoth])
def test_histories_outside_of_the_graph_are_gone_through(
    model: Callable[[], Any], backend: str, first_is_a_leaf: bool
) -> None:
    """A call that brings such a history is not one for the graph of a call that brought none."""

    def calls() -> list[Call]:
        return _scaled(first_is_a_leaf=first_is_a_leaf)

    found = compare(model, calls, backend=backend, fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


def test_what_is_given_by_name_is_gone_through_twice() -> None:
    found = compare(TwiceByName, _held, fullgraph=False, training=True)
    assert (found.eager_differences, found.differences) == ((), ())


class _Other(_Net):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


class OnOneSide(_Other):
    """The other side leaves the gradients of the input and of the first network at ``None``."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        slope = grad(self.net(x).sum(), x, create_graph=True)[0]
        out = self.other(x.detach()).sum()
        if x.sum() > 0:
            out = out + self.net(slope).sum()
        return out, slope.detach()


class OfRowsOnOneSide(_Other):
    """The branch gets an input by which the gradients are computed, too."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = held["x"].requires_grad_()
        energy = self.net(x)
        rows = (energy > energy.mean() + 0.3).squeeze(1)
        slope = grad(energy.sum(), x, create_graph=True)[0]
        out = self.net(x)
        if rows.any():
            out = out + self.other(slope * rows[:, None])
        return out, energy, slope.detach()


class Colours(_Other):
    """Rows of a tensor that is no leaf are filled by one side; its shape is that of a new leaf."""

    def forward(self, held: dict[str, Tensor]) -> Any:
        x = (held["x"] * 1.0).requires_grad_()
        distance = self.net(x)
        normals = grad(distance.sum(), x, create_graph=True)[0]
        colours = torch.zeros_like(x)[:, :1]
        rows = (distance < distance.mean()).squeeze(1)
        if rows.any():
            colours[rows] = torch.sigmoid(self.other(normals[rows]))
        return colours, (normals.norm(dim=-1) - 1).square().mean()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", [OnOneSide, OfRowsOnOneSide, Colours])
def test_a_branch_behind_the_gradients(model: Callable[[], Any], backend: str) -> None:
    assert_equivalent(model, _held, backend=backend, training=True)


def test_a_backward_through_what_keeps_nothing() -> None:
    """As docs/deviations.md says: it is an error in eager execution."""

    class Energy(_Net):
        def forward(self, x: Tensor) -> Any:
            x.requires_grad_()
            energy = self.net(x).square().sum()
            if energy > 1e9:
                print("large")
            return energy, grad(energy, x)[0]

    energy, _ = Energy()(_rows())
    with pytest.raises(RuntimeError, match="second time"):
        energy.backward()
    compiled = torch.compile(bcmend.patch(Energy()), backend="aot_eager", fullgraph=True)
    x = _rows()
    energy, slope = compiled(x)
    energy.backward()
    torch.testing.assert_close(x.grad, slope)
