"""Every pattern of the corpus is mended as it says, and cannot be told from eager execution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.exc import InductorError

from corpus.patterns import PATTERNS, Pattern
from corpus.patterns.__main__ import page
from corpus.patterns.pattern import GUARD, OUTPUT, run, wrong_with
from tests.equivalence import compare, leave_unpatched, run_compiled
from tests.samples import is_of_a_sample

SAMPLE = (
    "if-else",
    "early-returns-in-sequence",
    "clamp-of-half-precision",
    "linear-in-each-arm",
    "check-after-output",
)
NAMES = [pattern.name for pattern in PATTERNS]


def _modes(*, whole: bool | None) -> list[Any]:
    """Each pattern in inference, and in training where there are gradients.

    Args:
        whole: take the patterns that have to become one piece, or those that need not. All, if it
            is `None`: then an outcome that is not reached yet is no reason to fail.
    """
    modes: list[Any] = []
    for pattern in PATTERNS:
        for training in (False, True) if pattern.training else (False,):
            if whole is not None and pattern.is_whole(training=training) is not whole:
                continue
            reason = pattern.unequal or (
                pattern.worse_here if whole is None else pattern.unsettled_here
            )
            marks = [pytest.mark.xfail(reason=reason)] if reason else []
            mode = "training" if training else "inference"
            name = f"{pattern.name}-{mode}"
            modes.append(pytest.param(pattern, training, id=name, marks=marks))
    return modes


def _left_out(mode: Any, is_slow: bool, *more: str) -> Any:
    """Return a mode with ``more`` arguments, which is tried only on demand if it is slow."""
    return pytest.param(
        *mode.values,
        *more,
        id="-".join([mode.id, *more]),
        marks=[*mode.marks, *([pytest.mark.slow] if is_slow else [])],
    )


def _on_backends(modes: list[Any]) -> list[Any]:
    """Return modes on both back ends; each pattern on one of them, the others only on demand.

    "aot_eager" is the slower one by far and gets the same graphs, so that it is left to a tenth of
    the modes. Where a pattern is trained, its inference is of those as well. Of the others, two
    thirds are tried with "eager", the rest on demand.
    """
    trained = {mode.values[0].name for mode in modes if mode.values[1]}
    chosen = []
    for mode in modes:
        pattern, training = mode.values
        is_tenth = is_of_a_sample(mode.id, of=10)
        is_seen_in_training = pattern.name in trained and not training
        is_on_demand = is_seen_in_training or is_of_a_sample(mode.id, of=3)
        for backend in ("eager", "aot_eager"):
            is_other = is_tenth is not (backend == "aot_eager")
            chosen.append(_left_out(mode, is_other or (is_on_demand and not is_tenth), backend))
    return chosen


@pytest.mark.parametrize(("pattern", "training", "backend"), _on_backends(_modes(whole=True)))
def test_one_piece(pattern: Pattern, training: bool, backend: str):
    found = run(pattern, backend=backend, training=training)
    assert wrong_with(pattern, found, training=training) == []


@pytest.mark.parametrize(("pattern", "training", "backend"), _on_backends(_modes(whole=False)))
def test_what_stays_in_pieces(pattern: Pattern, training: bool, backend: str):
    found = run(pattern, backend=backend, fullgraph=False, training=training)
    assert wrong_with(pattern, found, training=training) == []


@pytest.mark.parametrize(
    ("pattern", "training"),
    [  # a twentieth of them, and all that need not be one piece; the others on demand
        _left_out(
            mode,
            mode.values[1]
            or (not is_of_a_sample(mode.id, of=20) and mode.values[0].is_whole(training=False)),
        )
        for mode in _modes(whole=None)
    ],
)
def test_never_worse_where_breaks_are_allowed(pattern: Pattern, training: bool):
    found = run(pattern, fullgraph=False, training=training)
    assert (found.eager_differences, found.differences) == ((), ())
    stock = run_compiled(
        pattern.make, pattern.inputs, fullgraph=False, training=training, way=leave_unpatched
    )
    # Stock that gives a whole frame up has no graph at all.
    assert found.graphs <= stock.graphs or stock.graphs == 0


@pytest.mark.parametrize(
    "pattern", [each for each in PATTERNS if each.graphs is None], ids=lambda each: each.name
)
def test_what_is_refused_fails_in_one_piece_as_stock_does(pattern: Pattern):
    mended = run_compiled(pattern.make, pattern.inputs).observations
    stock = run_compiled(pattern.make, pattern.inputs, way=leave_unpatched).observations
    for one, other in zip(mended, stock, strict=True):
        assert one.raised is not None and other.raised is not None
        assert one.raised.kind == other.raised.kind


def _place(difference: str) -> str:
    """Return where a difference is: the call and what of it."""
    return ": ".join(difference.removeprefix("compiled: ").split(": ")[:2])


@pytest.mark.parametrize(
    ("pattern", "training"),
    [
        _left_out(mode, mode.values[0].name not in SAMPLE)
        for mode in [*_modes(whole=True), *_modes(whole=False)]
    ],
)
def test_inductor(pattern: Pattern, training: bool):
    is_compiled = pattern.inductor and (pattern.inductor_backward or not training)
    fullgraph = pattern.is_whole(training=training) and is_compiled
    found = run(pattern, backend="inductor", fullgraph=fullgraph, training=training)
    if is_compiled:
        wrong = wrong_with(pattern, found, training=training)
    else:
        wrong = [*found.eager_differences, *found.differences]
    if found.differences:  # Inductor rounds in its own way, and drops the sign of a zero
        stock = compare(
            pattern.make,
            pattern.inputs,
            backend="inductor",
            fullgraph=False,
            training=training,
            may_copy=pattern.may_copy,
            zero_gradients=pattern.zero_gradients,
            way=leave_unpatched,
        )
        own = {_place(each) for each in stock.differences}
        wrong = [each for each in wrong if _place(each) not in own]
    assert wrong == []


@pytest.mark.parametrize("operator", [torch.linalg.inv, torch.linalg.cholesky])
def test_what_inductor_does_not_compile_under_any_cond(operator: Any):
    """As the patterns marked so say; once this fails, torch has mended it."""

    def by_hand(matrix: Tensor) -> Tensor:
        return torch.cond(matrix.sum() > 0, lambda m: operator(m).sum(), torch.sum, (matrix,))

    torch._dynamo.reset()
    with pytest.raises(InductorError):
        torch.compile(by_hand, backend="inductor", fullgraph=True)(torch.eye(2))


def test_control_flow_is_covered_and_seldom_refused():
    branching = [pattern for pattern in PATTERNS if pattern.is_control_flow]
    assert len(branching) >= 120
    assert sum(pattern.is_refused for pattern in branching) <= 12


def test_output_and_checks_are_covered():
    assert sum(not {OUTPUT, GUARD}.isdisjoint(each.outcomes) for each in PATTERNS) >= 80
    assert sum(GUARD in each.outcomes for each in PATTERNS) >= 25


def test_names_are_unique():
    assert len(set(NAMES)) == len(NAMES) >= 60


def test_the_docs_say_why_each_refused_pattern_is():
    assert [each.name for each in PATTERNS if each.is_refused and not each.because] == []
    assert [each.name for each in PATTERNS if each.because and not each.is_refused] == []
    written = Path(__file__).parents[2] / "docs" / "patterns.md"
    assert written.read_text(encoding="utf-8") == page()
