"""Which lowering is chosen, for every combination of hazards and choices."""

from __future__ import annotations

import pytest

from bcmend.runtime.ladder import _weigh
from bcmend.runtime.operations import Hazards
from bcmend.runtime.sites import LiveSite

HARMLESS = Hazards()
PARTIAL = Hazards(partial="embedding")
RANDOM = Hazards(random="bernoulli_")
DEAR = Hazards(dear="mm")


def _choice(policy: str, hazards: Hazards, *, gradients: bool) -> tuple[str | None, str]:
    site = LiveSite("s", "branch", (lambda: None).__code__, branch=policy)
    chosen = _weigh(site, [HARMLESS, hazards], gradients, has_results=True)
    return chosen, next(iter(site.refused), "")


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(
    ("hazards", "expected"), [(HARMLESS, "where"), (PARTIAL, "cond"), (DEAR, "cond")]
)
def test_auto_speculates_only_what_is_harmless_and_cheap(
    hazards: Hazards, expected: str, gradients: bool
) -> None:
    assert _choice("auto", hazards, gradients=gradients) == (expected, "")


def test_auto_never_lets_cond_draw_random_numbers_while_gradients_flow() -> None:
    assert _choice("auto", RANDOM, gradients=True) == (None, "random-under-gradients")
    assert _choice("auto", RANDOM, gradients=False) == ("cond", "")


def test_random_and_partial_under_gradients_is_refused() -> None:
    both = Hazards(partial="embedding", random="bernoulli_")
    assert _choice("auto", both, gradients=True) == (None, "random-under-gradients")


def test_a_wish_for_where_is_refused_where_it_would_be_wrong() -> None:
    assert _choice("where", PARTIAL, gradients=False) == (None, "where-would-speculate")
    assert _choice("where", RANDOM, gradients=False) == (None, "where-would-speculate")
    assert _choice("where", DEAR, gradients=False) == ("where", "")


def test_a_wish_for_where_lets_both_sides_draw_where_gradients_fit() -> None:
    assert _choice("where", RANDOM, gradients=True) == ("where", "")


def test_a_wish_for_cond_is_refused_where_it_would_be_wrong() -> None:
    assert _choice("cond", RANDOM, gradients=True) == (None, "random-under-gradients")
    assert _choice("cond", HARMLESS, gradients=True) == ("cond", "")
