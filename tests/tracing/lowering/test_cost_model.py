"""Which lowering is chosen, for every combination of hazards and choices."""

from __future__ import annotations

import math

import pytest

from bcmend.tracing.effects.costs import DECISION
from bcmend.tracing.effects.hazards import Hazards
from bcmend.tracing.lowering.cost_model import weigh
from bcmend.tracing.sites.refusal import Refusal, attempt

HARMLESS = Hazards()
PARTIAL = Hazards(partial="embedding")
RANDOM = Hazards(random="bernoulli_")
EXPENSIVE = Hazards(expensive="mm", waste=math.inf)


def _choice(
    policy: str, hazards: Hazards, *, gradients: bool, has_results: bool = True
) -> tuple[str | None, str]:
    """Return the lowering, or ``None`` and the slug of the refusal."""
    found = attempt(lambda: weigh(policy, [HARMLESS, hazards], gradients, has_results))
    return (None, found.slug) if isinstance(found, Refusal) else (found.how, "")


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize(
    ("hazards", "expected"), [(HARMLESS, "where"), (PARTIAL, "cond"), (EXPENSIVE, "cond")]
)
def test_auto_speculates_only_what_is_harmless_and_cheap(
    hazards: Hazards, expected: str, gradients: bool
) -> None:
    assert _choice("auto", hazards, gradients=gradients) == (expected, "")


def test_auto_never_lets_cond_draw_random_numbers_while_gradients_flow() -> None:
    assert _choice("auto", RANDOM, gradients=True) == (None, "random-under-gradients")
    assert _choice("auto", RANDOM, gradients=False) == ("cond", "")


@pytest.mark.parametrize("policy", ["auto", "cond"])
def test_compiled_autograd_meets_no_cond_where_gradients_flow(policy: str) -> None:
    def choice(hazards: Hazards, *, gradients: bool) -> str:
        found = attempt(lambda: weigh(policy, [hazards], gradients, True, traces_backwards=True))
        return found.slug if isinstance(found, Refusal) else found.how

    assert choice(EXPENSIVE, gradients=True) == "where"
    assert choice(EXPENSIVE, gradients=False) == "cond"
    for hazards in (PARTIAL, RANDOM):
        assert choice(hazards, gradients=True) == "where-would-speculate"


def test_random_and_partial_under_gradients_is_refused() -> None:
    both = Hazards(partial="embedding", random="bernoulli_")
    assert _choice("auto", both, gradients=True) == (None, "random-under-gradients")


def test_a_wish_for_where_is_refused_where_it_would_be_wrong() -> None:
    assert _choice("where", PARTIAL, gradients=False) == (None, "where-would-speculate")
    assert _choice("where", RANDOM, gradients=False) == (None, "where-would-speculate")
    assert _choice("where", EXPENSIVE, gradients=False) == ("where", "")


def test_a_wish_for_where_lets_both_sides_draw_where_gradients_fit() -> None:
    assert _choice("where", RANDOM, gradients=True) == ("where", "")


def test_a_wish_for_cond_is_refused_where_it_would_be_wrong() -> None:
    assert _choice("cond", RANDOM, gradients=True) == (None, "random-under-gradients")
    assert _choice("cond", HARMLESS, gradients=True) == ("cond", "")


def test_a_wish_for_where_that_may_fail_and_draws_under_gradients_names_the_draw() -> None:
    both = Hazards(partial="embedding", random="bernoulli_")
    assert _choice("where", both, gradients=True) == (None, "random-under-gradients")
    assert _choice("where", both, gradients=False) == (None, "where-would-speculate")


@pytest.mark.parametrize("policy", ["auto", "where", "cond"])
def test_a_branch_without_results_is_speculated_unless_it_may_fail(policy: str) -> None:
    harmless = _choice(policy, EXPENSIVE, gradients=True, has_results=False)
    assert harmless == ("where", "")
    partial = _choice(policy, PARTIAL, gradients=True, has_results=False)
    assert partial == ("cond", "")


def test_a_branch_without_results_that_draws_is_weighed_as_any_other() -> None:
    assert _choice("auto", RANDOM, gradients=False, has_results=False) == ("cond", "")
    drawn = _choice("auto", RANDOM, gradients=True, has_results=False)
    assert drawn == (None, "random-under-gradients")


@pytest.mark.parametrize(("factor", "how"), [(0.5, "where"), (1.9, "where"), (2.1, "cond")])
def test_half_of_the_work_has_to_outweigh_a_decision(factor: float, how: str) -> None:
    hazards = Hazards(expensive="mm", waste=factor * DECISION)
    assert _choice("auto", hazards, gradients=False) == (how, "")
    assert _choice("auto", hazards, gradients=True) == (how, "")


@pytest.mark.parametrize(
    ("policy", "hazards", "why"),
    [
        ("auto", Hazards(operators=6), "6 cheap operators, nothing can fail"),
        ("auto", Hazards(operators=1), "1 cheap operator, nothing can fail"),
        ("auto", EXPENSIVE, "mm is expensive"),
        ("auto", PARTIAL, "embedding may fail on the data"),
        ("auto", RANDOM, "bernoulli_ draws random numbers"),
        ("where", EXPENSIVE, "Policy(branch='where')"),
        ("cond", HARMLESS, "Policy(branch='cond')"),
    ],
)
def test_a_choice_says_why(policy: str, hazards: Hazards, why: str) -> None:
    assert weigh(policy, [HARMLESS, hazards], False, has_results=True).why == why


def test_a_small_matrix_product_on_an_accelerator_says_what_it_costs() -> None:
    small = Hazards(expensive="mm", operators=2, waste=DECISION)
    chosen = weigh("auto", [small, HARMLESS], False, has_results=True)
    assert (chosen.how, chosen.why.partition(":")[0]) == ("where", "mm is small")
    assert "10 microseconds" in chosen.why
