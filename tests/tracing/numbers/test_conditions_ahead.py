"""The condition of a branch that is refused is computed in front: a graph for each side."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[..., Any]


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


_NONE, _SOME, _ALL = [False] * 3, [True, False, True], [True] * 3


@pytest.mark.parametrize("fullgraph", [True, False])
def test_each_side_is_a_graph(fullgraph: bool) -> None:
    calls = _flags(_NONE, _SOME, _ALL, _NONE)
    make = lambda: fresh(_another_key)  # noqa: E731
    assert_equivalent(make, calls, graphs=2, recompiles=1, fullgraph=fullgraph)


def _merged_if_doubled(x: Tensor, given: Tensor) -> tuple[Tensor, list[Tensor]]:
    """As libraries of graphs make edges unique: the results have different sizes."""
    is_new = given[1:] != given[:-1]
    if is_new.all():
        return x[1:], [x]
    x = x[1:][is_new]
    size = x.size(0)  # a variable that the comprehension shares
    return x, [each.new_zeros(size) for each in (x, given.float())]


@pytest.mark.parametrize("fullgraph", [True, False])
def test_an_arm_may_store_to_a_variable_that_a_closure_shares(fullgraph: bool) -> None:
    given = [[1, 2, 3], [1, 1, 3], [1, 1, 1], [3, 2, 1]]
    calls = lambda: [call(torch.arange(3.0), torch.tensor(each)) for each in given]  # noqa: E731
    make = lambda: fresh(_merged_if_doubled)  # noqa: E731
    assert_equivalent(make, calls, fullgraph=fullgraph)


def test_the_report_says_where_the_condition_is_computed() -> None:
    bcmend.patch(_another_key)
    given = torch.arange(3.0), torch.tensor(_SOME)
    torch.compile(_another_key, backend="eager", fullgraph=True)(*given)
    sites = bcmend.report(_another_key).sites
    assert ("branch", "ahead", None) in {(s.kind, s.lowering, s.refusal) for s in sites}


def _changed_before(x: Tensor) -> Tensor:
    x.sub_(2)
    return _another_key(x, x > 2)


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


def _storing(x: Tensor) -> tuple[Tensor, list[str]]:
    log = _LOG
    if x.sum() > 0:
        log.append("positive")
        x = x + 1
    return x, list(log)


_LOG: list[str] = []


def test_what_an_arm_does_beside_is_left_to_eager_execution() -> None:
    for sign in (1, -1, 1):
        _LOG.clear()
        bcmend.patch(_storing)
        found = torch.compile(_storing, backend="eager")(torch.ones(3) * sign)
        assert (found[1], _LOG) == ((["positive"], ["positive"]) if sign > 0 else ([], []))
    assert "ahead" not in {site.lowering for site in bcmend.report(_storing).sites}


def _storing_to_what_was_there() -> Program:
    count = 0

    def program(x: Tensor) -> tuple[Tensor, int]:
        nonlocal count
        if x.sum() > 0:
            count += 1
            x = x[None]
        return x, count

    return program


def test_a_variable_from_before_the_call_is_left_to_eager_execution() -> None:
    calls = lambda: [call(torch.ones(3) * sign) for sign in (1, -1, 1)]  # noqa: E731
    assert_equivalent(
        _storing_to_what_was_there, calls, graphs=None, recompiles=None, fullgraph=False
    )


def test_conditions_are_so_many_at_most() -> None:
    program = fresh(_four_forms)
    given = [[1.0, -1.0, 1.0, 1.0], [-1.0, -1.0, 1.0, -1.0], [1.0, 1.0, 1.0, 1.0]]
    calls = lambda: [call(torch.tensor(each)) for each in given]  # noqa: E731
    assert_equivalent(lambda: program, calls, graphs=None, recompiles=None, fullgraph=False)


def test_a_condition_inside_of_a_transform_is_not_computed_outside() -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        y = x @ w
        if x.sum() > 0:
            y = nn.functional.dropout(y, 0.5) * 2
        return y.sum()

    def program(w: Tensor, x: Tensor) -> Any:
        return torch.func.grad(loss)(w, x)

    assert_equivalent(
        lambda: program,
        lambda: [call(torch.ones(2, 2), torch.ones(2, 2) * each) for each in (1, -1, 2)],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


class _MaskedUnlessFull(nn.Module):
    """A mask that is dropped where it hides nothing, for places counted along a computed tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def _needed(self, mask: Tensor | None, places: Tensor) -> Tensor | None:
        needed = mask
        if places[0] > 0 or (mask is not None and torch.all(mask == 1)):
            needed = None
        return needed

    def _mixed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None and mask.shape[1] > 1 and mask.shape[0] > 1:
            x = (x * mask[:, :, None]).to(x.dtype)
        return self.layer(x)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.layer(x) * 2
        needed = self._needed(mask, torch.arange(0, x.shape[1]))
        for _ in range(2):
            x = self._mixed(x, needed)
        return x


@pytest.mark.parametrize("training", [True, False])
def test_a_dynamic_size_of_a_computed_tensor_is_that_of_an_input(training: bool) -> None:
    def calls() -> list[Call]:
        drawn = torch.Generator().manual_seed(3)
        given = []
        for rows, places, padded in ((2, 6, 2), (2, 6, 0), (3, 7, 3), (3, 7, 0), (4, 8, 1)):
            mask = torch.ones(rows, places, dtype=torch.int64)
            mask[0, :padded] = 0
            given.append(call(torch.randn(rows, places, 4, generator=drawn), mask))
        return given

    assert_equivalent(_MaskedUnlessFull, calls, training=training, graphs=None, recompiles=None)


def _until_it_is_large(x: Tensor, count: Tensor) -> Tensor:
    left = count.item()
    while left > 0:
        x = x + random.random()
        if x.sum() > 4:
            left -= 1
        left -= 1
    print(left)
    return x


def test_a_condition_on_draws_of_python_is_not_computed_in_front() -> None:
    pairs = [(3.0, 2), (1.0, 5), (-2.0, 0), (2.0, 3)]
    calls = lambda: [call(torch.tensor([1.0, x]), torch.tensor(n)) for x, n in pairs]  # noqa: E731
    options: Any = {"graphs": None, "recompiles": None, "fullgraph": False}
    assert_equivalent(lambda: _until_it_is_large, calls, **options)
