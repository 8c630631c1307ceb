"""Compiled mended functions inside ``torch.utils.checkpoint``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import checkpoint as checkpointing
from torch.utils.checkpoint import checkpoint

import bcmend
from tests.samples import in_turn

BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _begun_anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


class Layer(torch.nn.Module):
    """A layer with a branch, a check, output and dropout, whichever are asked for."""

    def __init__(self, *kinds: str) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.other = torch.nn.Linear(4, 4)
        self.dropout = torch.nn.Dropout(0.5)
        self.kinds = kinds

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x).sin()
        if "check" in self.kinds and h.isnan().any():
            raise ValueError("not a number")
        if "output" in self.kinds:
            print("mean", round(h.mean().item(), 4))
        if "branch" in self.kinds:
            if h.sum() > 0:
                h = h.exp()
            else:
                h = self.other(h).tanh()
        if "dropout" in self.kinds:
            h = self.dropout(h)
        return h.cos()


KINDS = [("branch",), ("output",), ("check",), ("dropout", "check"), ("branch", "output", "check")]


def _saving_sines() -> Any:
    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> checkpointing.CheckpointPolicy:
        if operator is torch.ops.aten.sin.default:
            return checkpointing.CheckpointPolicy.MUST_SAVE
        return checkpointing.CheckpointPolicy.PREFER_RECOMPUTE

    return checkpointing.create_selective_checkpoint_contexts(policy)


Way = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]

WAYS: dict[str, Way] = {
    "reentrant": lambda layer, x: checkpoint(layer, x, use_reentrant=True),
    "not reentrant": lambda layer, x: checkpoint(layer, x, use_reentrant=False),
    "selective": lambda layer, x: checkpoint(
        layer, x, use_reentrant=False, context_fn=_saving_sines
    ),
    "nested": lambda layer, x: checkpoint(
        lambda given: checkpoint(layer, given, use_reentrant=False), x, use_reentrant=False
    ),
    "sequential": lambda layer, x: checkpointing.checkpoint_sequential(
        [layer, layer], 2, x, use_reentrant=False
    ),
}


def _step(
    layer: Callable[[Tensor], Tensor],
    module: torch.nn.Module,
    sign: float,
    way: Way,
    around: Callable[[], AbstractContextManager[Any]],
) -> list[Any]:
    """Return result and gradients of a training step."""
    torch.manual_seed(7)
    module.zero_grad()
    x = torch.full((2, next(module.parameters()).shape[-1]), sign, requires_grad=True)
    with around():
        result = way(layer, x)
        result.sum().backward()
    return [result.detach(), x.grad, *(each.grad for each in module.parameters())]


def _stops_early(enable: bool) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: checkpointing.set_checkpoint_early_stop(enable)


#: Ways that are taken inside of a model.
INSIDE = ("not reentrant", "selective", "nested")

AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "early stop": _stops_early(True),
    "no early stop": _stops_early(False),
    "on the CPU": torch.autograd.graph.save_on_cpu,
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "around",
    [
        pytest.param(each, marks=() if "early" in each else pytest.mark.slow, id=each)
        for each in AROUND
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_steps_are_those_of_eager_execution(
    way: str, around: str, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for kinds in KINDS:
        torch._dynamo.reset()
        torch.manual_seed(3)
        module = Layer(*kinds)
        signs = (1.0, -1.0, 1.0)
        given = WAYS[way], AROUND[around]
        expected = [_step(module, module, sign, *given) for sign in signs]
        eager_output = capsys.readouterr().out
        with bcmend.patched(module), torch._dynamo.config.patch(recompile_limit=32):
            compiled = torch.compile(module, backend=backend)
            found = [_step(compiled, module, sign, *given) for sign in signs]
        output = capsys.readouterr().out
        if "dropout" not in kinds:  # a back end draws as it likes
            torch.testing.assert_close(found, expected)
        # A recomputation that ends early writes nothing (docs/deviations.md).
        if around == "no early stop" or way == "reentrant":
            assert output == eager_output


class Dropping(torch.nn.Module):
    """A layer that drops in one of its sides, whose other side is costly."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.linear(x).sin()
        if h.abs().max() > 100:
            raise ValueError("large")
        if x.sum() > 0:
            h = self.dropout(h) @ self.other.weight
        else:
            h = self.other(h).tanh() @ self.linear.weight
        return h.cos()


