"""Loops over a range up to a number out of a tensor: one operator, whatever the number is."""

# The programs begin with a copy, so that a loop of no iterations does not give back its argument.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.loops import open_ranges
from bcmend.tracing.numbers import scalars
from tests.equivalence import assert_equivalent, call, fresh
from tests.tracing.in_trace import during_trace


def _counts(*counts: int) -> Callable[[], list[Any]]:
    return lambda: [call(torch.tensor([1.0, -2.0]), torch.tensor(count)) for count in counts]


def _of_an_argument(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for _ in range(int(count)):
        x = x * 0.5 + 1
    return x


def _of_a_sum(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for _ in range(int(x.abs().sum() + count)):
        x = x * 0.5 + 1
    return x


def _by_item(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for _ in range((count * 2).item()):
        x = x * 0.5 + 1
    return x


def _with_its_number(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for i in range(int(count + 1)):
        x = x + i
    return x


def _summed_up(x: Tensor, count: Tensor) -> tuple[Tensor, int]:
    total = 0
    for i in range(int(count + 1)):
        total += i
    return x + total, total


def _from_two(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    last = int(count * 1.5)
    for i in range(2, last):
        x = x + i
    return x


def _in_steps(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for i in range(1, int(count + 3), 2):
        x = x * 0.5 + i
    return x


def _downwards(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for i in range(int(count + 2), 1, -1):
        x = x * 0.5 + i
    return x


def _left_by_a_tensor(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for i in range(int(count + 2)):
        x = x + i
        if x.sum() > 6:
            break
    else:
        x = x - 100
    return x


def _one_in_another(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for _ in range(int(count + 1)):
        for _ in range(int(count - 1)):
            x = x * 0.5 + 1
        x = x - 0.25
    return x


def _with_a_branch(x: Tensor, count: Tensor) -> Tensor:
    x = x * 1
    for _ in range(int(count + 1)):
        x = x * 2 if x.sum() < 3 else x - 1.5
    return x


ALL = [
    _of_an_argument,
    _of_a_sum,
    _by_item,
    _with_its_number,
    _summed_up,
    _from_two,
    _in_steps,
    _downwards,
    _left_by_a_tensor,
    _one_in_another,
    _with_a_branch,
]


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_loop_is_one_operator(program: Any, backend: str) -> None:
    found = assert_equivalent(
        lambda: fresh(program), _counts(3, 0, 5, 1, -2, 12), backend=backend, may_copy=True
    )
    assert found.report is not None
    assert "while_loop" in {site.lowering for site in found.report.sites}


@pytest.mark.parametrize(
    "program",
    [each for each in ALL if each not in (_downwards, _in_steps, _one_in_another)],
    ids=lambda program: program.__name__,
)
def test_the_loop_has_gradients(program: Any) -> None:
    assert_equivalent(
        lambda: fresh(program),
        _counts(3, 0, 5, 1, -2, 12),
        backend="aot_eager",
        training=True,
        may_copy=True,
    )


def test_the_graph_may_break_instead() -> None:
    def program(x: Tensor, count: Tensor) -> list[Tensor]:
        found = []
        for i in range(int(count + 1)):
            found.append(x + i)
        return found

    assert_equivalent(
        lambda: fresh(program), _counts(3, 0, 2), fullgraph=False, graphs=None, recompiles=None
    )


def test_the_range_may_be_held() -> None:
    def program(x: Tensor, count: Tensor) -> Tensor:
        x = x * 1
        numbers = range(int(count + 1))
        for i in numbers:
            x = x + i
        for i in numbers:
            x = x * 0.5 + i
        return x

    assert_equivalent(lambda: fresh(program), _counts(3, 0, 5, -2), may_copy=True)


def test_the_iterator_may_not_be_held() -> None:
    def program(x: Tensor, count: Tensor) -> tuple[Tensor, int]:
        numbers = iter(range(int(count + 5)))
        for i in numbers:
            x = x + i
            if i == 2:
                break
        return x, next(numbers)

    assert_equivalent(
        lambda: fresh(program), _counts(3, 0, 5), fullgraph=False, graphs=None, recompiles=None
    )


def test_a_loop_may_have_a_tensor_and_a_count_from_a_tensor_for_conditions() -> None:
    def program(x: Tensor, count: Tensor) -> tuple[Tensor, int]:
        x, turns, most = x * 1, 0, int(count * 2)
        while x.sum() < 100 and turns < most:
            x = x.abs() * 2
            turns += 1
        return x, turns

    found = assert_equivalent(lambda: fresh(program), _counts(3, 0, 20), may_copy=True)
    assert found.report is not None
    assert "while_loop" in {site.lowering for site in found.report.sites}


def test_no_number_was_taken_before_the_graph_breaks() -> None:
    """What goes on behind the break is given a variable that is not bound."""

    def program(x: Tensor) -> Tensor:
        for i in range(int(x.sum())):  # noqa: B007
            torch._dynamo.graph_break()
        return x * i

    assert_equivalent(
        lambda: program,
        lambda: [call(torch.full((3,), number)) for number in (0.0, 1.0, 0.0)],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


# Turns that cannot be those of one operator


def _by_group(x: Tensor, groups: Tensor) -> Tensor:
    found = []
    for group in range(int(groups.max()) + 1):
        mask = groups == group
        if mask.sum() == 0:
            found.append(x.new_zeros(2))
            continue
        weights = x[mask].mean(1).softmax(0)
        found.append((x[mask] * weights[:, None]).sum(0))
    return torch.stack(found)


def _by_group_within_a_branch(x: Tensor, groups: Tensor) -> Tensor:
    if x.sum() > 100:
        return x * 2
    return _by_group(x, groups)


@pytest.mark.parametrize("program", [_by_group, _by_group_within_a_branch])
def test_a_branch_of_a_turn_is_mended_where_the_loop_is_not_one_operator(program: Any) -> None:
    rows = [[0, 0, 1, 1], [0, 0, 2, 2], [0, 1, 1, 1], [2, 2, 2, 2]]
    x = torch.arange(8.0).reshape(4, 2)
    assert_equivalent(
        lambda: fresh(program),
        lambda: [call(x, torch.tensor(each)) for each in rows],
        graphs=None,
        recompiles=None,
    )


@pytest.mark.parametrize("is_limited", [True, False])
def test_a_range_is_known_to_end_where_its_bound_has_a_limit(is_limited: bool) -> None:
    found: list[bool] = []

    def body(tx: Any, x: Any) -> None:
        number = scalars.take(tx, x)
        if is_limited:
            three = constant(3)
            number = compat.BuiltinVariable(min).call_function(tx, [number, three], {}).realize()
        opened = open_ranges._open(tx, [number])
        iterator = open_ranges.OpenIterator(opened, constant(0))
        found.extend(iterator.has_an_end(tx, each) for each in (2, 3))

    during_trace(body, torch.tensor(4))
    assert found == [False, is_limited]
