"""Measures one model of the corpus: eager, compiled as it is, and compiled once mended.

Reads a `ModelCase`, produces a `Measurement`. Every figure comes from a model of its own, built
afresh from the same seed, with Dynamo reset in between: no run sees what another one left behind.
A graph break is counted by a back end that counts the graphs it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend
from torch.nn import Module

import bcmend
from bcmend.reports.site_report import Report
from corpus.models.case import Inputs, ModelCase
from corpus.models.compare import differences
from corpus.models.observe import Observation, observe

BACKENDS = ("counting", "inductor")
#: How far outputs may be from eager ones, as a share of the largest number.
TOLERANCE = {"counting": 0.0, "inductor": 1e-4}
OnStage = Callable[[str], None]


class CountingBackend:
    """A back end that counts graphs and runs each as it is, or hands it to another back end.

    ``operators`` counts the calls in them, and in the graphs inside them.
    """

    def __init__(self, name: str) -> None:
        self.graphs = self.operators = 0
        self._compile = None if name == "counting" else lookup_backend(name)

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        self.graphs += 1
        inside = [each for each in graph.modules() if isinstance(each, torch.fx.GraphModule)]
        self.operators += sum(
            node.op.startswith("call_") for each in inside for node in each.graph.nodes
        )
        return graph.forward if self._compile is None else self._compile(graph, inputs)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured of one model.

    `output_differences` and `line_differences` compare the mended, compiled model with the eager
    one; both empty means the same output, bit-identical with the counting back end, and the same
    log records in the same order. `stock_output_differences` and `stock_line_differences` are the
    same for the model as it is: some models keep silent when they find that they are being
    compiled, and Inductor rounds half precision elsewhere than eager execution does. The errors
    hold the first line of what was raised, or None.
    Seconds are those of the first compiled call.
    """

    name: str
    backend: str
    stock_graphs: int
    mended_graphs: int
    stock_error: str | None
    mended_error: str | None
    fullgraph_error: str | None
    output_differences: tuple[str, ...]
    line_differences: tuple[str, ...]
    stock_output_differences: tuple[str, ...]
    stock_line_differences: tuple[str, ...]
    lines: int
    mended_sites: int
    refused_sites: int
    patch_seconds: float
    stock_seconds: float
    mended_seconds: float

    @property
    def stock_breaks(self) -> int:
        """Graph breaks of the model as it is."""
        return self.stock_graphs - 1

    @property
    def mended_breaks(self) -> int:
        """Graph breaks of the mended model."""
        return self.mended_graphs - 1

    def to_dict(self) -> dict[str, object]:
        """All fields and the two numbers of breaks, ready for JSON."""
        breaks = {"stock_breaks": self.stock_breaks, "mended_breaks": self.mended_breaks}
        return asdict(self) | breaks


@dataclass(frozen=True, slots=True)
class Run:
    """The first call of a compiled model: its graphs, its time, and its error or what it showed."""

    graphs: int
    seconds: float
    error: str | None
    observation: Observation | None


def build(case: ModelCase, seed: int) -> tuple[Module, Inputs]:
    """Make the model, in evaluation, and its inputs; the same seed makes the same ones."""
    torch.manual_seed(seed)
    model, inputs = case.build()
    return model.eval(), inputs


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def run_compiled(
    model: Module, inputs: Inputs, *, backend: str, seed: int, fullgraph: bool = False
) -> Run:
    """Compile `model` afresh and call it once; an error is told, not raised.

    It is called once more where no graph came of that: a call that sets something up for later ones
    (hooks that collect hidden states, under a lock) runs in plain Python.
    """
    torch._dynamo.reset()
    counting = CountingBackend(backend)
    compiled = torch.compile(model, backend=counting, dynamic=False, fullgraph=fullgraph)
    start = perf_counter()
    try:
        observation = observe(lambda: compiled(**inputs), seed=seed)
        if not counting.graphs:
            observation = observe(lambda: compiled(**inputs), seed=seed)
    except Exception as error:
        # a model that fails to compile is a finding to report, not the end of the table
        return Run(counting.graphs, perf_counter() - start, _first_line(error), None)
    return Run(counting.graphs, perf_counter() - start, None, observation)


