"""Parameters that a call makes are made before its graph, and are those of eager execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported

import bcmend
from tests.equivalence import assert_equivalent, call
from tests.samples import in_turn

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


class Scaled(nn.Module):
    """A layer of the program, with a parameter that is not initialised in place."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((size,), 2.0))
        self.shift = nn.Parameter(torch.randn(size, size).t())
        self.fixed = nn.Parameter(torch.arange(size), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.shift * self.scale + self.fixed


class Lazy(nn.Module):
    """Makes its layers in its first call, and others where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first: nn.Module | None = None
        self.scaled: nn.Module | None = None
        self.norm: nn.Module | None = None

    def forward(self, x: Tensor, again: bool = False) -> Tensor:
        if self.first is None or again:
            x = nn.functional.dropout(x, 0.5, self.training)
            self.first = nn.Linear(x.shape[-1], 3)
            self.scaled = Scaled(3)
            self.norm = nn.LayerNorm(3)
            self.train(self.training)
        assert self.scaled is not None and self.norm is not None
        return self.norm(self.scaled(self.first(x)))


@pytest.mark.parametrize(
    ("backend", "training"), in_turn(["eager", "aot_eager", "inductor"], [False, True])
)
def test_layers_made_in_the_call(backend: str, training: bool) -> None:
    calls = [(torch.ones(2, 4), False), (torch.arange(8.0).view(2, 4), False)]
    calls += [(torch.ones(2, 4), True), (torch.ones(2, 4), True)]
    found = assert_equivalent(
        Lazy,
        lambda: [call(x.clone(), again) for x, again in calls],
        backend=backend,
        training=training,
        graphs=3,  # without layers, with them, and where they are made again
        recompiles=2,
    )
    assert found.report is not None


class Swapped(nn.Module):
    """Makes a layer and gives it the weights of the old one, as BigBird does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        layer = nn.Linear(4, 4)
        layer.weight = self.layer.weight
        self.layer = layer
        return layer(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_parameter_that_does_not_stay(backend: str) -> None:
    assert_equivalent(
        Swapped, lambda: [call(torch.ones(2, 4))], backend=backend, training=True, recompiles=None
    )


def test_a_parameter_of_what_is_computed_from_arguments() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        h = (x * 2).relu()
        p = nn.Parameter(h)
        y = (p * x).sum()
        return p, y, p.is_leaf, p.requires_grad, type(p) is nn.Parameter

    for training in (False, True):
        for backend in ("eager", "aot_eager"):
            assert_equivalent(
                lambda: program,
                lambda: [call(torch.ones(3)), call(torch.zeros(3))],
                backend=backend,
                training=training,
            )


def test_the_gradient_of_a_new_parameter_that_is_returned() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        p = nn.Parameter(torch.ones(3))
        with torch.no_grad():
            p.mul_(3)
        return p, (p * x).sum()

    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        compiled = bcmend.compile(program, backend=backend, fullgraph=True)
        seen = []
        for factor in (1.0, 2.0):
            x = torch.full((3,), factor, requires_grad=True)
            p, y = compiled(x)
            y.backward()
            assert type(p) is nn.Parameter and p.is_leaf
            assert p.grad is not None and torch.equal(p.grad, torch.full((3,), factor))
            assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 3.0))
            seen.append(p)
        assert seen[0] is not seen[1]
        assert seen[0].data_ptr() != seen[1].data_ptr()


def test_a_check_behind_it_that_fails() -> None:
    class Checked(Lazy):
        def forward(self, x: Tensor, again: bool = False) -> Tensor:
            y = super().forward(x, again)
            if x.sum() > 100:
                raise ValueError(f"{x.sum()} is large")
            return y

    calls = [torch.full((2, 4), 50.0), torch.ones(2, 4)]
    assert_equivalent(
        Checked,
        lambda: [call(each.clone()) for each in calls],
        training=True,
        graphs=2,
        recompiles=1,
    )


