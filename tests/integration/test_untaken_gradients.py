"""Gradients of what only the side not taken uses: ``None``, as in eager execution."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bcmend

POSITIVE, NEGATIVE = torch.ones(3), -torch.ones(3)
Gradients = dict[str, Tensor | None]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Cheap(nn.Module):
    """Both sides run, and one is selected."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.both = (nn.Parameter(torch.ones(3) * n) for n in (2, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.both
        if x.sum() > 0:
            x = x * self.one
        else:
            x = x + self.other
        return x * 2


class Expensive(nn.Module):
    """Only the side that is taken runs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.one(x)
        else:
            x = torch.tanh(self.other(x))
        return x * 2


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.third = (nn.Linear(3, 3) for _ in range(3))
        self.cheap = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.one(x)
            if x.mean() > 0.2:
                x = self.other(x)
            else:
                x = x * self.cheap
        else:
            x = self.third(x)
        return x


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sides = nn.ParameterList(torch.ones(3) * n for n in (1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 3:
            y = x * self.sides[0]
        elif x.sum() > 0:
            y = x * self.sides[1]
        else:
            y = x * self.sides[2]
        return y + 1


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inside = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3) * 1.5)

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.scale
        while y.sum() < 2:
            y = y.abs() * self.inside + 1
        return y


class LeavesALoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ParameterList(torch.ones(3) * n for n in (1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1
        for layer in self.layers:
            x = x * layer
            if x.sum() > 3:
                break
        return x + 1


class OfTheProgram(nn.Module):
    """A select that the program makes itself gives zeros in eager execution, too."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.third = (nn.Parameter(torch.ones(3) * n) for n in (1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.where(x.sum() > 0, x * self.one, x * self.other)
        if x.sum() > 0:
            x = x + self.third
        return x * 2


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.one(x)
        return torch.tanh(self.other(x))


class Compared(nn.Module):
    """Numbers of a parameter are compared only; those of another in one side, and used in both."""

    def __init__(self) -> None:
        super().__init__()
        self.bound, self.scale = (nn.Parameter(torch.tensor([0.5, 2.0, n])) for n in (0.7, -3.0))

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            chosen = x[x * 1.5 > self.bound] * 3
            return chosen.sum() + x[self.scale > 0].sum() + x.mean() * self.scale.sum()
        return (x * self.scale).sum()


class StoredInPlace(nn.Module):
    """One side writes to a result that has had no history; another result has one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.both = (nn.Parameter(torch.ones(3) * n) for n in (2, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.scaled = scaled = x * self.both
        result = torch.zeros_like(x)
        mask = x > 0
        if mask.any():
            result[mask] = scaled[mask] * self.one[mask]
        return result


class LayerDrop(nn.Module):
    def __init__(self, width: int = 8, layers: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            if torch.rand(()) > 0.5:
                x = x + layer(x)
        return x


def _pair(make: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Return a model, and an equal one that is patched and compiled."""
    torch.manual_seed(0)
    eager = make()
    options.setdefault("backend", "aot_eager")
    return eager, bcmend.compile(copy.deepcopy(eager), fullgraph=True, **options)


def _gradients(module: nn.Module) -> Gradients:
    names = ((name.replace("_orig_mod.", ""), each) for name, each in module.named_parameters())
    return {name: None if each.grad is None else each.grad.clone() for name, each in names}


def _after(module: nn.Module, backward: Callable[[Any], None]) -> Gradients:
    module.zero_grad()
    backward(module)
    return _gradients(module)


def _assert_equal(found: Gradients, wanted: Gradients) -> None:
    assert {name for name in found if found[name] is None} == {
        name for name in wanted if wanted[name] is None
    }
    for name, gradient in wanted.items():
        if gradient is not None:
            torch.testing.assert_close(found[name], gradient)


def _compare(pair: tuple[Any, Any], backward: Callable[[Any], None]) -> Gradients:
    """Assert that both give the same gradients; return them."""
    wanted, found = (_after(each, backward) for each in pair)
    _assert_equal(found, wanted)
    return wanted


