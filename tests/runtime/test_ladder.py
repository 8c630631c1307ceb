"""Which lowering is chosen, for every combination of hazards and choices."""

from __future__ import annotations

import math

import pytest

from bcmend.runtime.costs import DECISION
from bcmend.runtime.operations import Hazards
from bcmend.runtime.weigh import weigh

HARMLESS = Hazards()
PARTIAL = Hazards(partial="embedding")
RANDOM = Hazards(random="bernoulli_")
DEAR = Hazards(dear="mm", waste=math.inf)


def _choice(policy: str, hazards: Hazards, *, gradients: bool) -> tuple[str | None, str]:
    chosen, refusal = weigh(policy, [HARMLESS, hazards], gradients, has_results=True)
    return (None if chosen is None else chosen.how), ("" if refusal is None else refusal[0])


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


@pytest.mark.parametrize(("factor", "how"), [(0.5, "where"), (1.9, "where"), (2.1, "cond")])
def test_half_of_the_work_has_to_outweigh_a_decision(factor: float, how: str) -> None:
    hazards = Hazards(dear="mm", waste=factor * DECISION)
    assert _choice("auto", hazards, gradients=False) == (how, "")
    assert _choice("auto", hazards, gradients=True) == (how, "")


@pytest.mark.parametrize(
    ("policy", "hazards", "why"),
    [
        ("auto", Hazards(operators=6), "6 cheap operators, nothing can fail"),
        ("auto", Hazards(operators=1), "1 cheap operator, nothing can fail"),
        ("auto", DEAR, "mm is dear"),
        ("auto", PARTIAL, "embedding may fail on the data"),
        ("auto", RANDOM, "bernoulli_ draws random numbers"),
        ("where", DEAR, "Policy(branch='where')"),
        ("cond", HARMLESS, "Policy(branch='cond')"),
    ],
)
def test_a_choice_says_why(policy: str, hazards: Hazards, why: str) -> None:
    chosen, _ = weigh(policy, [HARMLESS, hazards], False, has_results=True)
    assert chosen is not None
    assert chosen.why == why


def test_a_small_matrix_product_on_an_accelerator_says_what_it_costs() -> None:
    small = Hazards(dear="mm", operators=2, waste=DECISION)
    chosen, _ = weigh("auto", [small, HARMLESS], False, has_results=True)
    assert chosen is not None
    assert (chosen.how, chosen.why.partition(":")[0]) == ("where", "mm is small")
    assert "10 microseconds" in chosen.why
