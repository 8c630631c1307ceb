"""What a size is compared with is computed in front of the graph where no graph has both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[..., Any]

_SOME, _OTHERS, _ONE, _NONE = ([1, 2], [0, 1, 3], [2], [])


def _calls(*chosen: Sequence[int]) -> Callable[[], list[Call]]:
    """Return calls with masks that select the rows of some numbers, of four."""
    x = torch.arange(12.0).reshape(4, 3)
    masks = [torch.tensor([each in rows for each in range(4)]) for rows in chosen]
    return lambda: [call(x.clone(), each.clone()) for each in masks]


def _first_row(x: Tensor, mask: Tensor) -> Tensor:
    chosen = torch.where(mask)[0]
    if len(chosen) == 0:
        return x
    return x[chosen[0]]


def _rows_from_the_first(x: Tensor, mask: Tensor) -> Tensor:
    chosen = mask.nonzero()
    if len(chosen) == 0:
        return x
    return x[chosen[0, 0] :]


def _rows_in_between(x: Tensor, mask: Tensor) -> Tensor:
    chosen = torch.where(mask)[0]
    if not chosen.shape[0] > 1:
        return x * 2
    return x[chosen[0] : chosen[-1]]


def _what_is_chosen(x: Tensor, mask: Tensor) -> Tensor:
    chosen = torch.where(mask)[0]
    if chosen.numel():
        return x[chosen]
    return x


PROGRAMS = [_first_row, _rows_from_the_first, _rows_in_between, _what_is_chosen]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("first", [_SOME, _NONE])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_mask_that_may_select_nothing(
    program: Program, first: Sequence[int], fullgraph: bool
) -> None:
    calls = _calls(first, _NONE, _OTHERS, _ONE, _SOME, _NONE)
    how: dict[str, Any] = {"fullgraph": fullgraph, "may_copy": program is _first_row}
    assert_equivalent(lambda: fresh(program), calls, graphs=None, recompiles=None, **how)


@pytest.mark.parametrize("program", [_first_row, _rows_in_between])
def test_with_inductor(program: Program) -> None:
    calls = _calls(_SOME, _NONE, _OTHERS)
    how: dict[str, Any] = {"fullgraph": True, "backend": "inductor", "may_copy": True}
    assert_equivalent(lambda: fresh(program), calls, graphs=None, recompiles=None, **how)


def test_each_truth_is_a_variant_and_not_each_size() -> None:
    calls = _calls([1, 2], _NONE, [1, 2, 3], [1])
    program = fresh(_rows_from_the_first)
    assert_equivalent(lambda: program, calls, graphs=2, recompiles=None)


def test_a_view_that_begins_where_the_data_say_is_merged() -> None:
    calls = _calls(_SOME, _NONE, _OTHERS, _ONE)
    assert_equivalent(lambda: fresh(_first_row), calls, graphs=1, may_copy=True)


def test_a_size_that_a_graph_can_be_asked_about_stays_in_it() -> None:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        chosen = torch.where(mask)[0]
        if len(chosen) > 1:
            return x + 1
        return x - 1

    assert_equivalent(lambda: fresh(program), _calls(_SOME, _NONE, _ONE))


def _spread(x: Tensor, group: Tensor) -> Tensor:
    counts = torch.bincount(group)
    sums = x.new_zeros(int(group[-1].item()) + 1, 3).index_add(0, group, x)
    return x - torch.repeat_interleave(sums, counts, dim=0)


def _mean_of_the_chosen(x: Tensor, mask: Tensor, given: Tensor) -> Tensor:
    return x[mask] * given


def _groups(*sizes: Sequence[int]) -> Callable[[], list[Call]]:
    groups = [torch.repeat_interleave(torch.tensor(each)) for each in sizes]
    return lambda: [call(torch.ones(len(each), 3), each.clone()) for each in groups]


def _with_given(*chosen: Sequence[int]) -> Callable[[], list[Call]]:
    calls = _calls(*chosen)
    given = [torch.arange(len(each) * 3.0).reshape(len(each), 3) for each in chosen]
    return lambda: [
        call(*each.arguments, more.clone()) for each, more in zip(calls(), given, strict=True)
    ]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    ("program", "calls", "graphs"),
    [
        (_spread, _groups([2, 3], [4, 1, 2], [1, 2, 3, 4], [3, 2, 2]), 2),
        (_mean_of_the_chosen, _with_given([0, 1], [1, 2, 3], [0, 1, 2, 3], [0, 3]), 2),
    ],
)
def test_sizes_that_have_to_be_the_same(
    program: Program, calls: Callable[[], list[Call]], graphs: int, fullgraph: bool
) -> None:
    how: dict[str, Any] = {"graphs": graphs, "recompiles": 1, "fullgraph": fullgraph}
    assert_equivalent(lambda: fresh(program), calls, **how)


def test_sizes_that_are_not_the_same_raise_as_they_do() -> None:
    calls = lambda: [*_with_given([0, 1], [1, 2, 3])(), _wrong()]  # noqa: E731
    assert_equivalent(lambda: fresh(_mean_of_the_chosen), calls, graphs=None, recompiles=None)


def _wrong() -> Call:
    (made,) = _with_given([0, 1, 3])()
    x, mask, given = made.arguments
    return call(x, mask, given[:2])


def _part_for_each_label(x: Tensor, mask: Tensor) -> list[Tensor]:
    labels, places = mask.long().unique(return_inverse=True)
    parts = [x[places == at] for at in range(len(labels))]
    return [each.mean(0) for each in parts]


def _parts_by_name(x: Tensor, mask: Tensor) -> dict[int, Tensor]:
    labels, _, counts = torch.unique_consecutive(mask, return_inverse=True, return_counts=True)
    return {at: x[: counts[at]] * labels[at] for at in range(labels.shape[0])}


def _rows_chosen(x: Tensor, mask: Tensor) -> list[Tensor]:
    (chosen,) = mask.nonzero(as_tuple=True)
    return [x[chosen[at]] for at in range(chosen.size(0))]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("program", [_part_for_each_label, _parts_by_name, _rows_chosen])
def test_how_often_a_comprehension_goes_round(program: Program, fullgraph: bool) -> None:
    calls = _calls(_SOME, _OTHERS, _ONE, _NONE, _SOME)
    assert_equivalent(
        lambda: fresh(program), calls, graphs=None, recompiles=None, fullgraph=fullgraph
    )


def test_how_often_a_comprehension_goes_round_in_training() -> None:
    def calls() -> list[Call]:
        masks = ([True, False, True, True], [True] * 4, [False, True, True, True])
        rows = torch.arange(12.0).reshape(4, 3)
        return [call(rows.clone().requires_grad_(), torch.tensor(each)) for each in masks]

    assert_equivalent(
        lambda: fresh(_part_for_each_label), calls, graphs=None, recompiles=None, training=True
    )
