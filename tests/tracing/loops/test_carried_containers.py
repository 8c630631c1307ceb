"""Tuples, named tuples, lists and dictionaries that a loop carries from turn to turn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call


class State(NamedTuple):
    h: Tensor
    c: Tensor


class Cell(nn.Module):
    """A recurrent cell with a state of two tensors; `body` is what is done with it."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.body = body
        self.last: Any = None

    def step(self, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        return torch.tanh(self.first(h) + c), c * 0.9 + self.second(h) * 0.1

    def forward(self, x: Tensor) -> Any:
        return self.body(self, x)


def inputs() -> list[Call]:
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    return [call(x), call(x * 0 + 0.3), call(x * 3), call(torch.full((2, 3), 9.0))]


def _tuple(cell: Cell, x: Tensor) -> Any:
    state = x, x * 0
    for _ in range(30):
        state = cell.step(state)
        if state[0].abs().max() < 0.3:
            break
    return state[0] + state[1], state


def _named(cell: Cell, x: Tensor) -> Any:
    state = State(x, x * 0)
    for _ in range(30):
        state = State(*cell.step(state))
        if state.h.abs().max() < 0.3:
            break
    return state.h + state.c


def _nested(cell: Cell, x: Tensor) -> Any:
    state = ((x, x * 0), 0)
    while state[0][0].abs().max() > 0.3 and state[1] < 25:
        state = (cell.step(state[0]), state[1] + 1)
    return state[0][1], state[1]


def _swapped(cell: Cell, x: Tensor) -> Any:
    low, high = (x - 1, x + 1), (x + 2, x * 0)
    for _ in range(30):
        if low[0].sum() > high[0].sum():
            low, high = high, low
        low = cell.step(low)
        if low[0].abs().max() < 0.1:
            break
    return low[0], high[1]


def _dictionary(cell: Cell, x: Tensor) -> Any:
    state, turns = {"h": x, "c": x * 0}, 0
    while state["h"].abs().max() > 0.3 and turns < 30:
        h, c = cell.step((state["h"], state["c"]))
        state = {"h": h, "c": c}
        turns += 1
    return state["h"], turns


def _list(cell: Cell, x: Tensor) -> Any:
    states = [x, x * 0]
    for _ in range(30):
        states = [torch.tanh(cell.first(each)) for each in states]
        if states[0].abs().max() < 0.3:
            break
    states.append(x)
    return states


def _list_of_another_name(cell: Cell, x: Tensor) -> Any:
    states = [x, x * 0]
    for _ in range(30):
        new = []
        for each in states:
            new.append(torch.tanh(cell.first(each)))
        states[0] = new[1]
        states = new
        if states[0].abs().max() < 0.3:
            break
    return states


def _best(cell: Cell, x: Tensor) -> Any:
    best, score = None, torch.tensor(-math.inf)
    for _ in range(20):
        x = torch.tanh(cell.first(x))
        if x.sum() > score:
            score, best = x.sum(), (x, x * 2)
    return x if best is None else best[0] + best[1]


def _best_of_numbers(cell: Cell, x: Tensor) -> Any:
    best, score = None, -1.0
    for turn in range(20):
        x = torch.tanh(cell.first(x))
        value = x.sum().item()
        if value > score:
            score, best = value, (x, turn, value)
    return x if best is None else (best[0] * best[2], best[1])


BODIES = [_tuple, _named, _nested, _swapped, _dictionary, _list, _list_of_another_name, _best]
BODIES += [_best_of_numbers]
#: Those that return an older tensor after no turn, or one of two.
COPIED = [_swapped, _dictionary, _best, _best_of_numbers]


def _name(body: Callable[..., Any]) -> str:
    return body.__name__


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=_name)
def test_a_container_is_carried(body: Callable[..., Any], training: bool) -> None:
    assert_equivalent(
        lambda: Cell(body),
        inputs,
        training=training,
        may_copy=body in COPIED,
        zero_gradients=body is _dictionary,  # what no turn has used
    )


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("body", [_tuple, _dictionary, _best_of_numbers], ids=_name)
def test_a_container_is_carried_with_other_back_ends(
    body: Callable[..., Any], training: bool, backend: str
) -> None:
    def make() -> Cell:
        return Cell(body).double()

    def doubles() -> list[Call]:
        return [call(each.arguments[0].double()) for each in inputs()]

    assert_equivalent(
        make,
        doubles,
        training=training,
        backend=backend,
        may_copy=body in COPIED,
        zero_gradients=body is _dictionary,
    )


