"""Functions that a context of torch decorates, as what is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, assert_equivalent, call

DECORATORS = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "twice": lambda: lambda function: torch.no_grad()(torch.enable_grad()(function)),
}


def _found(x: Tensor, counts: Tensor) -> Any:
    """Needs what is done where a call begins and ends."""
    if x.sum() > 9:
        return None
    rows = [x[place % 2] * place for place in range(int(counts[0]))]
    if x.min() < -50:
        raise ValueError(f"too low: {x.min()}")
    print("found", len(rows))
    return torch.stack(rows), x @ x.T, torch.is_grad_enabled()


def _calls() -> list[Call]:
    x = torch.arange(6.0).reshape(2, 3)
    given = ((0.1, [1, 2]), (1.0, [2, 1]), (-1.0, [2, 2]), (-20.0, [1, 1]), (0.2, [1, 1]))
    return [call(x * scale, torch.tensor(counts)) for scale, counts in given]


@pytest.mark.parametrize("name", DECORATORS)
def test_functions(name: str) -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor, counts: Tensor) -> Any:
            return _found(x, counts)

        decorated: Callable[..., Any] = DECORATORS[name]()(program)
        return decorated

    assert_equivalent(make, _calls, graphs=None, recompiles=None)


class _Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.calls = 0
        self.register_forward_hook(self._count)

    def _count(self, module: nn.Module, given: Any, result: Any) -> None:
        self.calls += 1

    @torch.no_grad()
    def forward(self, x: Tensor, counts: Tensor) -> Any:
        return _found(self.layer(x), counts)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_modules(backend: str) -> None:
    assert_equivalent(_Module, _calls, graphs=None, recompiles=None, backend=backend)


class _Generating(nn.Module):
    """Grows a row until a number in it is large."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.out = nn.Embedding(7, 8), nn.Linear(8, 7)

    @torch.no_grad()
    def generate(self, words: Tensor, count: int) -> Tensor:
        for _ in range(count):
            scores = self.out(self.words(words).mean(1))
            word = torch.multinomial(scores.softmax(-1), 1)
            words = torch.cat([words, word], 1)
            if word.item() == 3:
                break
        return words


def test_a_method_that_is_compiled() -> None:
    def make() -> Any:
        return _Generating().generate

    inputs = [call(torch.tensor([[1, 2, word]]), 4) for word in range(5)]
    assert_equivalent(make, lambda: inputs)


def test_the_mode_is_as_it_was_after_an_exception() -> None:
    def program(x: Tensor) -> Tensor:
        if x.min() < -50:
            raise ValueError(f"too low: {x.min()}")
        return x

    decorated = torch.no_grad()(program)
    with bcmend.patched(decorated), pytest.raises(ValueError, match="too low: -60"):
        torch.compile(decorated, backend="eager", fullgraph=True)(torch.tensor([-60.0]))
    assert torch.is_grad_enabled()


def test_patched_behind_torch_compile() -> None:
    module = _Module()
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    with bcmend.patched(module):
        for each in _calls()[:3]:
            compiled(*each.arguments)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        compiled(*_calls()[0].arguments)


def test_what_is_not_patched_is_compiled_as_ever() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    @torch.no_grad()
    def program(x: Tensor) -> Tensor:
        return x * 2

    with bcmend.patched(_Module()):  # so that what watches is in place
        torch.compile(program, backend=backend, fullgraph=True)(torch.ones(2, requires_grad=True))
    names = [str(getattr(node.target, "__name__", "")) for node in graphs[0].graph.nodes]
    assert names.count("_set_grad_enabled") == 2  # the decorator is in the graph