@pytest.mark.parametrize(
    ("make", "backend", "sides"),
    [
        (Cheap, "eager", (POSITIVE, NEGATIVE)),
        (Cheap, "aot_eager", (POSITIVE, NEGATIVE)),
        (Expensive, "eager", (POSITIVE, NEGATIVE)),
        (Expensive, "aot_eager", (POSITIVE, NEGATIVE)),
        (Nested, "eager", (POSITIVE, 5 * POSITIVE, NEGATIVE, 0.1 * POSITIVE)),
        (Nested, "aot_eager", (POSITIVE, 5 * POSITIVE, NEGATIVE, 0.1 * POSITIVE)),
        (Chain, "aot_eager", (5 * POSITIVE, 0.5 * POSITIVE, NEGATIVE)),
        (Loop, "eager", (0.1 * POSITIVE, POSITIVE, POSITIVE, 0.1 * POSITIVE)),
        (LeavesALoop, "aot_eager", (5 * POSITIVE, 0.7 * POSITIVE, 0.1 * POSITIVE)),
        (OfTheProgram, "aot_eager", (POSITIVE, NEGATIVE)),
        (Tied, "aot_eager", (POSITIVE, NEGATIVE)),
        (Compared, "eager", (POSITIVE, NEGATIVE, 2 * POSITIVE)),
        (Compared, "aot_eager", (POSITIVE, NEGATIVE, 2 * POSITIVE)),
    ],
)
def test_each_side(make: Callable[[], nn.Module], backend: str, sides: tuple[Tensor, ...]) -> None:
    pair = _pair(make, backend=backend)
    found = [_compare(pair, lambda model, x=x: model(x).sum().backward()) for x in sides]
    assert any(gradient is None for each in found for gradient in each.values())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_result_that_had_no_history_and_is_written(backend: str) -> None:
    pair = _pair(StoredInPlace, backend=backend)
    for x in (POSITIVE, 2 * POSITIVE):
        wanted = _compare(pair, lambda model, x=x: model(x).sum().backward())
        assert wanted["one"] is not None


@pytest.mark.slow
@pytest.mark.parametrize("make", [Cheap, Expensive])
def test_inductor(make: Callable[[], nn.Module]) -> None:
    pair = _pair(make, backend="inductor")
    for x in (POSITIVE, NEGATIVE):
        _compare(pair, lambda model, x=x: model(x).sum().backward())


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.3),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    ],
    ids=["adamw", "sgd"],
)
def test_ten_steps_with_layer_drop(make_optimizer: Callable[[Any], Any]) -> None:
    pair = _pair(LayerDrop)
    inputs = torch.randn(10, 4, 8)
    dropped = 0
    optimizers = [make_optimizer(each.parameters()) for each in pair]
    for seed, x in enumerate(inputs):
        for model, optimizer in zip(pair, optimizers, strict=True):
            torch.manual_seed(seed)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        dropped += sum(each.grad is None for each in pair[0].parameters())
    assert dropped
    for one, other in zip(*(each.parameters() for each in pair), strict=True):
        assert torch.equal(one, other)


def test_zeros_where_the_policy_asks_for_them() -> None:
    eager, model = _pair(Cheap, policy=bcmend.Policy(untaken_gradients="zeros"))
    wanted, found = (
        _after(each, lambda model: model(POSITIVE).sum().backward()) for each in (eager, model)
    )
    assert wanted["other"] is None
    assert torch.equal(found["other"], torch.zeros(3))
    assert torch.equal(found["one"], wanted["one"])


def test_calls_before_one_backward() -> None:
    pair = _pair(Cheap)

    def both(model: Any) -> None:
        (model(POSITIVE).sum() + model(NEGATIVE).sum()).backward()

    def one_side(model: Any) -> None:
        (model(POSITIVE).sum() + model(2 * POSITIVE).sum()).backward()

    def in_another_order(model: Any) -> None:
        first, second = model(POSITIVE).sum(), model(NEGATIVE).sum()
        first.backward()
        assert model.other.grad is None
        second.backward()

    assert _compare(pair, both)["other"] is not None
    assert _compare(pair, one_side)["other"] is None
    _compare(pair, in_another_order)


def test_a_graph_that_is_kept_and_gradients_that_accumulate() -> None:
    def twice(model: Any) -> None:
        loss = model(POSITIVE).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    def accumulated(model: Any) -> None:
        model(NEGATIVE).sum().backward()
        model(POSITIVE).sum().backward()

    pair = _pair(Cheap)
    assert _compare(pair, twice)["other"] is None
    assert _compare(pair, accumulated)["other"] is not None