def _ransac(points: Tensor) -> Any:
    best, most, turns, turn = None, 0, 50, 0
    while turn < turns and turn < 30:
        one, other = points[torch.randperm(points.shape[0])[:2]]
        along = other - one
        distance = ((points - one) @ torch.stack([-along[1], along[0]])).abs()
        count = (distance < 0.3 * along.norm()).sum().item()
        if count > most:
            most, best = count, (one, along)
            part = count / points.shape[0]
            rest = max(1e-9, 1 - part * part)
            turns = min(turns, int(math.log(0.01) / math.log(rest + 1e-12)) + 1)
        turn += 1
    return None if best is None else (best[0], best[1], most, turn)


def test_a_pair_that_is_none_at_first() -> None:
    def clouds() -> list[Call]:
        line = torch.stack([torch.arange(12.0), torch.arange(12.0) * 2], 1)
        others = torch.linspace(-9, 9, 8).reshape(4, 2)
        return [call(torch.cat([line, others])), call(torch.linspace(-1, 1, 32).reshape(16, 2))]

    assert_equivalent(lambda: _ransac, clouds)


# What else may hold a container


def _has_another_name(cell: Cell, x: Tensor) -> Any:
    state, turns = {"h": x, "c": x * 0}, 0
    first = state
    while state["h"].abs().max() > 0.3 and turns < 30:
        h, c = cell.step((state["h"], state["c"]))
        state = {"h": h, "c": c}
        turns += 1
    first["h"] = x + 7
    return state["h"], first["h"], turns


def _is_stored(cell: Cell, x: Tensor) -> Any:
    state, turns = {"h": x, "c": x * 0}, 0
    while state["h"].abs().max() > 0.3 and turns < 30:
        h, c = cell.step((state["h"], state["c"]))
        state = {"h": h, "c": c}
        turns += 1
        cell.last = state
    state["h"] = x + 7
    return state["h"], turns


def _is_the_callers(cell: Cell, x: Tensor) -> Any:
    def go(state: dict[str, Tensor]) -> dict[str, Tensor]:
        turns = 0
        while state["h"].abs().max() > 0.3 and turns < 30:
            h, c = cell.step((state["h"], state["c"]))
            state = {"h": h, "c": c}
            turns += 1
        return state

    state = {"h": x, "c": x * 0}
    found = go(state)
    found["c"] = x + 3
    return found, state


def _is_in_another(cell: Cell, x: Tensor) -> Any:
    states = [x, x * 0]
    all_states = (states, 1)
    for _ in range(30):
        states = [torch.tanh(cell.first(each)) for each in states]
        if states[0].abs().max() < 0.3:
            break
    all_states[0].append(x)
    return states, all_states


def _grows(cell: Cell, x: Tensor) -> Any:
    states = [x]
    for _ in range(20):
        states = [*states, torch.tanh(cell.first(states[-1]))]
        if states[-1].abs().max() < 0.3:
            break
    return torch.stack(states)


def _of_another_kind(cell: Cell, x: Tensor) -> Any:
    state: Any = x, x * 0
    for turn in range(12):
        state = cell.step(state) if turn % 2 else State(*cell.step(state))
        if state[0].abs().max() < 0.3:
            break
    return state[0], type(state).__name__


def _with_other_keys(cell: Cell, x: Tensor) -> Any:
    state = {"h": x, "c": x * 0}
    for _ in range(12):
        h, c = cell.step((state["h"], state["c"]))
        state = {"c": c, "h": h} if len(state) == 2 else {"h": h, "c": c, "n": c}
        if h.abs().max() < 0.3:
            break
    return list(state), state["h"]


HELD = [_has_another_name, _is_stored, _is_the_callers, _is_in_another, _grows, _of_another_kind]
HELD += [_with_other_keys]


@pytest.mark.parametrize("body", HELD, ids=_name)
def test_other_containers_are_right_in_any_number_of_graphs(body: Callable[..., Any]) -> None:
    assert_equivalent(
        lambda: Cell(body), inputs, fullgraph=False, graphs=None, recompiles=None, may_copy=True
    )
