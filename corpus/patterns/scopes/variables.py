"""Arms that store to global variables and to those of enclosing functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from corpus.patterns.pattern import NO_MERGE, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]


@pattern(signs, NO_MERGE, from_3_12=(WHERE,))
def label_kept_in_a_nonlocal_variable() -> Program:
    label: str | None = "none yet"

    def program(x: Tensor) -> Tensor:
        nonlocal label
        if x.sum() > 0:
            label = "positive"
        else:
            label = "negative"
        return x * 2

    return program


_CALLS = 0


# Dynamo has a guard on the number.
@pattern(signs, WHERE, graphs=2, recompiles=1)
def global_number_counted_in_one_arm() -> Program:
    global _CALLS
    _CALLS = 0

    def program(x: Tensor) -> Tensor:
        global _CALLS
        if x.sum() > 0:
            _CALLS += 1
            x = x * 2
        return x + 1

    return program


@pattern(signs, WHERE)
def closure_behind_an_early_return() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x + 1
        scale = x.abs().mean()
        return sum((part() for part in (lambda: x * scale, lambda: x / scale)), x)

    return program


PATTERNS = patterns_among(list(vars().values()))
