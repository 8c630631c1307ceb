"""The ratios that the documentation states, each measured within one run.

Every function makes its own models, leaves nothing patched and nothing compiled, and returns a
`Ratio`; `ALL` lists them in the order in which they are printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import Module

import bcmend
from bench.generated import Form, generated_input, generated_model
from bench.timing import cpu_ratio, interleaved_medians, seconds
from bench.transformer import Quiet, transformer_input, transformers
from bench.vision import tower_inputs, towers
from corpus.models.case import Inputs
from corpus.models.observe import collected_lines
from corpus.models.registry import case_named

LAYER_COUNTS = (10, 20, 40, 80)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One measurement beside what it is compared with, both in seconds, and the largest ratio."""

    name: str
    measured: float
    baseline: float
    limit: float

    @property
    def value(self) -> float:
        """`measured` divided by `baseline`."""
        return self.measured / self.baseline

    @property
    def good(self) -> bool:
        """Return whether the ratio stays within its limit."""
        return self.value <= self.limit

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.measured * 1e3:.3f} ms / {self.baseline * 1e3:.3f} ms"
            f" = {self.value:.3f} (limit {self.limit:g})"
        )


#: Patches at once; else nothing is mended until Dynamo stops.
AHEAD = bcmend.Policy(mend="ahead")


def patch_seconds(model: Module) -> float:
    """How long mending ahead takes; the model is put back as it was."""
    try:
        return seconds(lambda: bcmend.patch(model, policy=AHEAD))
    finally:
        bcmend.unpatch(model)


def _first_compiled_call(model: Module, inputs: Inputs) -> float:
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", dynamic=False)
    with torch.no_grad(), collected_lines():
        taken = seconds(lambda: compiled(**inputs))
    torch._dynamo.reset()
    return taken


def patch_against_compile(name: str = "t5") -> Ratio:
    """Mending a model of the corpus ahead, beside the first call of torch.compile on the same."""
    small = generated_model(2)
    patch_seconds(small)  # imports and tables that only the first patch of a process pays for
    _first_compiled_call(small, {"input": generated_input()})
    model, inputs = case_named(name).build()
    model.eval()
    measured = patch_seconds(model)
    baseline = _first_compiled_call(model, inputs)
    return Ratio(f"mending {name} ahead / its first compiled call", measured, baseline, limit=0.1)


def patch_seconds_by_layers(repeats: int = 3) -> dict[int, float]:
    """The best of `repeats` patching times for each of `LAYER_COUNTS`, every model a new one."""
    return {
        layers: min(patch_seconds(generated_model(layers)) for _ in range(repeats))
        for layers in LAYER_COUNTS
    }


def patch_linearity() -> Ratio:
    """Patching time per layer of the largest generated model, beside that of the smallest."""
    patch_seconds(generated_model(2))
    taken = patch_seconds_by_layers()
    smallest, largest = LAYER_COUNTS[0], LAYER_COUNTS[-1]
    return Ratio(
        f"mending ahead, per layer: {largest} / {smallest} layers",
        taken[largest] / largest,
        taken[smallest] / smallest,
        limit=1.5,
    )


def eager_overhead(layers: int = 20) -> Ratio:
    """An eager call of a patched model, beside that of a model that was never patched."""
    patched, unpatched = generated_model(layers), generated_model(layers)
    given = generated_input()
    with bcmend.patched(patched, policy=AHEAD), torch.no_grad():
        measured, baseline = interleaved_medians(lambda: patched(given), lambda: unpatched(given))
    return Ratio("eager call: patched / unpatched", measured, baseline, limit=1.02)


def call_overhead(layers: int = 20) -> Ratio:
    """A compiled call of a mended model, beside that of one written without branches by hand."""
    mended, by_hand = generated_model(layers), generated_model(layers, Form.BY_HAND)
    given = generated_input()
    torch._dynamo.reset()
    with bcmend.patched(mended), torch.no_grad():
        first = torch.compile(mended, backend="eager", dynamic=False, fullgraph=True)
        second = torch.compile(by_hand, backend="eager", dynamic=False, fullgraph=True)
        if not torch.equal(first(given), second(given)):
            raise AssertionError("the model mended by hand computes something else")
        measured, baseline = interleaved_medians(lambda: first(given), lambda: second(given))
    torch._dynamo.reset()
    return Ratio("compiled call: mended / by hand", measured, baseline, limit=1.25)


def _quiet(name: str, form: Quiet, by_hand: Quiet) -> Ratio:
    """A compiled call of a transformer in which nothing is written or raised, beside another.

    Compiled with the back end that `torch.compile` takes by itself. On a busy machine the ratio of
    a model to itself varies by a hundredth or two.
    """
    mended, other = transformers(form, by_hand)
    given = transformer_input()
    torch._dynamo.reset()
    with bcmend.patched(mended), torch.no_grad():
        first = torch.compile(mended, dynamic=False, fullgraph=True)
        second = torch.compile(other, dynamic=False, fullgraph=True)
        if not torch.allclose(first(given), second(given), atol=1e-5):
            raise AssertionError("the model without the statements computes something else")
        ratio, baseline = cpu_ratio(lambda: first(given), lambda: second(given))
    torch._dynamo.reset()
    return Ratio(f"transformer: {name}", ratio * baseline, baseline, limit=1.02)


def disabled_level_overhead() -> Ratio:
    """Log statements of a disabled level, beside no statements."""
    return _quiet("level disabled / no statement", Quiet.DISABLED, Quiet.SILENT)


def false_predicate_overhead() -> Ratio:
    """Output in arms that are not taken, beside no statements."""
    return _quiet("output not taken / no statement", Quiet.NOT_TAKEN, Quiet.SILENT)


def met_check_overhead() -> Ratio:
    """Checks that do not fail, beside their conditions alone.

    The conditions look at every number, which takes time whoever does it: beside a model that does
    not even compute them the ratio is larger by that.
    """
    return _quiet("check met / its condition alone", Quiet.CHECKED, Quiet.CONDITION)


def numbers_overhead() -> Ratio:
    """A vision tower whose numbers are computed in front of the graph, beside reading them by hand.

    Both read them in the call that is timed, one after the other in several layouts.
    """
    mended, by_hand = towers()
    given = tower_inputs()
    torch._dynamo.reset()
    with bcmend.patched(mended), torch.no_grad():
        first = torch.compile(mended, fullgraph=True)
        second = torch.compile(by_hand, fullgraph=True)
        for x, grid in given:
            if not torch.equal(first(x, grid), second(x, *by_hand.read(grid))):
                raise AssertionError("the tower by hand computes something else")
        ratio, baseline = cpu_ratio(
            lambda: [first(x, grid) for x, grid in given],
            lambda: [second(x, *by_hand.read(grid)) for x, grid in given],
            rounds=60,
        )
    torch._dynamo.reset()
    name = "vision tower: numbers in front of the graph / read by hand"
    return Ratio(name, ratio * baseline, baseline, limit=1.02)


ALL: tuple[Callable[[], Ratio], ...] = (
    patch_against_compile,
    patch_linearity,
    eager_overhead,
    call_overhead,
    disabled_level_overhead,
    false_predicate_overhead,
    met_check_overhead,
    numbers_overhead,
)
