"""Lists sorted by numbers out of tensors, and extremes by a key: one graph, equal to eager."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call, fresh

Program = Callable[..., Any]

#: Rows in several orders; with ties, with zeros of both signs, and with NaN.
ROWS = (
    [[3.0, 1.0], [1.0, 1.0], [2.0, 2.0]],
    [[1.0, 1.0], [2.0, 0.0], [0.5, 1.5]],
    [[0.0, 0.0], [-0.0, 5.0], [0.0, -1.0]],
    [[5.0, 1.0], [math.nan, 1.0], [-2.0, 2.0]],
)


def _rows() -> Iterator[Call]:
    for each in ROWS:
        yield call(torch.tensor(each))


def _numbers(x: Tensor) -> Any:
    found = sorted(row[0].item() for row in x)
    return x * found[-1], found


def _in_place(x: Tensor) -> Any:
    found = [int(row[0]) if row[0] == row[0] else 0 for row in x]
    found.sort(reverse=True)
    return x * found[0], found[1] - found[2]


def _places(x: Tensor) -> Any:
    order = sorted(range(len(x)), key=lambda at: x[at, 0].item(), reverse=True)
    return x[order], order, x[order[0]] + 1


def _places_upwards(x: Tensor) -> Any:
    order = sorted(range(len(x)), key=lambda at: x[at, 0])
    return torch.stack([x[at] for at in order]), order


def _tensors(x: Tensor) -> Any:
    found = sorted([row.sum() for row in x], reverse=True)
    return torch.stack(found), found[0] * 2


def _items_of_a_tensor(x: Tensor) -> Any:
    return torch.stack(sorted(x[:, 0])) * 2


def _pairs(x: Tensor) -> Any:
    found = sorted((row[0].item(), at) for at, row in enumerate(x))
    return x[found[0][1]] * 2, [at for _, at in found]


def _by_two(x: Tensor) -> Any:
    found = sorted(range(3), key=lambda at: ("ba"[at % 2], x[at, 0].item(), -at))
    return x * 2, found


def _beams(x: Tensor) -> Any:
    beams = [([at], row.sum()) for at, row in enumerate(x)]
    beams += [([at, at], row[0] * 2) for at, row in enumerate(x)]
    beams = sorted(beams, key=lambda beam: beam[1], reverse=True)[:2]
    return [tokens for tokens, _ in beams], [score for _, score in beams]


@dataclass
class _Box:
    score: float
    name: str
    at: int


def _objects(x: Tensor) -> Any:
    boxes = [_Box(row[0].item(), f"box {at}", at) for at, row in enumerate(x)]
    boxes.sort(key=lambda box: -box.score)
    return x * boxes[0].score, boxes[0].name, [box.at for box in boxes]


def _best(x: Tensor) -> Any:
    best = max(range(len(x)), key=lambda at: x[at, 0].item())
    worst = min([0, 1, 2], key=lambda at: x[at, 0])
    return x[best] - x[worst], best, worst


def _best_row(x: Tensor) -> Any:
    return max(x, key=lambda row: row[0].item()) * 2, max([], key=len, default=None)


def _of_arguments(x: Tensor) -> Any:
    return min(x[0], x[1], x[2], key=lambda row: row[0]) * 2


def _in_an_arm(x: Tensor) -> Any:
    if x.sum() > 3:
        first, *_ = sorted(x, key=lambda row: row[0].item())
        x = x + first
    return x * 2


def _with_a_branch_behind(x: Tensor) -> Any:
    values = sorted(row[0].item() for row in x)
    if values[1] > 0.7:
        x = x / values[1]
    return x + values[0]


PROGRAMS = (
    _numbers,
    _in_place,
    _places,
    _places_upwards,
    _tensors,
    _items_of_a_tensor,
    _pairs,
    _by_two,
    _beams,
    _objects,
    _best,
    _best_row,
    _of_arguments,
    _in_an_arm,
    _with_a_branch_behind,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__[1:])
def test_any_order(program: Program) -> None:
    assert_equivalent(lambda: fresh(program), _rows, graphs=None, recompiles=None)


@pytest.mark.parametrize("program", [_numbers, _places, _tensors, _pairs, _best, _beams])
def test_one_graph_for_all_orders(program: Program) -> None:
    rows = [ROWS[0], ROWS[1], ROWS[2]]
    assert_equivalent(lambda: fresh(program), lambda: [call(torch.tensor(each)) for each in rows])


@pytest.mark.parametrize("program", [_tensors, _places, _best_row, _of_arguments])
def test_gradients(program: Program) -> None:
    assert_equivalent(
        lambda: fresh(program),
        _rows,
        backend="aot_eager",
        training=True,
        graphs=None,
        recompiles=None,
    )


def test_what_is_sorted_is_sorted_for_the_caller_too() -> None:
    def program(x: Tensor, items: list[Tensor]) -> Tensor:
        items.sort(key=lambda each: each.sum().item())
        return x + items[0]

    def calls() -> Iterator[Call]:
        for first in (1.0, 5.0):
            yield call(torch.ones(2), [torch.full((2,), first), torch.full((2,), 3.0)])

    assert_equivalent(lambda: fresh(program), calls)


def test_a_sorted_tensor_that_is_changed_is_the_one_of_the_program() -> None:
    def program(x: Tensor) -> Any:
        rows = [row * 1 for row in x]
        found = sorted(rows, key=lambda row: row[0].item())
        found[0].add_(10)
        return torch.stack(rows), torch.stack(found)

    assert_equivalent(lambda: fresh(program), _rows, fullgraph=False, graphs=None, recompiles=None)


class _Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def _key(self, row: Tensor) -> float:
        self.asked += 1
        return row[0].item()

    def forward(self, x: Tensor) -> Any:
        found = sorted(x, key=self._key)
        return found[0] * self.asked, max(x, key=self._key) + self.asked


def test_each_key_is_asked_for_once() -> None:
    assert_equivalent(_Counted, _rows, graphs=None, recompiles=None)


@pytest.mark.parametrize("keys", [[1, "a", 2], [(1, 2), (1,), (0,)], [None, None, None]])
@pytest.mark.parametrize(
    "function", [sorted, partial(sorted, reverse=True), max, min], ids=["up", "down", "max", "min"]
)
def test_keys_without_an_order(keys: list[Any], function: Any) -> None:
    def program(x: Tensor) -> Any:
        y = x if x.sum() > 0 else -x
        try:
            return y * 2, function([1, 2, 3], key=lambda at: keys[at - 1])
        except TypeError as error:
            return y * 3, str(error)

    assert_equivalent(lambda: fresh(program), _rows, graphs=None, recompiles=None)


class _Ranked:
    """Has an order of its own."""

    def __init__(self, rank: int, value: Tensor) -> None:
        self.rank, self.value = rank, value

    def __lt__(self, other: _Ranked) -> bool:
        return self.rank < other.rank

    def __gt__(self, other: _Ranked) -> bool:
        return self.rank > other.rank


def _of_a_class(x: Tensor) -> Any:
    y = x if x.sum() > 0 else -x
    ranked = [_Ranked(rank, y[at] * rank) for at, rank in enumerate((2, 1, 3))]
    best = max(enumerate(ranked), key=lambda each: each[1])
    return [each.value for each in sorted(ranked)], best[0], best[1].value


def _of_one(x: Tensor) -> Any:
    row = max([x[0]], key=lambda each: each.sum().item())
    return sorted([x[0, 0].item()]) + sorted([], key=len), row * 2


@pytest.mark.parametrize("program", [_of_a_class, _of_one])
def test_what_no_data_decide(program: Program) -> None:
    assert_equivalent(lambda: fresh(program), _rows, graphs=None, recompiles=None)


def _many(x: Tensor) -> Any:
    return x * sorted(x.flatten().repeat(4).tolist())[3]


def _of_several_types(x: Tensor) -> Any:
    return x * sorted([x[0, 0].item(), int(x[1, 1]), 2])[1]


def _of_several_forms(x: Tensor) -> Any:
    found = sorted([x, x[0]], key=lambda each: each.max().item())
    return found[0].sum() + torch.cat([each.flatten() for each in found]).sum()


@pytest.mark.parametrize("program", [_many, _of_several_types, _of_several_forms])
def test_what_is_not_sorted_in_the_graph(program: Program) -> None:
    assert_equivalent(lambda: fresh(program), _rows, fullgraph=False, graphs=None, recompiles=None)
