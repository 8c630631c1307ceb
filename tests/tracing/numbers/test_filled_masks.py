"""Masks that select something where a condition says so: one graph, equal to eager execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.equivalence import Call, assert_equivalent, call, fresh
from tests.samples import in_turn, name_of

Program = Callable[..., Any]


def _any(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.any():
        return functional.cross_entropy(x[mask], targets[mask])
    return x.sum() * 0


def _none(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.sum() == 0:
        return x.sum() * 0
    return functional.cross_entropy(x[mask], targets[mask])


def _not_any(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if not torch.any(mask):
        return x.mean()
    return functional.nll_loss(x[mask].log_softmax(-1), targets[mask])


def _two_at_least(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if 2 <= mask.sum():
        return functional.cross_entropy(x[mask], targets[mask])
    return x.amax()


def _neither(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if (~mask.any()) | (x.sum() > 1e9):
        return x.mean()
    return functional.cross_entropy(x[mask], targets[mask])


def _as_numbers(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.float().sum() > 0:
        return functional.cross_entropy(x[mask], targets[mask])
    return x.sum() * 0


def _share(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.to(torch.float64).mean() <= 0:
        return x.sum() * 0
    return functional.cross_entropy(x[mask], targets[mask])


def _share_of_some(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.long().float().mean() >= 0.3:
        return functional.cross_entropy(x[mask], targets[mask])
    return x.mean()


def _computed(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    valid = mask & (targets != 1)
    if torch.count_nonzero(valid) > 0:
        return functional.cross_entropy(x[valid], targets[valid])
    return x.sum() * 0


def _computed_again(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if ((x[:, 0] > -9) & mask).any():
        least = x[(x[:, 0] > -9) & mask].amin(0)
        return least.sum() + x.sum()
    return x.sum() * 0


def _computed_of_something_else(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if (targets * mask > 0).any():
        return x[targets * mask > 1].amin(0).sum() if (targets * mask > 1).any() else x.sum()
    return x[targets * mask > 0].sum()


def _changed_before_it_is_computed_again(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    y = x.clone()
    large = y[:, 0] > 50
    y.add_(100)
    if (y[:, 0] > 50).any():
        return x * 2 if x[large].shape[0] > 0 else x * 3
    return x * 4


def _changed_in_the_arm(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    y = x.clone()
    if (y[:, 0] > -50).any():
        y.sub_(100)
        return x * 2 if x[y[:, 0] > -50].shape[0] > 0 else x * 3
    return x * 4


def _other_mask(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    other = ~mask
    if mask.any():
        return functional.cross_entropy(x[other], targets[other])
    return x.sum() * 0


def _emptied_in_the_arm(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    mask = mask.clone()
    if mask.any():
        mask.zero_()
        return functional.cross_entropy(x[mask], targets[mask], reduction="sum")
    return x.sum() * 0


def _emptied_before(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    mask = mask.clone()
    some = mask.any()
    mask.logical_and_(x[:, 0] > 1e9)
    if some:
        return functional.cross_entropy(x[mask], targets[mask], reduction="sum")
    return x.sum() * 0


def _empty_in_the_other_arm(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.any():
        return x[mask].sum()
    return functional.cross_entropy(x[mask], targets[mask], reduction="sum") + x.sum()


def _first_rows(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.any():
        count = int(mask.sum())
        x = x[:count].square().mean() + x[count:].sin().sum()
    return x.sum()


def _compared(x: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    if mask.any():
        rows = x[mask].tanh()
        return ((rows @ rows.mT).softmax(-1) @ rows).sum()
    return x.sum() * 0


WHOLE = (
    *(_any, _none, _not_any, _two_at_least, _computed, _computed_again, _first_rows, _compared),
    *(_as_numbers, _share, _share_of_some),
)
OTHERS = (
    _computed_of_something_else,
    _changed_before_it_is_computed_again,
    _changed_in_the_arm,
    _neither,
    _other_mask,
    _emptied_in_the_arm,
    _emptied_before,
    _empty_in_the_other_arm,
)


def _calls() -> Iterator[Call]:
    torch.manual_seed(0)
    for chosen in ([1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]):
        x, targets = torch.randn(4, 3), torch.tensor([2, 1, 0, 1])
        yield call(x, targets, torch.tensor(chosen, dtype=torch.bool))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("program", "backend"), in_turn(WHOLE, ["eager", "aot_eager"], name_of))
def test_a_loss_over_what_a_mask_selects(program: Program, backend: str, training: bool) -> None:
    assert_equivalent(lambda: fresh(program), _calls, backend=backend, training=training)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", OTHERS)
def test_what_is_not_known_of_a_mask_is_not_taken_for_granted(
    program: Program, backend: str
) -> None:
    assert_equivalent(
        lambda: fresh(program),
        _calls,
        backend=backend,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


def _sampled(x: Tensor, count: int) -> Tensor:
    found = len(x)
    if found >= count:
        return x[torch.randperm(found)[:count]]
    return x[torch.randint(0, found, (count,))]


def _replaced_in_place(x: Tensor, targets: Tensor, mask: Tensor, form: str = "exact") -> Tensor:
    y = x.detach() * 1
    if not mask.any():
        return x * y
    count = mask.sum(dtype=torch.int8) if form == "few bits" else mask.sum()
    if form == "changed":
        count.add_(2)
    if form == "changed uncounted":
        count.data.add_(2)
    new = _sampled(torch.cat([y, y * 2])[: 5 if form.startswith("changed") else 8], count.item())
    if form.startswith("changed"):
        return x * new.sum()
    y[mask] = new
    return x * y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_as_many_rows_are_drawn_as_a_mask_selects(backend: str) -> None:
    assert_equivalent(lambda: fresh(_replaced_in_place), _calls, backend=backend, training=True)


@pytest.mark.parametrize("form", ["few bits", "changed", "changed uncounted"])
def test_a_number_that_is_no_count_has_no_bounds(form: str) -> None:
    def calls() -> Iterator[Call]:
        for each in _calls():
            yield call(*each.arguments, form=form)

    assert_equivalent(
        lambda: fresh(_replaced_in_place), calls, fullgraph=False, graphs=None, recompiles=None
    )


def test_inductor_computes_a_backward_of_rows_up_to_a_count() -> None:
    assert_equivalent(lambda: fresh(_first_rows), _calls, backend="inductor", training=True)


@pytest.mark.slow
@pytest.mark.parametrize("program", WHOLE)
def test_with_inductor(program: Program) -> None:
    assert_equivalent(lambda: fresh(program), _calls, backend="inductor", training=True)
