"""What a branch leaves as it was on one side may be changed later, where no one has it else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[[Tensor], Any]


def _calls() -> list[Any]:
    return [call(torch.tensor([[scale, -1.0, 2.0], [0.5, 3.0, 1.0]])) for scale in (1.0, 90.0, 2.0)]


def _balanced(x: Tensor) -> Tensor:
    plan = torch.exp(x).t()
    if torch.isinf(plan).any():
        plan = torch.nan_to_num(plan, posinf=7.0)
    plan /= plan.sum()
    for _ in range(2):
        plan /= plan.sum(dim=1, keepdim=True)
        plan *= 2
    if float(plan.max()) > 100.0:
        raise ValueError("no plan")
    return plan.t()


def _filled(x: Tensor) -> tuple[Tensor, Tensor]:
    scores = x * 2
    if x.max() > 50:
        scores = scores.clamp(max=10.0)
    scores[x < 0] = -9.0
    kept = scores.clone()
    scores.add_(1)
    return scores, kept


def _twice(x: Tensor) -> Tensor:
    y = x + 1
    if y.max() > 50:
        y = y / 10
    if y.min() < 0:
        y = y.abs() + 1
    y.mul_(3)
    return y


def _one_name_more(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    other = y
    if x.max() > 50:
        y = y / 10
    y.add_(1)
    return y, other


def _read_later(x: Tensor) -> Tensor:
    y = x * 2
    other = y
    if x.max() > 50:
        y = y / 10
    y.add_(1)
    return y + other.sum()


def _view_read_later(x: Tensor) -> Tensor:
    y = x * 2
    first = y[0]
    if x.max() > 50:
        y = y / 10
    y.add_(1)
    return y + first


def _read_through_an_earlier_branch(x: Tensor) -> Tensor:
    y = x * 2
    one = y
    if x.max() > 50:
        y = y / 10
    two = y
    if x.min() < -5:
        two = two + 1
    two.mul_(2)
    return one.sum() + two


def _argument(x: Tensor) -> Tensor:
    y = x
    if x.max() > 50:
        y = y / 10
    y.add_(1)
    return y * 2


def _kept_in_a_list(x: Tensor) -> list[Tensor]:
    kept = []
    y = x * 2
    kept.append(y)
    if x.max() > 50:
        y = y / 10
    y.add_(1)
    kept.append(y)
    return kept


def _in_an_arm(x: Tensor) -> Tensor:
    y = x * 2
    z = y
    if x.min() < 0:
        if x.max() > 50:
            z = z / 10
        z = z.add_(1)
    return y + z


PROGRAMS: list[Program] = [
    _balanced,
    _filled,
    _twice,
    _one_name_more,
    _read_later,
    _view_read_later,
    _read_through_an_earlier_branch,
    _argument,
    _kept_in_a_list,
    _in_an_arm,
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_written_is_read_as_in_eager_execution(program: Program, training: bool) -> None:
    found = assert_equivalent(
        lambda: program,
        _calls,
        fullgraph=False,
        graphs=None,
        recompiles=None,
        training=training and program not in (_argument, _balanced),
        may_copy=True,
    )
    if program in PROGRAMS[:3]:
        assert found.graphs == 1


@pytest.mark.parametrize(
    ("program", "training"),
    [
        (_balanced, False),
        *((each, training) for each in (_filled, _twice) for training in (False, True)),
    ],
)
def test_one_graph_with_inductor(program: Program, training: bool) -> None:
    assert_equivalent(lambda: program, _calls, backend="inductor", training=training)


def test_a_buffer_that_a_branch_replaces_for_the_call() -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.ones(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            rows = self.rows
            if x.max() > 50:
                rows = rows / 2
            rows.add_(x)
            return rows * 2

    assert_equivalent(Keeping, _calls, fullgraph=False, graphs=None, recompiles=None)


def test_eager_execution_fails_where_its_backward_needs_what_is_written() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        if x.max() > 50:
            y = y / 10
        y.add_(1)
        return y

    for run in (program, torch.compile(bcmend.patch(program), backend="aot_eager")):
        result = run(torch.ones(3, requires_grad=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_eager_execution_writes_to_no_tensor_that_overlaps_itself() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.sum().expand(3)
        if x.max() > 50:
            y = y / 10
        y.add_(1)
        return y

    assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)


def test_autograd_lets_no_view_out_of_several_be_changed() -> None:
    def program(x: Tensor) -> Tensor:
        y, _ = (x * 2).unbind(0)
        if x.max() > 50:
            y = y / 10
        y.add_(1)
        return y

    for training in (False, True):
        assert_equivalent(
            lambda: program,
            _calls,
            fullgraph=False,
            graphs=None,
            recompiles=None,
            training=training,
        )
