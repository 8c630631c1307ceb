"""Functions of the user that are operators of the graph: `register_capture(..., opaque=...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.testing import check_capture, domain, given, read, tensors
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _sorted(x: Tensor, scale: float = 1.0) -> Tensor:
    if scale > 5:
        raise ArithmeticError("too much")
    return torch.from_numpy(numpy.sort(x.detach().numpy(), axis=None)) * scale


def _like_sorted(x: Tensor, scale: float = 1.0) -> Tensor:
    return x.detach().new_empty(x.numel())


def _in_an_arm(x: Tensor, n: Tensor) -> Tensor:
    if x.sum() > 0:
        x = _sorted(x, scale=2.0) + x
    return _sorted(x * 2, n.item()) + 1


class _Sorts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return _in_an_arm(x * self.scale, n) * self.scale


def _calls() -> list[Call]:
    return [
        call(torch.tensor([3.0, 1.0, 2.0]) * sign, torch.tensor(scale))
        for scale in (2.0, 7.0, -1.0)
        for sign in (1.0, -1.0)
    ]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_one_graph_and_what_it_raises(backend: str) -> None:
    bcmend.register_capture(_sorted, opaque=_like_sorted)
    training = backend != "eager"
    assert_equivalent(_Sorts, _calls, backend=backend, training=training)


def _twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * y.sum(), x + y


def test_its_backward_calls_it_again_and_several_results_are_a_tuple() -> None:
    bcmend.register_capture(_twice, opaque=lambda x, y: _twice(x, y))

    def program(x: Tensor, y: Tensor) -> Tensor:
        first, second = _twice(x, y)
        return first * second if x.sum() > 0 else second

    def calls() -> list[Call]:
        return [call(torch.ones(2) * sign, torch.tensor([2.0, 3.0])) for sign in (1, -1)]

    assert_equivalent(lambda: program, calls, backend="aot_eager", training=True)


def test_over_its_domain() -> None:
    bcmend.register_capture(_sorted, opaque=_like_sorted)
    values = tensors("float32 float64", dims=[1, 2])
    check_capture(_sorted, domain("target(t, n)", t=values, n=read("1.0", "7.0", "nan")))


def _returns_its_argument(x: Tensor) -> Tensor:
    return x.view(-1)


def _returns_a_number(x: Tensor) -> float:
    return 1.0


def _changes_its_argument(x: Tensor) -> Tensor:
    return x.add_(1) * 2


@pytest.mark.parametrize(
    "function", [_returns_its_argument, _returns_a_number, _changes_its_argument]
)
def test_what_returns_no_new_tensor_is_named(function: Callable[..., Any]) -> None:
    bcmend.register_capture(function, opaque=torch.empty_like)
    compiled = bcmend.compile(lambda x: function(x + 1) if x.sum() > 0 else x, backend="eager")
    with pytest.raises(
        bcmend.CaptureError, match=f"{function.__name__}.*has to return new tensors"
    ):
        compiled(torch.ones(2))


def _in_a_list(x: Tensor) -> list[Tensor]:
    return [x.detach() + 1, x.detach().long()]


def test_a_list_is_a_list() -> None:
    bcmend.register_capture(_in_a_list, opaque=lambda x: _in_a_list(x))

    def program(x: Tensor) -> list[Tensor]:
        found = _in_a_list(x)
        if x.sum() > 0:
            found.append(x * 2)
        return [*found, x - 1]

    assert_equivalent(
        lambda: program,
        lambda: [call(torch.ones(2)), call(-torch.ones(2))],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


def _with_text(x: Tensor, mode: object) -> Tensor:
    return x * 2


def test_where_it_cannot_be_an_operator_the_graph_breaks() -> None:
    bcmend.register_capture(_with_text, opaque=lambda x, mode: torch.empty_like(x))

    def handled(x: Tensor) -> Tensor:
        try:
            return _with_text(x, "text") if x.sum() > 0 else x - 1
        except ValueError:
            return x * 3

    def of_an_object(x: Tensor) -> Tensor:
        return _with_text(x, {"a": 1}) if x.sum() > 0 else x - 1

    for program in (handled, of_an_object):
        assert_equivalent(
            lambda program=program: program,
            lambda: [call(torch.ones(2)), call(-torch.ones(2))],
            fullgraph=False,
            graphs=None,
            recompiles=None,
        )


def test_one_of_both_has_to_be_given() -> None:
    for arguments in ({}, {"traced": _twice, "opaque": _twice}):
        with pytest.raises(bcmend.CaptureError, match=r"one of traced=\.\.\. and opaque="):
            bcmend.register_capture(_sorted, **arguments)  # type: ignore[arg-type]


def test_the_old_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="register_capture"):
        assert bcmend.register_substitute is bcmend.register_capture
    with pytest.warns(DeprecationWarning, match="CaptureError"):
        assert bcmend.SubstituteError is bcmend.CaptureError


def test_a_wrong_fake_is_found() -> None:
    bcmend.register_capture(_sorted, opaque=lambda x, scale=1.0: torch.empty(4))
    values = given("torch.tensor([1.0, 2.0])", "torch.tensor([2.0, 0.5])")
    with pytest.raises(AssertionError, match="def program"):
        check_capture(_sorted, domain("target(t).add(torch.ones(2))", t=values), programs=9)
