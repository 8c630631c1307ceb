"""The condition of a branch that is refused is computed in front: a graph for each side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[..., Any]


def _calls(*signs: int) -> Callable[[], list[Call]]:
    return lambda: [call(torch.tensor([1.0, 2.0, 3.0]) * sign) for sign in signs]


def _flags(*flags: Sequence[bool]) -> Callable[[], list[Call]]:
    return lambda: [call(torch.arange(3.0), torch.tensor(each)) for each in flags]


def _prepared(padded: Tensor) -> dict[str, Tensor]:
    data = {"is_padded": torch.tensor(False)}
    if padded.any():
        data["is_padded"] = torch.tensor(True)
        data["mask"] = padded
    return data


def _another_key(x: Tensor, padded: Tensor) -> Tensor:
    data = _prepared(padded)
    return x.masked_fill(data["mask"], 0.0) if data["is_padded"].item() else x + 1


def _another_form(x: Tensor) -> Tensor:
    y = x * 2
    if x.sum() > 0:
        y.unsqueeze_(0)
    return y + 1


_NONE, _SOME, _ALL = [False] * 3, [True, False, True], [True] * 3


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    ("program", "calls"),
    [
        (_another_key, _flags(_NONE, _SOME, _ALL, _NONE)),
        (_another_form, _calls(1, -1, 1, 2, -2)),
    ],
)
def test_each_side_is_a_graph(
    program: Program, calls: Callable[[], list[Call]], fullgraph: bool
) -> None:
    assert_equivalent(lambda: fresh(program), calls, graphs=2, recompiles=1, fullgraph=fullgraph)


def test_the_report_says_where_the_condition_is_computed() -> None:
    program = fresh(_another_form)
    bcmend.patch(program)
    torch.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
    (site,) = bcmend.report(program).sites
    assert (site.kind, site.lowering, site.refusal) == ("branch", "ahead", None)


def _changed_before(x: Tensor) -> Tensor:
    x.sub_(2)
    y = x * 2
    if x.sum() > 0:
        y.unsqueeze_(0)
    return y + 1


def test_a_condition_is_that_of_its_moment() -> None:
    program = fresh(_changed_before)
    calls = lambda: [call(torch.full((3,), each)) for each in (1.0, 5.0, 3.0, -1.0)]  # noqa: E731
    assert_equivalent(lambda: program, calls, graphs=None, recompiles=None, fullgraph=False)


class _Gate(nn.Module):
    """What weights decide is left as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        if (x * self.weight).sum() > 0:
            y.unsqueeze_(0)
        return y


def test_what_weights_decide_is_left_to_the_graph() -> None:
    model = _Gate()
    bcmend.patch(model)
    compiled = torch.compile(model, backend="eager")
    for sign in (1, -1):
        x = torch.ones(3) * sign
        assert torch.equal(compiled(x), model(x))
    assert {site.lowering for site in bcmend.report(model).sites} == {None}


def _four_forms(x: Tensor) -> Tensor:
    y = x * 2
    for at in range(4):
        if x[at] > 0:
            y = y[None]
    return y


def test_conditions_are_so_many_at_most() -> None:
    program = fresh(_four_forms)
    given = [[1.0, -1.0, 1.0, 1.0], [-1.0, -1.0, 1.0, -1.0], [1.0, 1.0, 1.0, 1.0]]
    calls = lambda: [call(torch.tensor(each)) for each in given]  # noqa: E731
    assert_equivalent(lambda: program, calls, graphs=None, recompiles=None, fullgraph=False)
