"""Runs of items with equal keys: ``itertools.groupby`` in Python is what it is in C."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bcmend.knowledge.item_groups import ItemGroups
from tests.equivalence import assert_equivalent, call, fresh

Groups = Callable[..., Iterator[Any]]


def _taken(groups: Groups, items: list[int], steps: list[tuple[bool, int]]) -> list[Any]:
    """Return what is found by steps: the next run, or an item of one of those so far."""
    found: list[Any] = []
    runs: list[Iterator[Any]] = []
    iterator = groups(items, lambda each: each // 2)
    for is_run, place in steps:
        try:
            if is_run or not runs:
                key, run = next(iterator)
                runs.append(run)
                found.append(key)
            else:
                found.append(next(runs[place % len(runs)]))
        except StopIteration:
            found.append("end")
    return found


@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40),
)
def test_any_order_of_steps(items: list[int], steps: list[tuple[bool, int]]) -> None:
    assert _taken(ItemGroups, items, steps) == _taken(itertools.groupby, items, steps)


@given(st.lists(st.sampled_from([0, 0.0, True, "a", None, (1, 2)]), max_size=12))
def test_keys_of_all_kinds(items: list[Any]) -> None:
    found, wanted = (
        [(key, list(run)) for key, run in groups(items)]
        for groups in (ItemGroups, itertools.groupby)
    )
    assert [(type(key), key, run) for key, run in found] == [
        (type(key), key, run) for key, run in wanted
    ]


def test_a_key_is_equal_to_itself() -> None:
    items = [*[float("nan")] * 3, float("nan")]
    found, wanted = (
        [len(list(run)) for _, run in groups(items)] for groups in (ItemGroups, itertools.groupby)
    )
    assert found == wanted == [3, 1]


def _of_tokens(x: Tensor, types: Tensor) -> Tensor:
    parts = []
    for key, run in itertools.groupby(enumerate(types.tolist()), lambda pair: pair[1]):
        places = list(run)
        part = x[places[0][0] : places[-1][0] + 1]
        parts.append(part.sum(0) if key == 0 else part.amax(0))
    return torch.stack(parts)


def _by_a_keyword(x: Tensor, types: Tensor) -> Tensor:
    lengths = [
        sum(1 for _ in run)
        for _, run in itertools.groupby(types.tolist(), key=lambda each: each > 0)
    ]
    return torch.stack([each.mean() for each in x.split(lengths)])


def _late(x: Tensor, types: Tensor) -> tuple[Tensor, list[Any]]:
    runs = list(itertools.groupby(types.tolist()))
    return x * len(runs), [(key, list(run)) for key, run in runs]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("program", [_of_tokens, _by_a_keyword, _late])
def test_runs_of_items(program: Callable[..., Any], fullgraph: bool) -> None:
    layouts = [[0, 0, 1, 1, 0], [1, 1, 1, 0, 2], [0], [2, 2, 0]]
    calls = [(torch.randn(len(each), 3), torch.tensor(each)) for each in layouts]
    found = assert_equivalent(
        lambda: fresh(program),
        lambda: [call(*(part.clone() for part in each)) for each in calls],
        fullgraph=fullgraph,
        graphs=None,
        recompiles=None,
    )
    assert found.graphs <= len(calls)
