"""Loops whose turns add to a variable or not: the variable is one tensor, or still a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call, compare

ROWS = 6


def _call(*turns: int) -> Call:
    """Return rows of which those of ``turns`` have anything to add."""
    rows = torch.linspace(-2, 3, ROWS * 3).reshape(ROWS, 3)
    mask = torch.zeros(ROWS, 3, dtype=torch.bool)
    for each in turns:
        mask[each, each % 3 :] = True
    return call(rows, mask)


def _calls() -> list[Call]:
    return [_call(1, 4), _call(), _call(0, 1, 2, 3, 4, 5), _call(5), _call(0)]


def mean(x: Tensor, mask: Tensor) -> Any:
    loss, count = 0, 0
    for row, chosen in zip(x, mask, strict=True):
        if chosen.any():
            loss = loss + row[chosen].square().mean()
            count += 1
    return loss / max(count, 1)


def in_place(x: Tensor, mask: Tensor) -> Any:
    loss, count = 0.0, 0
    for row, chosen in zip(x, mask, strict=True):
        if chosen.sum() == 0:
            continue
        loss += row[chosen].sum()
        count += 1
    if count > 0:
        loss /= count
    return loss


def begun_with_none(x: Tensor, mask: Tensor) -> Tensor:
    total = None
    for row, chosen in zip(x, mask, strict=True):
        if chosen.any():
            found = row[chosen].sum()
            total = found if total is None else total + found
    if total is None:
        total = x.sum() * 0
    return total


def no_rows(x: Tensor, mask: Tensor) -> Any:
    loss, count = 0.0, 0
    for row, chosen in zip(x, mask, strict=True):
        if chosen.any():
            loss += row[chosen].sum() ** 2
            count += 1
    if count == 0:
        return x.sum() * 0
    return loss / count


def two_sums(x: Tensor, mask: Tensor) -> Any:
    one, other = 0.0, 0
    for row, chosen in zip(x, mask, strict=True):
        if chosen.any():
            one = one + row.abs().sum()
        if (row > 1).any():
            other = row.square().sum() + other
    return one + 0.5 * other


def largest(x: Tensor, mask: Tensor) -> Any:
    best, place = float("-inf"), -1
    for at in range(x.shape[0]):
        found = x[at].where(mask[at], 0).sum()
        if found > best:
            best, place = found, at
    return best, place, x[place]


def counted(x: Tensor, mask: Tensor) -> Any:
    count = 0
    for chosen in mask:
        if chosen.any():
            count += 1
    return x[:count], torch.zeros(count + 1), count, count > 2


def halved(x: Tensor, mask: Tensor) -> Any:
    weight = 1.0
    for chosen in mask:
        if chosen.any():
            weight *= 0.5
    return x * weight, weight


def seen_before(x: Tensor, mask: Tensor) -> Any:
    loss, earlier = 0.0, []
    for row, chosen in zip(x[:3], mask[:3], strict=True):
        if chosen.any():
            loss = loss + row.sum()
        earlier.append(loss)
    return loss * 2, earlier[0] + 1, earlier[1] * 3


def shown(x: Tensor, mask: Tensor) -> Tensor:
    loss, count = 0, 0
    for row, chosen in zip(x, mask, strict=True):
        if chosen.any():
            loss = loss + row.sum()
            count += 1
    print(f"{count} rows, {loss}")
    return x + count


def until_it_is_patient_no_more(x: Tensor, mask: Tensor) -> Any:
    best, worse = None, 0
    for row in x.where(mask, 0):
        found = row.mean()
        if best is None or found > best:
            best, worse = found, 0
        else:
            worse += 1
        if worse >= 2:
            break
    return best, worse


def root_of_a_mean(x: Tensor, mask: Tensor) -> Any:
    loss, count = 0, 0
    for row, chosen in zip(x, mask, strict=True):
        if chosen.any():
            loss = loss + row[chosen].square().mean()
            count += 1
    return (loss / count).sqrt() if count else loss


def attribute_that_a_number_has_not(x: Tensor, mask: Tensor) -> Tensor:
    loss = 0
    for row, chosen in zip(x, mask, strict=True):
        if chosen.any():
            loss = loss + row.sum()
    return loss.sqrt() + x


PROGRAMS = [
    attribute_that_a_number_has_not, root_of_a_mean, mean, in_place, begun_with_none, no_rows,
    two_sums, largest, counted, halved, seen_before, shown, until_it_is_patient_no_more,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_one_graph(program: Callable[..., Any]) -> None:
    assert_equivalent(lambda: program, _calls)


@pytest.mark.parametrize(
    "program",
    [
        *(mean, begun_with_none, two_sums),
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (in_place, root_of_a_mean, no_rows)
        ),
    ],
)
def test_gradients_flow_into_what_was_added(program: Callable[..., Any]) -> None:
    assert_equivalent(
        lambda: program, _calls, backend="aot_eager", training=True, zero_gradients=True
    )


def test_it_takes_no_trace_for_each_turn() -> None:
    mended = bcmend.compile(in_place, backend="eager", fullgraph=True)
    mended(*_call(1, 4).arguments)
    traces = int(str(bcmend.why(in_place)).splitlines()[1].split()[0])
    assert traces <= ROWS


def _with_an_alias(x: Tensor, mask: Tensor) -> Any:
    loss, earlier = 0.0, 0.0
    for row, chosen in zip(x[:2], mask[:2], strict=True):
        earlier = loss
        if chosen.any():
            loss += row.sum()
    return loss, earlier


def _kept(x: Tensor, mask: Tensor) -> Any:
    loss, kept = 0.0, []
    for row, chosen in zip(x[:2], mask[:2], strict=True):
        if chosen.any():
            loss += row.sum()
        kept.append(loss)
    return loss, kept[0]


def _of_a_caller(x: Tensor, mask: Tensor) -> Any:
    def add(total: Any, row: Tensor) -> Any:
        total += row.sum()
        return total

    loss = 0.0
    if mask[0].any():
        loss = x[0].sum()
    more = loss
    if mask[1].any():
        more = add(loss, x[1])
    return loss, more


@pytest.mark.parametrize("program", [_with_an_alias, _kept, _of_a_caller])
def test_what_another_variable_shows_is_changed_in_place(program: Callable[..., Any]) -> None:
    found = compare(lambda: program, lambda: [_call(0, 1), _call(0), _call(1)], fullgraph=False)
    assert not found.differences
    assert not found.eager_differences


def test_a_number_that_has_to_be_known_is_kept_apart() -> None:
    def program(x: Tensor, mask: Tensor) -> Any:
        count = 0
        for chosen in mask[:5]:
            if chosen.any():
                count += 1
        return x.reshape(-1)[: 2 * count].reshape(2, count) + 1

    found = compare(lambda: program, lambda: [_call(1, 4), _call(2, 3), _call(0)], fullgraph=False)
    assert not found.differences


def test_a_number_of_more_than_64_bits_is_not_merged() -> None:
    def program(x: Tensor, mask: Tensor) -> Any:
        count = 1
        for chosen in mask:
            if chosen.any():
                count *= 10_000
        return x + 1, count

    calls = [_call(0, 1, 2, 3, 4, 5), _call(1)]
    found = compare(lambda: program, lambda: calls, fullgraph=False, backend="inductor")
    assert not found.differences


def _mean_or_nan(x: Tensor, mask: Tensor) -> Any:
    found = {}
    for name, row, chosen in zip("abcdef", x, mask, strict=True):
        found[name] = row[chosen].mean().item() if chosen.any() else float("nan")
    return x * 2, found, found["a"] + found["b"]


def test_a_number_may_be_nan_on_one_side() -> None:
    assert_equivalent(lambda: _mean_or_nan, _calls, recompiles=None, graphs=None)


def _hangs_over(x: Tensor) -> Any:
    hang, floor = 0, torch.zeros(())
    for at in range(20):
        if x[at] > 0.5:
            hang = 2
        elif hang > 0:
            hang -= 1
        else:
            floor = floor + x[at]
    return floor, hang


def _in_three_states(x: Tensor) -> Any:
    state = 0
    for at in range(20):
        if state == 0:
            if x[at] > 0.5:
                state = 1
        elif state == 1:
            if x[at] < 0:
                state = 2
        else:
            x = x * 2
            state = 0
    return x, state


def _longest_run(x: Tensor) -> Any:
    run = best = 0
    for at in range(20):
        if x[at] > 0:
            run += 1
        else:
            run = 0
        best = max(best, run)
    return x * best, best


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("program", [_hangs_over, _in_three_states, _longest_run])
def test_a_state_of_some_turns_is_one_number(program: Any, training: bool) -> None:
    """Each turn would double what is traced if the state kept all of its forms."""

    def calls() -> list[Call]:
        drawn = torch.Generator().manual_seed(0)
        shifts = (0.0, 0.5, -0.5, 1.0)
        return [call(torch.randn(20, generator=drawn) + shift) for shift in shifts]

    backend = "aot_eager" if training else "eager"
    assert_equivalent(lambda: program, calls, training=training, backend=backend)
