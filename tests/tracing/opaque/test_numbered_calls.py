"""Functions that ask about a number out of the data: one operator, which calls them with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import UserError

import bcmend
from bcmend.tracing.opaque import operator
from tests.equivalence import Call, assert_equivalent, call
from tests.samples import sampled

#: Functions of a tensor and a number that no trace has for a number out of the data.
ASKING: Final[dict[str, Callable[[Tensor, float], Any]]] = {
    "hardtanh": lambda x, v: F.hardtanh(x, -v, v),
    "nan-to-num": lambda x, v: torch.nan_to_num(x, v),
    "softshrink": lambda x, v: F.softshrink(x, v),
    "huber": lambda x, v: F.huber_loss(x, x * 2, delta=v),
    "smooth-l1": lambda x, v: F.smooth_l1_loss(x, x * 3, beta=v),
    "pad": lambda x, v: F.pad(x, (1, 1), value=v),
    "norm": lambda x, v: torch.linalg.vector_norm(x, v),
    "cdist": lambda x, v: torch.cdist(x, x.detach() + 1, p=v),
    "layer-norm": lambda x, v: F.layer_norm(x, (4,), eps=v),
    "batch-norm": lambda x, v: F.batch_norm(x, None, None, training=True, eps=v),
    "attention": lambda x, v: F.scaled_dot_product_attention(
        x[None, None], x[None, None], x[None, None], scale=v
    ),
    "cross-entropy": lambda x, v: F.cross_entropy(
        x, torch.tensor([0, 1, 2]), label_smoothing=v / 100
    ),
    "quantile": lambda x, v: torch.quantile(x, v / 100),
    "as-tensor": lambda x, v: torch.maximum(x, torch.as_tensor(v)),
    "isclose": lambda x, v: torch.isclose(x, x * 1.01, rtol=v),
    "lerp": lambda x, v: torch.lerp(x, x * 2, v),
    "matrix-power": lambda x, v: torch.matrix_power(x.T @ x, 1 + int(v)),
    "sums-along": lambda x, v: torch.cumsum(x, int(v) % 2),
    "two-results": lambda x, v: torch.broadcast_tensors(F.softshrink(x, v), x)[0].clone(),
}


def asking(name: str) -> Any:
    """Return a program, made anew, that reads a number and calls a function with it."""
    function = ASKING[name]

    def program(x: Tensor) -> Tensor:
        v = x.abs().max().item()
        y = function(x, v)
        return y * 2 if y.dtype is torch.bool else y * 2 + x.sum()

    return program


def asking_in_an_arm(name: str) -> Any:
    function = ASKING[name]

    def program(x: Tensor) -> Tensor:
        y = x * 1
        if x.sum() > 0:
            v = x.abs().max().item()
            y = y + function(x, v).sum()
        return y * 2

    return program


def inputs(*, gradients: bool = False) -> list[Call]:
    x = torch.linspace(0.25, 2.5, 12).reshape(3, 4)
    return [call(each.clone().requires_grad_(gradients)) for each in (x, -x, x.flip(0) * 2, x / 4)]


@pytest.mark.parametrize("name", ASKING)
def test_one_graph(name: str) -> None:
    assert_equivalent(lambda: asking(name), inputs)


@pytest.mark.parametrize("name", ASKING)
def test_one_graph_in_an_arm(name: str) -> None:
    assert_equivalent(lambda: asking_in_an_arm(name), inputs)


#: Of the others the gradients, added up in another order, differ in the last bit.
WITH_GRADIENTS: Final = [
    "hardtanh", "nan-to-num", "softshrink", "huber", "pad", "layer-norm", "lerp", "sums-along"
]  # fmt: skip


class _Trained(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.weight = nn.Parameter(torch.full((3, 4), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        v = x.abs().max().item()
        return ASKING[self.name](y, v)


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients_are_of_the_same_kernels(name: str) -> None:
    assert_equivalent(lambda: _Trained(name), inputs, backend="aot_eager", training=True)


class _AskedInTheBackward(nn.Module):
    def __init__(self, function: Callable[[Tensor, float], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.full((3, 4), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        y = (x * self.weight).abs()
        return self.function(y, x.abs().max().item())


def _raised_in_place(y: Tensor, v: float) -> Tensor:
    y = y + 0
    y **= v
    return y


ASKED_IN_THE_BACKWARD: Final[dict[str, Callable[[Tensor, float], Tensor]]] = {
    "celu": lambda y, v: F.celu(y, v + 1),
    "multiple": lambda y, v: torch.add(y, y.detach(), alpha=v),
    "power": lambda y, v: y.pow(v),
    "of-python": lambda y, v: y**v,
    "exponential": lambda y, v: v**y,
    "in-place": _raised_in_place,
}


@pytest.mark.parametrize("name", ASKED_IN_THE_BACKWARD)
def test_what_the_backward_asks(name: str) -> None:
    make = lambda: _AskedInTheBackward(ASKED_IN_THE_BACKWARD[name])  # noqa: E731
    assert_equivalent(make, inputs, backend="aot_eager", training=True)


class _Average(nn.Module):
    """An average whose decay grows, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(4))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(x, 0.0, self.training) * self.weight
        if x.sum() > 0:
            decay = min(0.99, y.abs().max().item())
            self.average.lerp_(y.mean(0).detach(), 1 - decay)
        z = y.clone()
        z.lerp_(y * 3, y.abs().min().item())
        return z - self.average


