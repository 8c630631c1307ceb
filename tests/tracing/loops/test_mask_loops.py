"""Loops over the numbers of a mask: an iteration for each that there may be, under a branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call, fresh

_MASKS = ([1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0])


def _masked() -> list[Any]:
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 4.0], [2.0, 0.25]])
    return [call(x.clone(), torch.tensor(mask)) for mask in _MASKS]


def _of_a_list(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for number in mask.nonzero(as_tuple=True)[0].tolist():
        y = y * 2 + x[number] * number
    return y


def _of_where(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for number in torch.where(mask)[0].tolist():
        y = y * 2 + x[number]
    return y


def _of_a_column(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for number in mask.nonzero()[:, 0].cpu().tolist():
        y = y * 2 + x[number]
    return y


def _of_rows(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for row in torch.nonzero(mask > 0):
        y = y * 2 + x[row] * row
    return y


def _of_tensors_without_dimension(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for number in mask.nonzero().squeeze(-1):
        y = y * 2 + x[number] * number
    return y


def _that_reads_the_number(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for row in mask.nonzero():
        if row.item() > 1:
            y = y + x[int(row[0])] * float(row)
    return y


def _that_writes_by_the_number(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for row in mask.nonzero():
        y[row[0], 1] = row[0] * 2.0
    return y


def _that_goes_on(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for number in mask.nonzero().flatten().tolist():
        if number == 2:
            continue
        y = y + x[number]
    return y


def _one_after_the_other(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for number in mask.nonzero().flatten().tolist():
        y = y + x[number]
    for number in (mask == 0).nonzero().flatten().tolist():
        y = y * (number + 2)
    return y


def _one_in_another(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    for number in mask.nonzero().flatten().tolist():
        for other in mask[:2].nonzero().flatten().tolist():
            y = y * 2 + number - other
    return y


def _in_a_function_called(x: Tensor, mask: Tensor) -> Tensor:
    return _of_a_list(x, mask) + 1


PROGRAMS = [
    _of_a_list,
    _of_where,
    _of_a_column,
    _of_rows,
    _of_tensors_without_dimension,
    _that_reads_the_number,
    _that_writes_by_the_number,
    _that_goes_on,
    _one_after_the_other,
    _one_in_another,
    _in_a_function_called,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_loop_is_one_graph(program: Callable[..., Any], fullgraph: bool) -> None:
    found = assert_equivalent(lambda: fresh(program), _masked, fullgraph=fullgraph)
    assert found.report is not None
    # A branch on a number that is known in each iteration is none, and stays planned.
    statuses = {site.status for site in found.report.sites}
    assert "mended" in statuses <= {"mended", "planned"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_a_loop_has_gradients(program: Callable[..., Any]) -> None:
    assert_equivalent(lambda: fresh(program), _masked, backend="aot_eager", training=True)


def _appends(x: Tensor, mask: Tensor) -> Tensor:
    found = [x[0]]
    for number in mask.nonzero().flatten().tolist():
        found.append(x[number])
    return torch.stack(found)


def _over_a_comprehension(x: Tensor, mask: Tensor) -> Tensor:
    return x * sum([number for number in mask.nonzero().flatten().tolist()])  # noqa: C416


def _by_an_iterator_of_its_own(x: Tensor, mask: Tensor) -> Tensor:
    numbers = iter(mask.nonzero().flatten().tolist())
    for number in numbers:
        x = x + number
        for other in numbers:
            x = x * other
    return x * 1


def _changed_before_the_loop(x: Tensor, mask: Tensor) -> Tensor:
    numbers = mask.nonzero().flatten()
    numbers.add_(1).remainder_(4)
    for number in numbers.tolist():
        x = x * 2 + number
    return x * 1


def _of_a_matrix(x: Tensor, mask: Tensor) -> Tensor:
    for row in (x > 0).nonzero():
        x = x + row[0] * mask[row[0]]
    return x * 1


def _squeezed(x: Tensor, mask: Tensor) -> Tensor:
    numbers = mask.nonzero().squeeze()
    return x + numbers.tolist() if numbers.dim() == 0 else x * 2


@pytest.mark.parametrize(
    "program",
    [
        _appends,
        _over_a_comprehension,
        _by_an_iterator_of_its_own,
        _changed_before_the_loop,
        _of_a_matrix,
        _squeezed,
    ],
    ids=lambda each: each.__name__,
)
def test_what_has_no_form_is_left_as_it_was(program: Callable[..., Any]) -> None:
    assert_equivalent(
        lambda: fresh(program), _masked, fullgraph=False, graphs=None, recompiles=None
    )


def test_no_branch_is_made_for_each_item_of_a_mask_of_many() -> None:
    def inputs() -> list[Any]:
        masks = (torch.arange(100) % 50 == 0, torch.arange(100) < 0)
        return [call(torch.ones(100, 2), mask) for mask in masks]

    found = assert_equivalent(
        lambda: fresh(_of_a_list), inputs, fullgraph=False, graphs=None, recompiles=None
    )
    assert found.report is not None
    assert [each.lowering for each in found.report.mended] == ["ahead"]
