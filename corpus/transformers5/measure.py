"""Runs one model of the corpus eager, compiled and mended, and says where the results differ.

Each run has a copy of the same module, the same inputs and the same seed. In training the gradients
are those of a loss over all that the model returns and that has gradients.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy
import torch
from torch import Tensor
from torch.nn import Module

import bcmend
from bcmend.site_report import SiteRecord
from corpus.configured.case import Case, Inputs
from corpus.models.compare import differences
from corpus.models.measure import CountingBackend
from corpus.models.observe import Line, collected_lines

MODES: Final = ("eval", "train")
BACKENDS: Final = ("counting", "aot_eager", "inductor")

#: How far gradients may be apart, relative to the largest one of a parameter: a backward that is
#: compiled as a whole adds in another order.
TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Shown:
    """What one call showed: its output, its log, gradients, buffers, and the generators after."""

    output: object
    lines: tuple[Line, ...]
    gradients: Mapping[str, Tensor | None]
    state: object


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of one model in one mode.

    ``stock_graphs``: how many graphs it takes unpatched, 0 where Dynamo gives the frame up.
    ``error``: why the mended one is no single graph, in one line, or None. ``differences``: between
    the mended and the eager one. ``refusals``: the sites that are left as they are.
    """

    name: str
    mode: str
    stock_graphs: int
    stock_error: str | None
    graphs: int
    error: str | None
    differences: tuple[str, ...]
    refusals: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Return whether the mended model is one graph and shows what the eager one shows."""
        return self.error is None and not self.differences


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def _generators() -> dict[str, Any]:
    name, keys, *rest = numpy.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": [name, torch.as_tensor(keys.astype("int64")), *rest],
    }


def _tensors(value: object) -> Iterator[Tensor]:
    """All tensors in what a model returns, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


def _loss(output: object) -> Tensor:
    terms = [each.double().square().mean() for each in _tensors(output) if each.requires_grad]
    return torch.stack(terms).sum()


def _call(model: Module, call: Callable[..., Any], inputs: Inputs, seed: int) -> Shown:
    """Call a model once, with gradients if it is in training."""
    with collected_lines() as lines, torch.set_grad_enabled(model.training):
        _seed(seed)
        output = call(**{name: value.clone() for name, value in inputs.items()})
        generators = _generators()
    if model.training:
        _loss(output).backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    state = {"buffers": dict(model.named_buffers()), "generators": generators}
    return Shown(output, tuple(lines), gradients, state)


def _told_apart(eager: Sequence[Line], mended: Sequence[Line]) -> str:
    """Return the first line that only one of two logs has at its place."""
    for left, right in zip_longest(eager, mended):
        if left != right:
            return f"{left and left.text} and {right and right.text}"
    return "the same"


def _differences(eager: Shown, mended: Shown, *, to_the_bit: bool) -> Iterator[str]:
    if to_the_bit:
        yield from differences(eager.output, mended.output)
        yield from differences(eager.state, mended.state, "state")
    if eager.lines != mended.lines:
        yield f"log: {_told_apart(eager.lines, mended.lines)}"
    for name, first in eager.gradients.items():
        second = mended.gradients[name]
        if second is None or first is None:
            # eager leaves None what one graph gives as zeros: docs/deviations.md
            if any(each is not None and each.any() for each in (first, second)):
                yield f"gradient of {name}: there in one only"
        elif (gap := (first - second).abs().max()) > TOLERANCE * max(1.0, float(first.abs().max())):
            yield f"gradient of {name}: apart by {float(gap):g}"


def _own_differences(
    eager: Shown, mended: Shown | None, stock: Shown | None, *, to_the_bit: bool
) -> tuple[str, ...]:
    """Return what differs, but for the states of generators that stock torch leaves so, too.

    AOTAutograd takes random numbers out of a graph that nobody uses.
    """
    if mended is None:
        return ()
    found = _differences(eager, mended, to_the_bit=to_the_bit)
    known = set(_differences(eager, stock, to_the_bit=to_the_bit)) if stock else set()
    return tuple(each for each in found if not (each in known and each.startswith("state")))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _told(site: SiteRecord) -> str:
    place = f"{Path(site.file).name}:{site.line}"
    return f"{place} {site.refusal}" + (f": {site.detail}" if site.detail else "")


def measure(case: Case, mode: str, *, backend: str = "counting", seed: int = 0) -> Measurement:
    """Build a model and run it eager, compiled as it is, and mended under ``fullgraph=True``.

    Raises only what building, patching or running the model eagerly raises.
    """
    _seed(seed)
    model = case.build().train(mode == "train")
    inputs = case.inputs()
    pristine = copy.deepcopy(model)
    eager = _call(model, model, inputs, seed + 1)
    stock_graphs, stock_error, stock = _compiled(copy.deepcopy(pristine), inputs, backend, seed + 1)
    mended = bcmend.patch(pristine)
    try:
        graphs, error, shown = _compiled(mended, inputs, backend, seed + 1, fullgraph=True)
        refused = bcmend.report(mended).refused
    finally:
        bcmend.unpatch(mended)
    exact = backend != "inductor"
    return Measurement(
        name=case.name,
        mode=mode,
        stock_graphs=stock_graphs,
        stock_error=stock_error,
        graphs=graphs,
        error=error,
        differences=_own_differences(eager, shown, stock, to_the_bit=exact),
        refusals=tuple(sorted({_told(site) for site in refused})),
    )


def _compiled(
    model: Module, inputs: Inputs, backend: str, seed: int, *, fullgraph: bool = False
) -> tuple[int, str | None, Shown | None]:
    torch._dynamo.reset()
    counting = CountingBackend(backend)
    compiled = torch.compile(model, backend=counting, dynamic=False, fullgraph=fullgraph)
    try:
        shown = _call(model, compiled, inputs, seed)
    except Exception as error:
        # a model that fails to compile is a finding to report, not the end of the table
        return counting.graphs, _first_line(error), None
    return counting.graphs, None, shown
