"""Measures a model that stock `torch.compile` captures whole, and what patching it costs.

Reads a `ModelCase`, produces a `Comparison`. Graphs, output and the time of the first call are
those of `corpus.models`.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Final

import bcmend
from bcmend.patching.table import TABLE
from corpus.models.case import ModelCase
from corpus.models.measure import Measurement, OnStage, failures, measure

#: The largest share of the first compiled call of the model as it is that patching may take.
LARGEST_SHARE: Final = 0.05

#: Models are patched so often, of which the quickest counts: a machine is never too fast, and often
#: too slow, be it for its other users or for a garbage collection.
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model as it is and mended.

    ``patch_seconds``: those of the quickest round.
    """

    measurement: Measurement
    patch_seconds: float

    @property
    def first_call_seconds(self) -> float:
        """The seconds of the first call of the model as it is."""
        return self.measurement.stock_seconds

    @property
    def share(self) -> float:
        """How long patching takes, as a share of the first compiled call of the model as it is."""
        return self.patch_seconds / self.first_call_seconds

    def to_dict(self) -> dict[str, object]:
        """What was measured, ready for JSON."""
        return self.measurement.to_dict() | {
            "patch_seconds": self.patch_seconds,
            "first_call_seconds": self.first_call_seconds,
            "share": self.share,
        }


def patch_seconds(case: ModelCase) -> float:
    """Return the seconds that it takes to patch a fresh model of which nothing is analysed yet."""

    def once() -> float:
        model, _ = case.build()
        TABLE.forget_analyses()
        start = perf_counter()
        bcmend.patch(model)
        seconds = perf_counter() - start
        bcmend.unpatch(model)
        return seconds

    return min(once() for _ in range(ROUNDS))


def compare(
    case: ModelCase, *, backend: str = "inductor", on_stage: OnStage = lambda stage: None
) -> Comparison:
    """Run a model eager, compiled, and mended and compiled; then patch it alone.

    ``on_stage`` is told the name of each stage as it begins. Raises what building, patching or
    running the model eagerly raises.
    """
    measurement = measure(case, backend=backend, on_stage=on_stage)
    on_stage("patching")
    return Comparison(measurement, patch_seconds(case))


def broken(case: ModelCase, measurement: Measurement) -> tuple[str, ...]:
    """Return what is worse than stock, but for the time; empty where nothing is.

    A model that stock itself does not capture whole tells nothing here, and counts as worse too.
    """
    stock: tuple[str, ...] = ()
    if measurement.stock_error is not None:
        stock = (f"does not run with stock torch.compile: {measurement.stock_error}",)
    elif measurement.stock_graphs != 1:
        stock = (f"{measurement.stock_graphs} graphs with stock torch.compile, and not one",)
    return stock + failures(case, measurement)


def harm(case: ModelCase, found: Comparison) -> tuple[str, ...]:
    """Return what is worse than stock; empty where nothing is."""
    slow: tuple[str, ...] = ()
    if found.share >= LARGEST_SHARE:
        slow = (
            f"patching takes {found.share:.1%} of the first call with {found.measurement.backend}",
        )
    return broken(case, found.measurement) + slow
