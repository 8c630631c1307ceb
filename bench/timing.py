"""Times two calls against each other so that a busy machine slows both alike."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter

Call = Callable[[], object]


def seconds(call: Call) -> float:
    """How long one call takes, with the garbage collector at rest."""
    gc.collect()
    gc.disable()
    try:
        start = perf_counter()
        call()
        return perf_counter() - start
    finally:
        gc.enable()


def interleaved_medians(
    first: Call, second: Call, *, rounds: int = 400, warm_up: int = 20
) -> tuple[float, float]:
    """Median seconds of `first` and of `second`, called in turn.

    Which of the two goes first alternates from round to round: whoever follows finds warmer caches.
    """
    calls = (first, second)
    for call in calls * warm_up:
        call()
    taken: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for which in ((0, 1), (1, 0))[number % 2]:
                start = perf_counter()
                calls[which]()
                taken[which].append(perf_counter() - start)
    finally:
        gc.enable()
    return median(taken[0]), median(taken[1])


def median_ratio(first: Call, second: Call, *, rounds: int = 400, warm_up: int = 20) -> float:
    """Median over rounds of the seconds of `first` divided by those of `second`, called in turn.

    Both calls of a round meet the same load, so that a busy machine leaves their ratio alone.
    """
    for call in (first, second) * warm_up:
        call()
    ratios: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            taken = {}
            for which in ((first, second), (second, first))[number % 2]:
                start = perf_counter()
                which()
                taken[which] = perf_counter() - start
            ratios.append(taken[first] / taken[second])
    finally:
        gc.enable()
    return median(ratios)
