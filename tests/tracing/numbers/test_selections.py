"""Branches on whether anything is selected, whose sides a graph cannot both have."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from bcmend.tracing.numbers import filled_masks
from tests.equivalence import assert_equivalent, call

#: Sizes are asked for alone: which trace it is does not matter.
ANYWHERE: Any = None


class Reduced(nn.Module):
    """Has a function of its own for what is selected, and another where nothing is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.last = nn.Linear(3, 3), "no call"
        self.register_buffer("count", torch.zeros(()))

    def losses(self, h: Tensor) -> dict[str, Any]:
        chosen = (h[:, 0] > 0).nonzero()[:, 0]
        if len(chosen) == 0:
            self.last = "nothing"
            return {"kind": "nothing", "losses": 0, "indices": None}
        drawn = torch.rand(len(chosen))
        return {"kind": "each", "losses": h[chosen].exp().sum(1) + drawn, "indices": chosen}

    def nothing(self, losses: int, indices: None) -> Tensor:
        return losses * torch.zeros(())

    def each(self, losses: Tensor, indices: Tensor) -> Tensor:
        if len(losses) != len(indices):
            raise ValueError("sizes")
        large = (losses > 5).sum()
        return losses[losses > 5].mean() if large >= 1 else losses.sum() * 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        print("mean", round(x.mean().item(), 2))
        found = self.losses(self.layer(x))
        result = getattr(self, found["kind"])(found["losses"], found["indices"])
        print("loss", round(result.item(), 2))
        return result


class Counted(Reduced):
    """Asks how many items of a mask are true."""

    def losses(self, h: Tensor) -> dict[str, Any]:
        mask = h[:, 0] > 0
        if mask.sum() == 0:
            self.last = "nothing"
            return {"kind": "nothing", "losses": 0, "indices": None}
        drawn = torch.rand(len(mask))
        return {"kind": "each", "losses": (h.exp().sum(1) + drawn) * mask, "indices": mask}


class CountedByANumber(Reduced):
    """Takes the number of items of a mask that are true out of its tensor."""

    def losses(self, h: Tensor) -> dict[str, Any]:
        mask = h[:, 0] > 0
        if mask.sum().item() < 1:
            self.last = "nothing"
            return {"kind": "nothing", "losses": 0, "indices": None}
        return {"kind": "each", "losses": h.exp().sum(1) * mask, "indices": mask}


def _given() -> list[Any]:
    torch.manual_seed(1)
    some = [torch.randn(4, 3) for _ in range(3)]
    return [call(each) for each in (some[0], torch.full((4, 3), 9.0), *some[1:], some[0] * 0)]


def test_one_call_of_these_selects_nothing() -> None:
    layer = Reduced().layer
    counts = [(layer(each.arguments[0])[:, 0] > 0).sum().item() for each in _given()]
    assert counts[1] == 0 and counts.count(0) == 1


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [Reduced, Counted, CountedByANumber])
def test_a_side_with_nothing_is_left_to_plain_python(
    make: type[nn.Module], backend: str, training: bool
) -> None:
    """Draws, output, a buffer and an attribute are as if the graph had not run."""
    found = assert_equivalent(make, _given, backend=backend, training=training)
    (site,) = (each for each in found.report.sites if each.lowering == "guard")
    assert site.detail == "where nothing is selected the call is made in plain Python"


@pytest.mark.parametrize("training", [False, True])
def test_the_first_call_may_select_nothing(training: bool) -> None:
    assert_equivalent(Reduced, lambda: _given()[1:], training=training)


def test_where_breaks_are_allowed_both_sides_are_compiled_then() -> None:
    """As of an arm that has not failed: stock torch would compile both."""
    assert_equivalent(Reduced, _given, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda n: n == 0, True),
        (lambda n: n < 2, True),
        (lambda n: n > 0, False),
        (lambda n: n >= 1, False),
        (lambda n: 2 * n != 0, False),
        (lambda n: n > 100, None),  # nothing gives up early there
        (lambda n: n % 2 == 0, None),
        (lambda n: n - 5 == 0, None),
        (lambda n: n >= 0, None),
    ],
)
def test_which_side_has_nothing(condition: Callable[[Any], Any], expected: bool | None) -> None:
    number = ShapeEnv().create_unbacked_symint()
    torch._check(number >= 0)
    asked = SimpleNamespace(sym_num=condition(number))
    assert filled_masks.truth_if_empty(ANYWHERE, asked) is expected


def test_a_number_that_may_be_negative_is_none_of_items() -> None:
    number = ShapeEnv().create_unbacked_symint()
    assert filled_masks.truth_if_empty(ANYWHERE, SimpleNamespace(sym_num=number == 0)) is None


@pytest.mark.slow
def test_with_inductor() -> None:
    assert_equivalent(Reduced, _given, backend="inductor", training=True)
