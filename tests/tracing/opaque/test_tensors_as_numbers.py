"""Tensors that operations read numbers from: the graph is handed the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.opaque import tensors_as_numbers
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.in_trace import during_trace

#: Operations of a tensor with one that is read as a fraction.
FRACTIONS: Final[dict[str, Callable[[Tensor, Tensor], Any]]] = {
    "one-bound": lambda x, t: x.clamp(0.1, t),
    "both-bounds": lambda x, t: torch.clamp(x, min=-0.25, max=t),
    "in-place": lambda x, t: (x * 1).clamp_(-0.1, t),
    "handed-on": lambda x, t: F.leaky_relu(x, t),
    "two": lambda x, t: F.threshold(x, t, t * 2),
    "elu": lambda x, t: F.elu(x, t),
    "eps": lambda x, t: F.layer_norm(x, (4,), eps=t),
    "filled": lambda x, t: torch.full_like(x, t) + x,
    "padded": lambda x, t: F.pad(x, (1, 1), value=t),
    "nan": lambda x, t: torch.nan_to_num(x / 0, nan=t),
    "kinds": lambda x, t: torch.rsub(x, x.detach(), alpha=t),
}

#: Operations of a tensor with one that is read as an integer.
INTEGERS: Final[dict[str, Callable[[Tensor, Tensor], Any]]] = {
    "bound": lambda x, n: x.clamp(0.1, n),
    "dimension": lambda x, n: x.cumsum(n % 2),
    "correction": lambda x, n: x.std(0, correction=n % 2),
    "row": lambda x, n: x.select(0, n % 3),
    "counts": lambda x, n: torch.bincount(x.abs().long().reshape(-1), minlength=n + 9) * 2,
    "decimals": lambda x, n: torch.round(x, decimals=n),
    "windows": lambda x, n: x.unfold(0, n % 2 + 1, 1) * 2,
}


def of_a_fraction(name: str) -> Any:
    function = FRACTIONS[name]

    def program(x: Tensor) -> Any:
        return function(x, x.detach().abs().max()) * 2

    return program


def of_an_integer(name: str) -> Any:
    function = INTEGERS[name]

    def program(x: Tensor) -> Any:
        return function(x, x.detach().abs().max().long()) * 2

    return program


def in_an_arm(name: str) -> Any:
    function = FRACTIONS[name]

    def program(x: Tensor) -> Tensor:
        y = x * 1
        if x.sum() > 0:
            y = y + function(x, x.detach().abs().max()).sum()
        return y * 2

    return program


def inputs(*, gradients: bool = False) -> list[Call]:
    x = torch.linspace(0.25, 2.5, 12).reshape(3, 4)
    return [call(each.clone().requires_grad_(gradients)) for each in (x, -x, x.flip(0) * 2, x / 4)]


@pytest.mark.parametrize("name", FRACTIONS)
def test_fractions(name: str) -> None:
    assert_equivalent(lambda: of_a_fraction(name), inputs)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    assert_equivalent(lambda: of_an_integer(name), inputs, graphs=None, recompiles=None)


@pytest.mark.parametrize("name", FRACTIONS)
def test_in_an_arm(name: str) -> None:
    assert_equivalent(lambda: in_an_arm(name), inputs)


@pytest.mark.parametrize("name", ["one-bound", "in-place", "handed-on", "eps", "padded"])
def test_with_inductor(name: str) -> None:
    assert_equivalent(lambda: of_a_fraction(name), inputs, backend="inductor")


class _Bounded(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.weight = nn.Parameter(torch.full((3, 4), 1.5))
        self.register_buffer("bound", torch.tensor(0.75))

    def forward(self, x: Tensor) -> Tensor:
        self.bound.add_(0.25)
        return FRACTIONS[self.name](x * self.weight, self.bound)


@pytest.mark.parametrize("name", ["one-bound", "in-place", "handed-on", "elu", "padded"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_in_training(name: str, fullgraph: bool) -> None:
    assert_equivalent(
        lambda: _Bounded(name), inputs, backend="aot_eager", training=True, fullgraph=fullgraph
    )


REFUSED: Final[dict[str, Callable[[Tensor, Tensor], Any]]] = {
    "a-truth": lambda x, t: x.clamp(0.1, t > 0),
    "gradients": lambda x, t: x.clamp(0.1, t.float().requires_grad_()),
    "a-fraction-for-an-integer": lambda x, t: x.cumsum(t * 1.5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_execution_refuses(name: str) -> None:
    def make() -> Any:
        def program(x: Tensor) -> Any:
            return REFUSED[name](x, x.detach().abs().max())

        return program

    assert_equivalent(make, inputs, fullgraph=False, graphs=None, recompiles=None)


T = torch.tensor(1.5)


@pytest.mark.parametrize(
    ("function", "tensor", "is_read"),
    [
        (torch.clamp, T, True),
        (torch.clamp, torch.tensor(2), True),
        (torch.clamp, torch.tensor(True), False),
        (torch.clamp, torch.tensor([1.5]), False),
        (torch.clamp, torch.tensor(1j), False),
        (torch.add, T, False),
        (torch.maximum, T, False),
        (F.leaky_relu, T, True),
        (F.hardtanh, T, False),  # asks for more than the number
        (torch.is_nonzero, T, False),  # takes no number
    ],
)
def test_what_is_read(function: Any, tensor: Tensor, is_read: bool) -> None:
    def body(tx: Any, t: Any, x: Any) -> Any:
        first = [] if function is torch.is_nonzero else [x]
        bound = [constant(0.5)] if function is torch.clamp else []
        args, _ = tensors_as_numbers.taken(tx, function, [*first, *bound, t], {})
        return type(args[-1]) is not compat.TensorVariable

    assert during_trace(body, tensor, torch.ones(2)) is is_read


def _viewed(m: Tensor) -> Tensor:
    n = m.sum(1).max()
    return m.new_zeros(n, 2).view(n, 2, 1) + 1


def _compared_as_a_list(m: Tensor) -> Tensor:
    n = m.sum(1).max()
    y = m.new_zeros(n, 2).view(n, 2, 1)
    assert list(y.size()) == [n, 2, 1]
    return y + 1


def _compared_as_a_tuple(m: Tensor) -> Any:
    n = m.sum(1).max()
    y = m.new_zeros(n, 2)
    return y + 1, tuple(y.shape) == (n, 2), (n, 2) == (n, 3), [2, n] != [*y.shape]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("program", [_viewed, _compared_as_a_list, _compared_as_a_tuple])
def test_a_size_is_not_taken_for_the_number_of_the_trial(program: Any, fullgraph: bool) -> None:
    def calls() -> list[Call]:
        rows = ([1, 1, 0], [1, 0, 0]), ([1, 0, 0], [1, 1, 1]), ([0, 0, 0], [1, 0, 0])
        return [call(torch.tensor(each)) for each in rows]

    assert_equivalent(lambda: program, calls, fullgraph=fullgraph, graphs=None, recompiles=None)
