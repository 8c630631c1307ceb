"""Rows that a mask selects in an arm, beside a side that leaves all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import assert_equivalent, call

Program = Callable[[Tensor], Any]


def any_kept(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if keep.any():
        b = b[keep]
    return b * 2


def as_many_as_there_are(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if keep.sum().item() != len(b):
        b = b[keep]
    return b * 2


def several_by_one_mask(b: Tensor) -> Any:
    scores, labels = b.sigmoid().max(1)
    keep = scores > 0.6
    if keep.sum() > 1:
        b, scores, labels = b[keep], scores[keep], labels[keep]
    return b * scores[:, None], labels


def other_side_computes(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if keep.any():
        b = b[keep].relu() + 1
    else:
        b = b - 1
    return b.sum(0), len(b)


def selected_otherwise(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if not keep.any():
        b = b + 1
    else:
        b = b[keep]
    return b


def twice(b: Tensor) -> Any:
    for column in (2, 1):
        keep = b[:, column] > 0
        if keep.any():
            b = b[keep]
    return b[:2]


def nested(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if b.sum() > 0:
        b = b * 2
        if keep.any():
            b = b[keep]
    return b + 1


def mask_of_the_arm(b: Tensor) -> Any:
    if b.sum() > 0:
        keep = b[:, 1] > 0
        keep[0] = True
        b = b[keep]
    return b * 2


def columns(b: Tensor) -> Any:
    keep = b.sum(0) > 0
    if keep.any():
        b = b[:, keep]
    return b * 2


def by_places(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if keep.any():
        b = b[keep.nonzero().squeeze(1)]
    return b * 2


def by_where(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if keep.any():
        b = b[torch.where(keep)[0]]
    return b * 2


def masked_select(b: Tensor) -> Any:
    b = b[:, 0] * 1
    keep = b > 0.1
    if keep.any():
        b = b.masked_select(keep)
    return b * 2


def in_a_dictionary(b: Tensor) -> Any:
    found = {"boxes": b * 1, "scores": b[:, 0] * 1}
    keep = b[:, 2] > 0.1
    if keep.any():
        for name in found:
            found[name] = found[name][keep]
    return found


def with_output(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    if keep.any():
        b = b[keep]
        print("kept", b.shape[0], keep.sum().item())
    return b * 2


def changed_behind(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    kept = b[keep] if keep.any() else b.clone()
    kept.add_(1)
    return kept, b


def with_rows_from_before(b: Tensor) -> Any:
    b = b * 1
    keep = b[:, 2] > 0.1
    rows, found = b[keep], b
    if b.sum() > 0:
        found = rows + b[keep] * 2
    return found


PROGRAMS = [
    *(any_kept, as_many_as_there_are, several_by_one_mask, other_side_computes),
    *(selected_otherwise, twice, nested, mask_of_the_arm, columns, by_places, by_where),
    *(masked_select, in_a_dictionary, with_output, changed_behind, with_rows_from_before),
]


def _calls(count: int = 5) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(count, 4, generator=generator) for _ in range(4)]
    ones = torch.ones(count, 4)
    return [call(each) for each in (*drawn, ones * 3, -ones, drawn[0] * 2)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_what_is_selected_is_one_graph(program: Program, backend: str, fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _calls, backend=backend, fullgraph=fullgraph, may_copy=True)


class Detection(nn.Module):
    """Selects behind a layer, whose gradients are those of what was selected."""

    def __init__(self, select: Program) -> None:
        super().__init__()
        self.layer, self.select = nn.Linear(4, 4), select

    def forward(self, x: Tensor) -> Any:
        return self.select(self.layer(x))


@pytest.mark.parametrize(
    "program",
    [any_kept, as_many_as_there_are, several_by_one_mask, nested, by_places, changed_behind],
    ids=lambda each: each.__name__,
)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients_flow_to_what_was_selected(program: Program, backend: str) -> None:
    assert_equivalent(
        lambda: Detection(program), _calls, backend=backend, training=True, may_copy=True
    )


def test_the_branch_is_a_select() -> None:
    compiled = torch.compile(bcmend.patch(any_kept), backend="eager", fullgraph=True)
    compiled(torch.randn(5, 4))
    (site,) = bcmend.report(any_kept).sites
    bcmend.unpatch()
    assert (site.status, site.lowering) == ("mended", "where")


def mask_of_two_dimensions(b: Tensor) -> Any:
    keep = b > 0.1
    return b[keep] if keep.any() else b.flatten()


def of_other_strides(b: Tensor) -> Any:
    b = b.t()
    keep = b[0] > 0.1
    return b[:, keep] if keep.any() else b


def selected_on_both_sides(b: Tensor) -> Any:
    return b[b[:, 0] > 0] if b.sum() > 0 else b[b[:, 1] > 0]


def stored_and_selected(b: Tensor) -> Any:
    b = b * 1
    keep = b[:, 2] > 0.1
    if keep.any():
        b[keep] = b[keep] * 2
        b = b[keep]
    return b


def columns_stored_and_selected(b: Tensor) -> Any:
    b = b * 1
    keep = b.sum(0) > 0
    if keep.any():
        b[:, keep] = b[:, keep] * 2
        b = b[:, keep]
    return b


def none_of_them(b: Tensor) -> Any:
    keep = b[:, 2] > 0.1
    return b[keep] if keep.sum() > 1 else b[:0]


@pytest.mark.parametrize(
    "program",
    [
        *(mask_of_two_dimensions, of_other_strides, selected_on_both_sides),
        *(stored_and_selected, columns_stored_and_selected, none_of_them),
    ],
    ids=lambda each: each.__name__,
)
def test_what_has_no_one_size_is_equal_in_as_many_graphs_as_it_takes(program: Program) -> None:
    assert_equivalent(
        lambda: program,
        _calls,
        fullgraph=False,
        graphs=None,
        recompiles=None,
        may_copy=True,
    )


def test_a_store_by_a_mask_of_columns_is_looked_at_once() -> None:
    compiled = torch.compile(bcmend.patch(columns_stored_and_selected), backend="eager")
    compiled(torch.ones(5, 4))
    told = str(bcmend.report(columns_stored_and_selected))
    bcmend.unpatch()
    assert "too-deep" not in told and "branch" in told
