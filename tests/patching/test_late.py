"""Objects that are patched after they, or parts of them, were compiled."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend

X = torch.ones(3)
Call = Callable[..., Any]


class Counting:
    """A back end that counts how many graphs calls run."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, module: torch.fx.GraphModule, _: Any) -> Call:
        def run(*given: Any) -> Any:
            self.runs += 1
            return module.forward(*given)

        return run

    def in_call(self, call: Call) -> tuple[int, Tensor]:
        before, result = self.runs, call(X)
        return self.runs - before, result


def helper(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    return x


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = helper(x * 2)
        return x - 1


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _whole(backend: Any) -> tuple[Any, Call]:
    net = Net()
    return net, torch.compile(net, backend=backend)


def _dynamic(backend: Any) -> tuple[Any, Call]:
    net = Net()
    compiled = torch.compile(net, backend=backend, dynamic=True)
    compiled(torch.ones(5))
    return net, compiled


def _inner_alone(backend: Any) -> tuple[Any, Call]:
    torch.compile(helper, backend=backend)(X)
    return _whole(backend)


def _only_what_it_calls(backend: Any) -> tuple[Any, Call]:
    return helper, _whole(backend)[1]


def _in_place(backend: Any) -> tuple[Any, Call]:
    net = Net()
    net.compile(backend=backend)
    return net, net


def _forward(backend: Any) -> tuple[Any, Call]:
    net = Net()
    net.forward = torch.compile(net.forward, backend=backend)  # type: ignore[method-assign]
    return net, net


def _part(backend: Any) -> tuple[Any, Call]:
    net = nn.Sequential(torch.compile(Net(), backend=backend), nn.ReLU())
    return net, net


def _compiled_function(backend: Any) -> tuple[Any, Call]:
    compiled = torch.compile(helper, backend=backend)
    return compiled, compiled


def _wrapped(backend: Any) -> tuple[Any, Call]:
    @functools.wraps(helper)
    def wrapper(x: Tensor) -> Tensor:
        return helper(x) * 2

    return wrapper, torch.compile(wrapper, backend=backend)


def _copied(backend: Any) -> tuple[Any, Call]:
    copy = types.FunctionType(helper.__code__, helper.__globals__)
    return helper, torch.compile(copy, backend=backend)


CASES = [
    *(_whole, _dynamic, _inner_alone, _in_place, _forward, _part),
    *(_compiled_function, _wrapped),
]


@pytest.mark.parametrize("case", CASES)
def test_what_was_compiled_before_is_one_graph_after(
    case: Callable[[Any], tuple[Any, Call]],
) -> None:
    backend = Counting()
    subject, call = case(backend)
    stock, expected = backend.in_call(call)
    assert stock > 1
    bcmend.patch(subject)
    for _ in range(2):
        mended, result = backend.in_call(call)
        assert mended == 1 and torch.equal(result, expected)


@pytest.mark.parametrize("case", [_whole, _in_place, _compiled_function])
def test_patching_and_unpatching_in_turns(case: Callable[[Any], tuple[Any, Call]]) -> None:
    backend = Counting()
    subject, call = case(backend)
    for _ in range(3):
        bcmend.patch(subject)
        assert backend.in_call(call)[0] == 1
        bcmend.unpatch(subject)
        assert backend.in_call(call)[0] > 1


@pytest.mark.parametrize("case", [_only_what_it_calls, _copied])
def test_what_is_not_patched_itself_has_no_more_graphs_than_before(
    case: Callable[[Any], tuple[Any, Call]],
) -> None:
    backend = Counting()
    subject, call = case(backend)
    stock, expected = backend.in_call(call)
    bcmend.patch(subject)
    for _ in range(2):
        mended, result = backend.in_call(call)
        assert mended <= stock and torch.equal(result, expected)
    torch._dynamo.reset()
    bcmend.patch(call)
    assert backend.in_call(call)[0] == 1
