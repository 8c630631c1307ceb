"""``repeat_interleave`` by a tensor of counts, several times in a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh

X = torch.linspace(-1, 1, 12).view(3, 4)
#: None, some, and more than nine layouts, so that each is no variant of its own.
COUNTS = [torch.tensor([at, (at * 2) % 5, 0]) for at in range(12)] + [torch.zeros(3).long()]


def _calls() -> list[Call]:
    return [call(X.clone(), each.clone()) for each in COUNTS]


def _twice(x: Tensor, counts: Tensor) -> Tensor:
    near = x.repeat_interleave(counts, 0)
    return near + torch.repeat_interleave(x.exp(), counts, dim=-2)


def _indices_made(program: Callable[..., Any], calls: list[Call]) -> list[int]:
    made: list[int] = []

    def count(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        made.append(sum("repeat_interleave" in str(each.target) for each in module.graph.nodes))
        return module.forward

    compiled = torch.compile(bcmend.patch(program), backend=count, fullgraph=True)
    for each in calls:
        compiled(*each.arguments)
    return made


def test_counts_that_are_given_twice() -> None:
    assert_equivalent(lambda: _twice, _calls)
    assert set(_indices_made(fresh(lambda: _twice)(), _calls())) == {1}


def test_with_gradients() -> None:
    def calls() -> list[Call]:
        return [call(X.clone().requires_grad_(), each) for each in COUNTS]

    assert_equivalent(lambda: _twice, calls, training=True)


def test_of_all_items() -> None:
    def flat(x: Tensor, counts: Tensor) -> Tensor:
        rows = torch.cat([counts] * 4)
        return x.repeat_interleave(rows) + x.t().repeat_interleave(repeats=rows)

    assert_equivalent(lambda: flat, _calls)


def _in_place(x: Tensor, counts: Tensor) -> Any:
    before = x.repeat_interleave(counts, 0)
    counts += 1
    return before, x.repeat_interleave(counts, 0)


def _past_the_counter(x: Tensor, counts: Tensor) -> Any:
    before = x.repeat_interleave(counts, 0)
    counts.data.add_(1)
    return before, x.repeat_interleave(counts, 0)


def _by_a_view(x: Tensor, counts: Tensor) -> Any:
    before = x.repeat_interleave(counts, 0)
    counts[:1].fill_(2)
    return before, x.repeat_interleave(counts, 0)


def _by_a_list(x: Tensor, counts: Tensor) -> Any:
    before = x.repeat_interleave(counts, 0)
    torch._foreach_add_([counts], 1)
    return before, x.repeat_interleave(counts, 0)


def _in_an_arm(x: Tensor, counts: Tensor) -> Any:
    before = x.repeat_interleave(counts, 0)
    if counts.sum() > 7:
        counts[0] = 0
    return before, x.repeat_interleave(counts, 0)


@pytest.mark.parametrize(
    "program", [_in_place, _past_the_counter, _by_a_view, _by_a_list, _in_an_arm]
)
def test_counts_that_are_changed_between(program: Callable[..., Any]) -> None:
    assert_equivalent(lambda: program, _calls)


def test_in_both_arms_and_behind() -> None:
    def sums(x: Tensor, counts: Tensor) -> Tensor:
        if counts.sum() > 7:
            y = x.repeat_interleave(counts, 0).sum(0) + x.sin().repeat_interleave(counts, 0).sum(0)
        else:
            y = x.cos().repeat_interleave(counts, 0).sum(0)
        return y + x.repeat_interleave(counts, 0).sum(0)

    assert_equivalent(lambda: sums, _calls)


def test_an_index_of_inference_is_not_taken_for_gradients() -> None:
    def partly(x: Tensor, counts: Tensor) -> Any:
        with torch.inference_mode():
            seen = x.repeat_interleave(counts, 0).sum()
        return x.repeat_interleave(counts, 0) * seen.clone()

    def calls() -> list[Call]:
        return [call(X.clone().requires_grad_(), each) for each in COUNTS]

    assert_equivalent(lambda: partly, calls, training=True)


def test_one_count_for_all_rows() -> None:
    def sized(x: Tensor, counts: Tensor) -> Tensor:
        y = x.repeat_interleave(counts, 0)
        if y.shape[0] > 5:
            return y.view(-1, 2) + 1
        return y.view(2, -1)

    assert_equivalent(lambda: sized, lambda: [call(X, torch.tensor([at])) for at in range(9)])


def _rows(x: Tensor, counts: Tensor) -> Tensor:
    return x.repeat_interleave(counts, 0) + x.sum()


def _items(x: Tensor, counts: Tensor) -> Tensor:
    return x[:, 0].repeat_interleave(counts) + x.sum()


@pytest.mark.parametrize("program", [_rows, _items])
@pytest.mark.parametrize(
    "counts",
    [
        torch.tensor([1, -1, 2]),
        torch.tensor([1, 2]),
        torch.tensor([[1, 2, 1]]),
        torch.tensor([1.0, 2.0, 0.0]),
        torch.tensor([1, 0, 2], dtype=torch.int32),
    ],
)
def test_what_torch_raises(program: Callable[..., Any], counts: Tensor) -> None:
    def calls() -> list[Call]:
        return [call(X, COUNTS[1]), call(X, counts), call(X, COUNTS[2])]

    assert_equivalent(lambda: program, calls, graphs=None, recompiles=None)


def test_as_many_counts_as_the_data_say() -> None:
    """A count for each row, one for all of them, and neither, which is an error."""

    def sums(x: Tensor, groups: Tensor) -> Tensor:
        counts = torch.bincount(groups)
        rows = x.new_zeros(int(groups[-1]) + 1, 4).index_add_(0, groups, x)
        near = rows.repeat_interleave(counts, 0)
        return near + rows.exp().repeat_interleave(counts, 0) * x

    def calls() -> list[Call]:
        groups = [[0, 1, 2], [0, 0, 1], [0, 0, 0], [2, 2, 2], [1, 1, 1], [3, 2, 0], [0, 2, 3]]
        return [call(X, torch.tensor(each)) for each in groups]

    assert_equivalent(lambda: sums, calls, graphs=None, recompiles=None)