class _FailsAtFirst:
    """A back end that does not compile the first graphs that it is given."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise RuntimeError("of the back end")
        return module.forward


@pytest.mark.parametrize("failures", [0, 1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_withdrawn_in_a_first_step_changes_no_step(way: str, failures: int) -> None:
    torch.manual_seed(3)
    module = Dropping()
    given = WAYS[way], nullcontext
    signs = (1.0, -1.0, 1.0)
    expected = [_step(module, module, sign, *given) for sign in signs]
    with bcmend.patched(module), torch._dynamo.config.patch(recompile_limit=32):
        compiled = torch.compile(module, backend=_FailsAtFirst(failures))
        found = [_step(compiled, module, sign, *given) for sign in signs]
        statuses = {each.status for each in bcmend.report(module).sites}
    torch.testing.assert_close(found, expected)
    assert ("withdrawn" in statuses) == bool(failures)


def test_layers_that_are_compiled_and_checkpointed_one_by_one() -> None:
    torch.manual_seed(3)
    layers = torch.nn.ModuleList(Layer("branch", "check") for _ in range(3))

    def chain(x: Tensor, functions: Any) -> Tensor:
        for each in functions:
            x = checkpoint(each, x, use_reentrant=False)
        return x

    def step(functions: Any) -> list[Any]:
        return _step(lambda x: chain(x, functions), layers, 1.0, lambda f, x: f(x), nullcontext)

    expected = step(layers)
    with bcmend.patched(layers):
        compiled = [torch.compile(each, backend="aot_eager", fullgraph=True) for each in layers]
        torch.testing.assert_close([step(compiled) for _ in range(2)], [expected] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_check_whose_exception_is_caught_is_the_same_when_computed_again(
    fullgraph: bool, backend: str
) -> None:
    """The check that fails first is a side exit, and compiled as a branch once it is caught."""
    module = torch.nn.Linear(3, 3)

    def inner(x: Tensor) -> Tensor:
        h: Tensor = module(x).sin()
        if x.sum() > 2:
            raise ValueError("large")
        return h.exp()

    def program(x: Tensor) -> Tensor:
        try:
            h = inner(x)
        except ValueError:
            h = module(x).cos()
        result: Tensor = module(h).tanh()
        return result

    signs = (0.1, 1.0, 1.0, 0.1, 1.0)
    ways = [WAYS["not reentrant"], lambda function, x: function(x)]
    expected = [_step(program, module, each, way, nullcontext) for each in signs for way in ways]
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=fullgraph)
    found = [_step(compiled, module, each, way, nullcontext) for each in signs for way in ways]
    torch.testing.assert_close(found, expected)


def _plainly(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x)


class _Checkpointed(torch.nn.Module):
    """Checkpoints, within itself, a layer whose sides are not speculated on."""

    def __init__(self, kind: str, way: str) -> None:
        super().__init__()
        self.layer = Layer("branch")
        self.kind, self.way = kind, way

    def forward(self, x: Tensor) -> Tensor:
        body: Callable[[Tensor], Tensor] = getattr(self, self.kind)
        h = self.layer.linear(WAYS[self.way](body, x))
        return WAYS[self.way](body, h) * 2

    def sides(self, x: Tensor) -> Tensor:
        h = self.layer.dropout(x)
        if h.sum() > 0:
            return self.layer.linear(h).sin().exp()
        return self.layer.other(h).tanh().sin()

    def nested_sides(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            h = self.layer.linear(x).sin()
            return self.layer.other(h).exp() if h.mean() > 0.1 else self.layer.linear(h).cos()
        return self.layer.other(x).tanh()

    def a_loop(self, x: Tensor) -> Tensor:
        scale = x.detach().abs().sum()
        while scale > 1.0:
            scale = scale / 3
        return self.layer.linear(x * scale).tanh()


@pytest.mark.parametrize("kind", ["sides", "nested_sides", "a_loop"])
@pytest.mark.parametrize(
    ("way", "backend"),
    [
        *in_turn(list(INSIDE), ["eager", "aot_eager"]),
        *(pytest.param(way, "inductor", marks=pytest.mark.slow) for way in INSIDE),
    ],
)
def test_a_checkpoint_inside_a_model(kind: str, way: str, backend: str) -> None:
    torch.manual_seed(3)
    module, signs = _Checkpointed(kind, way).eval(), (1.0, -1.0, 1.0)
    expected = [_step(module, module, each, _plainly, nullcontext) for each in signs]
    compiled = torch.compile(bcmend.patch(module), backend=backend, fullgraph=True)
    found = [_step(compiled, module, each, _plainly, nullcontext) for each in signs]
    torch.testing.assert_close(found, expected)
    assert {each.status for each in bcmend.report(module).sites} == {"mended"}


def test_dropout_before_sides_in_a_checkpoint_inside_a_model() -> None:
    torch.manual_seed(3)
    module = _Checkpointed("sides", "not reentrant")
    compiled = torch.compile(bcmend.patch(module), backend="aot_eager", fullgraph=True)
    for sign in (1.0, -1.0):
        torch.manual_seed(7)
        expected = _step(module, module, sign, _plainly, nullcontext)
        torch.manual_seed(7)
        torch.testing.assert_close(_step(compiled, module, sign, _plainly, nullcontext), expected)