def test_gradients_of_gradients() -> None:
    def backward(model: Any) -> None:
        inputs = [model.one, model.other, model.both]
        loss = model(POSITIVE).pow(3).sum()
        first = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
        assert first[1] is None
        sum(each.square().sum() for each in first if each is not None).backward()

    _compare(_pair(Cheap, backend="eager"), backward)  # aot_autograd has no second derivatives


def test_inputs_that_are_no_parameters() -> None:
    def program(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * one
        return x + other

    mended = bcmend.compile(program, backend="aot_eager", fullgraph=True)
    for x in (POSITIVE, NEGATIVE):
        found = []
        for function in (program, mended):
            leaves = [torch.ones(3, requires_grad=True) for _ in range(2)]
            one, other = (leaf * 2 for leaf in leaves)
            one.retain_grad()
            other.retain_grad()
            function(x, one, other).sum().backward()
            found.append([each.grad for each in (*leaves, one, other)])
        wanted, given = found
        assert [each is None for each in given] == [each is None for each in wanted]
        pairs = zip(given, wanted, strict=True)
        assert all(torch.equal(*each) for each in pairs if each[1] is not None)


def test_what_is_given_and_returned_is_the_same_tensor() -> None:
    def program(x: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * one if x.sum() > 0 else x * other
        return y, one, other.detach()

    mended = bcmend.compile(program, backend="aot_eager", fullgraph=True)
    one, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    result, same, detached = mended(POSITIVE, one, other)
    assert same is one
    assert detached.data_ptr() == other.data_ptr()
    result.sum().backward()
    assert torch.equal(one.grad, POSITIVE)


def test_a_condition_that_changes_after_the_call() -> None:
    class Flagged(Cheap):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("flag", torch.tensor(True))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.one if self.flag else x + self.other

    def backward(model: Any) -> None:
        model.flag.fill_(True)
        loss = model(POSITIVE).sum()
        model.flag.fill_(False)
        loss.backward()

    assert _compare(_pair(Flagged), backward)["other"] is None


def test_a_checkpoint_around_the_call_and_autocast() -> None:
    pair = _pair(Expensive)

    def in_a_checkpoint(model: Any) -> None:
        x = POSITIVE.clone().requires_grad_()
        checkpoint(model, x, use_reentrant=True).sum().backward()

    def in_autocast(model: Any) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(POSITIVE).sum()
        loss.backward()

    assert _compare(pair, in_a_checkpoint)["other.weight"] is None
    wanted, found = (_after(each, in_autocast) for each in pair)
    assert [each is None for each in found.values()] == [each is None for each in wanted.values()]


def test_frozen_parameters_and_calls_without_gradients() -> None:
    def frozen() -> nn.Module:
        model = Cheap()
        model.other.requires_grad_(False)
        return model

    pair = _pair(frozen)
    _compare(pair, lambda model: model(POSITIVE).sum().backward())
    with torch.no_grad():
        assert torch.equal(pair[0](NEGATIVE), pair[1](NEGATIVE))
    _compare(pair, lambda model: model(POSITIVE).sum().backward())


def test_nothing_is_kept_when_the_result_is_gone() -> None:
    _, model = _pair(Cheap, backend="eager")
    loss = model(POSITIVE).sum()
    assert loss.grad_fn is not None
    seen = weakref.ref(loss)
    x = POSITIVE.clone()
    gc.collect()
    gc.disable()
    try:
        loss.backward()
        del loss
        assert seen() is None
        result = model(x)
        gone = weakref.ref(result)
        del result
        assert gone() is None
    finally:
        gc.enable()


def test_a_tensor_that_is_changed_in_place_is_left_alone() -> None:
    def program(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
        y = x * one if x.sum() > 0 else x * other
        with torch.no_grad():
            other.add_(1)
        return y

    mended = bcmend.compile(program, backend="eager", fullgraph=True)
    one, other = (torch.ones(3, requires_grad=True) for _ in range(2))
    mended(POSITIVE, one, other)
    assert torch.equal(other, torch.full((3,), 2.0))