def _run_patched(
    case: ModelCase, *, backend: str, seed: int, fullgraph: bool = False
) -> tuple[Run, Report, float]:
    """The run of a fresh, patched model, what was mended of it, and the seconds of patching."""
    model, inputs = build(case, seed)
    start = perf_counter()
    bcmend.patch(model)
    patch_seconds = perf_counter() - start
    try:
        run = run_compiled(model, inputs, backend=backend, seed=seed, fullgraph=fullgraph)
        return run, bcmend.report(model), patch_seconds
    finally:
        bcmend.unpatch(model)


def _output_differences(
    eager: Observation, compiled: Observation | None, tolerance: float
) -> tuple[str, ...]:
    if compiled is None:
        return ()
    return tuple(differences(eager.output, compiled.output, tolerance=tolerance))


def _line_differences(eager: Observation, compiled: Observation | None) -> tuple[str, ...]:
    if compiled is None or eager.lines == compiled.lines:
        return ()
    missing = [line for line in eager.lines if line not in compiled.lines]
    extra = [line for line in compiled.lines if line not in eager.lines]
    found = [f"missing: {line.channel}: {line.text}" for line in missing]
    found += [f"extra: {line.channel}: {line.text}" for line in extra]
    return tuple(found) or ("the same lines in another order or number",)


def measure(
    case: ModelCase,
    *,
    backend: str = "inductor",
    seed: int = 0,
    on_stage: OnStage = lambda stage: None,
) -> Measurement:
    """Runs `case` eager, compiled, mended and compiled, and mended under fullgraph=True.

    `backend` is "counting" (runs each graph as captured, so that outputs can be compared to the
    bit) or "inductor". `on_stage` is told the name of each stage as
    it begins. Raises only what building, patching or running the model eagerly raises.
    """
    on_stage("eager")
    model, inputs = build(case, seed)
    eager = observe(lambda: model(**inputs), seed=seed)
    on_stage("stock")
    stock = run_compiled(*build(case, seed), backend=backend, seed=seed)
    on_stage("mended")
    mended, report, patch_seconds = _run_patched(case, backend=backend, seed=seed)
    on_stage("fullgraph")
    fullgraph, _, _ = _run_patched(case, backend=backend, seed=seed, fullgraph=True)
    torch._dynamo.reset()

    tolerance = TOLERANCE[backend]
    return Measurement(
        name=case.name,
        backend=backend,
        stock_graphs=stock.graphs,
        mended_graphs=mended.graphs,
        stock_error=stock.error,
        mended_error=mended.error,
        fullgraph_error=fullgraph.error,
        output_differences=_output_differences(eager, mended.observation, tolerance),
        line_differences=_line_differences(eager, mended.observation),
        stock_output_differences=_output_differences(eager, stock.observation, tolerance),
        stock_line_differences=_line_differences(eager, stock.observation),
        lines=len(eager.lines),
        mended_sites=len(report.mended),
        refused_sites=len(report.refused),
        patch_seconds=patch_seconds,
        stock_seconds=stock.seconds,
        mended_seconds=mended.seconds,
    )


def worse_lines(measurement: Measurement) -> bool:
    """Return whether the mended model's log differs from eager otherwise than the stock one's."""
    return measurement.line_differences not in ((), measurement.stock_line_differences)


def worse_outputs(measurement: Measurement) -> bool:
    """Return whether the mended model's output differs where the stock one's does not."""
    found, stock = measurement.output_differences, measurement.stock_output_differences
    places = {each.partition(": ")[0] for each in stock if measurement.backend != "counting"}
    return any(each.partition(": ")[0] not in places for each in found)


def failures(case: ModelCase, measurement: Measurement) -> tuple[str, ...]:
    """Why `measurement` is worse than what `case` requires; empty where it is not.

    Outputs have to be bit-identical with the counting back end; others reorder floating-point
    arithmetic. A line that the unpatched, compiled model loses too is the model's own choice and no
    failure.
    """
    found = []
    if measurement.mended_error is not None:
        found.append(f"does not run once mended: {measurement.mended_error}")
    if not 0 <= measurement.mended_breaks <= case.required_breaks:
        found.append(f"{measurement.mended_breaks} breaks, required {case.required_breaks}")
    if case.required_breaks == 0 and measurement.fullgraph_error is not None:
        found.append(f"fullgraph=True fails: {measurement.fullgraph_error}")
    if worse_outputs(measurement):
        found.append(f"output differs: {measurement.output_differences[0]}")
    if worse_lines(measurement):
        found.append(f"log differs: {measurement.line_differences[0]}")
    return tuple(found)