@pytest.mark.parametrize("training", [False, True])
def test_results_that_are_stored(training: bool) -> None:
    assert_equivalent(_Average, inputs, backend="aot_eager", training=training)


#: Functions that are traced, and of which Inductor asks, or which it cannot compile.
LATER: Final[dict[str, Callable[[Tensor, float], Tensor]]] = {
    "lerp": lambda x, v: torch.lerp(x, x * 2, 1 - v),
    "scatter": lambda x, v: x.scatter(0, torch.zeros(1, 4, dtype=torch.long), v),
    "searchsorted": lambda x, v: torch.searchsorted(torch.tensor([0.0, 1.0]), v) + x,
    "bucketize": lambda x, v: torch.bucketize(v, torch.tensor([0.0, 1.0, 2.0])) + x,
}


@pytest.mark.parametrize("name", sampled(LATER, of=2))
def test_what_inductor_asks(name: str) -> None:
    function = LATER[name]

    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            y = F.dropout(x, 0.0, True)  # no part in front of the graph has that
            return function(y, y.abs().max().item())

        return program

    assert_equivalent(make, inputs, backend="inductor")


def test_what_the_function_raises() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            return F.softshrink(x, x.max().item())

        return program

    assert_equivalent(make, inputs)  # a negative number is an error


def test_what_the_function_raises_in_an_arm() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            x = x * 1
            if x.mean() > -1:
                x = x + F.softshrink(x, x.max().item())
            return x

        return program

    assert_equivalent(make, inputs)


def _compiled(function: Any) -> Any:
    bcmend.patch(function)
    return torch.compile(function, backend="eager", fullgraph=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, v: x.clone().uniform_(0.0, v),
        lambda x, v: torch.normal(0.0, v, (3,)),
        lambda x, v: x.rot90(int(v)),
        lambda x, v: torch.allclose(x, x * 1.01, rtol=v),
    ],
    ids=["in-place-draw", "draw", "a-form-by-the-number", "no-tensor"],
)
def test_refused(function: Any) -> None:
    def program(x: Tensor) -> Any:
        y = F.dropout(x, 0.5, True)
        return function(y, y.abs().max().item())

    with pytest.raises(UserError, match="data-dependent"):
        _compiled(program)(torch.rand(3, 3) + 1)


def test_refused_under_autocast() -> None:
    def program(x: Tensor) -> Any:
        y = F.dropout(x, 0.5, True)
        return F.layer_norm(y @ y, (3,), eps=y.abs().max().item())

    with torch.autocast("cpu"), pytest.raises(UserError, match="data-dependent"):
        _compiled(program)(torch.rand(3, 3) + 1)


def test_the_report_has_it() -> None:
    def program(x: Tensor) -> Any:
        return F.hardtanh(x, 0.0, x.abs().max().item())

    _compiled(program)(torch.rand(3))
    site = next(each for each in bcmend.report(program).sites if each.kind == "call")
    assert site.lowering == "operator"
    assert "nn.functional.hardtanh" in site.detail


def test_torch_logs_no_failure_of_what_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("torch._subclasses.fake_tensor")

    def program(x: Tensor) -> Any:
        return torch.cumsum(x, int(x.sum().item()) % 2)

    with caplog.at_level(logging.DEBUG):
        _compiled(program)(torch.rand(3, 3))
    assert not [each for each in caplog.records if each.name == log.name]
    assert not log.filters


def test_names() -> None:
    for function in (torch.lerp, torch.Tensor.lerp, F.hardtanh, torch.linalg.vector_norm):
        name = operator.name_of(function)
        assert name
        assert operator._function(name) is function
    assert operator.name_of(len) == ""
    assert operator.name_of(lambda x: x) == ""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("is_written", [False, True])
def test_nothing_is_assumed_of_a_float_in_an_arm(backend: str, is_written: bool) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        v = y.detach().abs().mean().item()
        if x.sum() > 0:
            z = x * 2
            if is_written:
                z.add_(y, alpha=v)
            return z
        return torch.sub(y, x, alpha=v)

    def calls() -> list[Call]:
        return [
            call(
                torch.tensor([first, 0.5], requires_grad=True),
                torch.tensor([second, -1.0], requires_grad=True),
            )
            for first, second in ((1.0, 1.0), (-1.0, 1.0), (2.0, 3.0), (-2.0, 0.0))
        ]

    assert_equivalent(lambda: program, calls, backend=backend)
