"""Times two calls against each other so that a busy machine slows both alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter, thread_time

import torch

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


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute in the calling thread, whose CPU time then is the time of the call."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cpu_ratio(
    first: Call, second: Call, *, rounds: int = 200, warm_up: int = 3
) -> tuple[float, float]:
    """Compare the CPU time of two calls that torch computes in one thread.

    Both calls of a round, in alternating order, meet the same load, so that a busy machine leaves
    their ratio alone.

    Returns:
        The median over rounds of the time of `first` divided by that of `second`, and the median
        of the latter in seconds.
    """
    calls = (first, second)
    taken: tuple[list[float], list[float]] = ([], [])
    with one_thread():
        for call in calls * warm_up:
            call()
        gc.collect()
        gc.disable()
        try:
            for number in range(rounds):
                for which in ((0, 1), (1, 0))[number % 2]:
                    start = thread_time()
                    calls[which]()
                    taken[which].append(thread_time() - start)
        finally:
            gc.enable()
    ratios = [one / other for one, other in zip(*taken, strict=True)]
    return median(ratios), median(taken[1])