@pytest.mark.parametrize("training", [False, True])
def test_a_graph_break_behind_it(training: bool) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            layer = nn.Linear(3, 3)
            torch._dynamo.graph_break()
            self.layer = layer
            return layer(x)

    for backend in ("eager", "aot_eager"):
        assert_equivalent(
            Broken,
            lambda: [call(torch.ones(2, 3)), call(torch.zeros(2, 3))],
            backend=backend,
            fullgraph=False,
            graphs=None,
            recompiles=None,
            training=training,
        )


def test_a_call_in_inference_mode() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        p = nn.Parameter(torch.ones(3))
        return p, p * x

    with torch.inference_mode():
        p, y = bcmend.compile(program, backend="aot_eager", fullgraph=True)(torch.ones(3))
    assert p.is_inference() and y.is_inference() and torch.equal(y, torch.ones(3))


# What stays as it is


def _data_used_behind(x: Tensor) -> Any:
    data = torch.zeros(3)
    p = nn.Parameter(data)
    nn.init.ones_(p)
    return data + x, p


def _data_returned(x: Tensor) -> Any:
    data = torch.zeros(3)
    p = nn.Parameter(data)
    return x + p, data


def _a_view_used_behind(x: Tensor) -> Any:
    data = torch.zeros(3)
    view = data[:1]
    p = nn.Parameter(data)
    with torch.no_grad():
        view.fill_(2)
    return x * p


def _a_part_of_a_tensor(x: Tensor) -> Any:
    return nn.Parameter(torch.ones(2, 3)[1]) * x


def _a_view_of_an_argument(x: Tensor) -> Any:
    p = nn.Parameter(x.view(3))
    nn.init.ones_(p)
    return p * x


def _one_item_for_all(x: Tensor) -> Any:
    return nn.Parameter(torch.ones(1).expand(3)) * x


def _of_a_parameter(x: Tensor) -> Any:
    p = nn.Parameter(torch.ones(3))
    q = nn.Parameter(p, requires_grad=False)
    nn.init.zeros_(p)
    return q * x


def _under_a_condition(x: Tensor) -> Any:
    if x.sum() > 0:
        return nn.Parameter(torch.ones(3)) * x
    return x


def _in_inference_mode(x: Tensor) -> Any:
    with torch.inference_mode():
        p = nn.Parameter(torch.ones(3))
        return p.is_inference(), p * x


def _under_a_transform(x: Tensor) -> Any:
    return torch.func.vmap(lambda each: nn.Parameter(torch.ones(3) * each) * each)(x)


def _of_integers(x: Tensor) -> Any:
    return nn.Parameter(torch.ones(3, dtype=torch.int64)) * x


@pytest.mark.parametrize(
    "program",
    [
        _data_used_behind,
        _data_returned,
        _a_view_used_behind,
        _a_part_of_a_tensor,
        _a_view_of_an_argument,
        _one_item_for_all,
        _of_a_parameter,
        _under_a_condition,
        _in_inference_mode,
        _under_a_transform,
    ],
)
def test_what_shares_memory_or_depends_on_data_breaks_as_before(program: Program) -> None:
    inputs = [call(torch.ones(3)), call(-torch.ones(3))]
    with torch.no_grad():
        assert_equivalent(
            lambda: program, lambda: inputs, fullgraph=False, graphs=None, recompiles=None
        )
        torch._dynamo.reset()
        with pytest.raises(Unsupported):
            bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(3))


def test_a_parameter_of_integers_fails_as_in_eager_execution() -> None:
    inputs = [call(torch.ones(3))]
    assert_equivalent(
        lambda: _of_integers, lambda: inputs, fullgraph=False, graphs=None, recompiles=None
    )


def test_a_policy_switches_it_off() -> None:
    def program(x: Tensor) -> Tensor:
        return nn.Parameter(torch.ones(3)) * x

    bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
    (site,) = bcmend.report(program).mended
    assert (site.kind, site.lowering) == ("call", "substitute")
    bcmend.unpatch()
    torch._dynamo.reset()
    kept = bcmend.patch(program, policy=bcmend.Policy(off=(site.name,)))
    with pytest.raises(Unsupported):
        torch.compile(kept, backend="eager", fullgraph=True)(torch.ones(3))
