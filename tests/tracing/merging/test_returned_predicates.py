"""Values without a common form that a call hands out, and those that it stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call


def _calls() -> Iterator[Any]:
    yield call(torch.tensor([1.0, 2.0]))
    yield call(torch.tensor([-1.0, -2.0]))
    yield call(torch.tensor([30.0, 2.0]))


def _none_or_tensor() -> Callable[..., Any]:
    def program(x: Tensor) -> Tensor | None:
        return x * 2 if x.sum() > 0 else None

    return program


def _of_three_kinds() -> Callable[..., Any]:
    def program(x: Tensor) -> Any:
        if x.sum() > 10:
            return "large", x
        if x.sum() > 0:
            return x + 1
        return [x, None]

    return program


def _the_argument_itself() -> Callable[..., Any]:
    def program(x: Tensor) -> Any:
        return x if x.sum() > 0 else (x, x + 1)

    return program


def _through_a_helper() -> Callable[..., Any]:
    def helper(x: Tensor) -> Tensor | None:
        return x.exp() if x.sum() > 0 else None

    def program(x: Tensor) -> dict[str, Any]:
        return {"found": helper(x), "rest": x - 1}

    return program


class _Remembering(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.last = x
        else:
            self.last = "negative"
        return x * 2


PROGRAMS = [_none_or_tensor, _of_three_kinds, _the_argument_itself, _through_a_helper, _Remembering]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "make",
    [_none_or_tensor, _of_three_kinds, _the_argument_itself, _through_a_helper, _Remembering],
)
def test_equal_in_one_graph(make: Callable[[], Any], backend: str) -> None:
    assert_equivalent(make, lambda: list(_calls()), backend=backend)


def _kept_in_a_list() -> Callable[..., Any]:
    kept: list[Any] = []

    def program(x: Tensor) -> tuple[Tensor, int]:
        found = x * 2 if x.sum() > 0 else None
        kept.append(found)
        return x + 1, sum(each is None for each in kept)

    return program


def test_no_mark_is_left_in_an_object_that_was_there_before() -> None:
    calls = list(_calls())
    assert_equivalent(_kept_in_a_list, lambda: calls, fullgraph=False, graphs=None, recompiles=None)


def test_a_call_that_breaks_hands_out_no_mark() -> None:
    def program(x: Tensor) -> Tensor | None:
        torch._dynamo.graph_break()
        return x * 2 if x.sum() > 0 else None

    bcmend.patch(program)
    try:
        compiled = torch.compile(program, backend="eager")
        assert compiled(torch.tensor([-1.0])) is None
        assert compiled(torch.tensor([1.0])).equal(torch.tensor([2.0]))
    finally:
        bcmend.unpatch(program)


def _the_number_asked_about(x: Tensor, y: Tensor) -> Any:
    found = x.mean()
    if found > 0.1:
        return y.mean() * 0, {"found": found.item(), "stops": True}
    return y.mean() + x.sum(), {"found": found.item(), "stops": False}


class _StopsEarly(torch.nn.Module):
    """A loss that ends where the divergence is too large, and what is logged of it."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(2, 2)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        change = (self.line(x) - y).square()
        divergence = change.mean().detach()
        share = (change > 1).float().mean().item()
        if divergence > 3:
            return y.mean() * change.sum(), [divergence.item(), share, "stopped"]
        return change.sum() + y.sum(), [divergence.item(), share, "went on"]


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [lambda: _the_number_asked_about, _StopsEarly])
def test_a_number_of_both_sides_beside_what_has_no_common_form(
    make: Callable[[], Any], training: bool, backend: str
) -> None:
    """What was planned before the sides turn out to differ is planned anew for each."""
    assert_equivalent(
        make,
        lambda: [call(*torch.tensor([[1.0, 2.0], [3.0, 5.0]]) * each) for each in (1, -1, 9)],
        backend=backend,
        training=training,
        zero_gradients=True,
    )
