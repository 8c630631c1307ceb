"""Runs one model of the corpus eager, compiled and mended, and says where the results differ.

Each run has a copy of the same module, the same inputs and the same seeds, and is called several
times. In training a call is a step: forward, backward through a loss over all that the model
returns and that has gradients, and an optimizer. Inductor draws the random numbers of eager.
"""

from __future__ import annotations

import copy
import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final, Protocol

import numpy
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch.nn import Module
from torch.utils._pytree import tree_map

import bcmend
from bcmend.reports.outcomes import SiteRecord
from corpus.configured.case import Inputs
from corpus.models.compare import differences
from corpus.models.measure import CountingBackend
from corpus.models.observe import Line, collected_lines

MODES: Final = ("eval", "train")
BACKENDS: Final = ("counting", "aot_eager", "inductor")

#: Where logs differ, in a difference.
_LOG: Final = "log"

#: How often each run is called, with other random numbers each time; and how often then with those
#: of the last time, so that nothing is compiled any more.
ROUNDS: Final = 2
_STEADY: Final = 7
#: How far gradients and parameters may be apart, and with Inductor all that a model returns, as a
#: share of the largest number: what is compiled as a whole adds in another order.
TOLERANCE: Final = {"counting": 1e-6, "aot_eager": 1e-6, "inductor": 1e-4}

#: Settings of Inductor: the random numbers of eager, in its order (to save memory, draws would
#: change places), no code of an earlier run, and compilers that are children of this process, so
#: that their time is counted.
_SETTINGS: Final = {
    "fallback_random": True,
    "reorder_for_peak_memory": False,
    "force_disable_caches": True,
    "compile_threads": 1,
}


class Measured(Protocol):
    """A model to measure: its name, and what makes it and the arguments of one call."""

    @property
    def name(self) -> str:
        """Its name in a table."""

    def build(self) -> Module:
        """Make the module, drawing its weights from torch's generator."""

    @property
    def inputs(self) -> Callable[[], Inputs]:
        """What makes the arguments of one call."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall time, and the time of all processors: of this process and of children that ended."""

    wall: float
    processor: float

    def since(self, start: Seconds) -> Seconds:
        """Return the time from ``start`` to this one."""
        return Seconds(self.wall - start.wall, self.processor - start.processor)

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall + other.wall, self.processor + other.processor)


def now() -> Seconds:
    """Return the time, of which differences have a meaning."""
    children = os.times()
    spent = process_time() + children.children_user + children.children_system
    return Seconds(perf_counter(), spent)


@dataclass(frozen=True, slots=True)
class Shown:
    """What one call showed: output, log, gradients, parameters, buffers, generators after it."""

    output: object
    lines: tuple[Line, ...]
    gradients: Mapping[str, Tensor | None]
    parameters: Mapping[str, Tensor]
    state: object


@dataclass(frozen=True, slots=True)
class Run:
    """All calls of a compiled model: an error in one line, what each call showed, its seconds.

    ``steady``: what a call takes once nothing is compiled any more. ``graphs``: the most that one
    call had compiled. ``operators``: those in graphs of the first.
    """

    graphs: int
    error: str | None
    shown: tuple[Shown, ...]
    seconds: tuple[Seconds, ...]
    steady: Seconds | None = None
    operators: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of one model in one mode.

    ``stock_graphs``: how many graphs a call takes unpatched, 0 where Dynamo gives the frame up.
    ``error``: why the mended one is no single graph, in one line, or None. ``differences``: between
    the mended and the eager one. ``refusals``: the sites that are left as they are. ``first_call``,
    ``later_call``: seconds of the mended model over those of the unpatched one, patching included;
    with ``_cpu``, those of processors, which other work on the machine does not lengthen.
    ``stock_seconds``: of processors, for the first call of the unpatched model.
    ``stock_operators``, ``operators``: how many are in the graphs of the first call, in both sides
    of a choice; where stock runs much of a model in Python, there are few.
    """

    name: str
    mode: str
    stock_graphs: int
    stock_error: str | None
    graphs: int
    error: str | None
    differences: tuple[str, ...]
    refusals: tuple[str, ...]
    first_call: float
    later_call: float
    first_call_cpu: float = 0.0
    later_call_cpu: float = 0.0
    stock_seconds: float = 0.0
    stock_operators: int = 0
    operators: int = 0

    @property
    def is_whole(self) -> bool:
        """Return whether the mended model is one graph and shows what the eager one shows."""
        return self.error is None and self.graphs == 1 and not self.differences


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


def _calls(model: Module, call: Callable[..., Any], inputs: Inputs, seed: int) -> Iterator[Shown]:
    """Call a model with one seed after the other, with gradients if it is in training."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for round_ in itertools.count():
        with collected_lines() as lines, torch.set_grad_enabled(model.training):
            _seed(seed + min(round_, ROUNDS - 1))
            output = call(**{name: value.clone() for name, value in inputs.items()})
            generators = _generators()
        if model.training:
            optimizer.zero_grad(set_to_none=True)
            _loss(output).backward()
        gradients = {name: _copied(each.grad) for name, each in model.named_parameters()}
        if model.training:
            optimizer.step()
        parameters = {name: _copied(each) for name, each in model.named_parameters()}
        state = {"buffers": _copied(dict(model.named_buffers())), "generators": generators}
        yield Shown(output, tuple(lines), gradients, parameters, state)


def _copied(value: Any) -> Any:
    return tree_map(lambda each: each.detach().clone() if isinstance(each, Tensor) else each, value)


def _told_apart(eager: Sequence[Line], mended: Sequence[Line]) -> str:
    """Return the first line that only one of two logs has at its place."""
    for left, right in zip_longest(eager, mended):
        if left != right:
            return f"{left and left.text} and {right and right.text}"
    return "the same"


def _differences(
    eager: Shown, mended: Shown, backend: str, *, is_exact: bool = True
) -> Iterator[str]:
    tolerance = TOLERANCE[backend]
    of_outputs = 0.0 if is_exact and backend != "inductor" else tolerance
    yield from differences(eager.output, mended.output, tolerance=of_outputs)
    yield from differences(eager.state, mended.state, "state", of_outputs)
    if eager.lines != mended.lines:
        yield f"{_LOG}: {_told_apart(eager.lines, mended.lines)}"
    for name, first in eager.gradients.items():
        second = mended.gradients[name]
        if second is None or first is None:
            # eager leaves None what one graph gives as zeros: docs/deviations.md
            if any(each is not None and each.any() for each in (first, second)):
                yield f"gradient of {name}: there in one only"
        else:
            yield from differences(first, second, f"gradient of {name}", tolerance)
    yield from differences(eager.parameters, mended.parameters, "parameters", tolerance)


def _own_differences(eager: Run, mended: Run, stock: Run, backend: str) -> Iterator[str]:
    """Yield what differs from eager execution, but for what differs with stock torch too.

    That is what is the same as with stock: a model may ask whether it is being compiled, and
    compute in another way then, or log less. AOTAutograd takes random numbers out of a graph that
    nobody uses, which the states of generators show. Where a model makes much of the last bit, such
    as a norm of what is almost zero, Inductor is as far away unpatched. Calls of a mended model may
    be made in plain Python at first, and so be nearer to eager execution than those of stock.
    """
    for number, (one, other) in enumerate(zip(eager.shown, mended.shown, strict=False)):
        of_torch: set[str] = set()
        if not stock.error:
            unpatched = stock.shown[number]
            as_stock = _places(one, unpatched, backend)
            of_torch = as_stock - _places(unpatched, other, backend)
            of_torch |= {each for each in as_stock if _is_rounded(each, backend)}
            # what stock changes by far is told from rounding, which its earlier calls may add
            apart = _places(one, unpatched, "inductor")
            of_torch |= apart - _places(unpatched, other, "inductor")
        # what a step has rounded in parameters is in all that later calls compute
        before = zip(eager.shown[:number], mended.shown[:number], strict=False)
        is_exact = not any(
            any(differences(first.parameters, second.parameters)) for first, second in before
        )
        for each in _differences(one, other, backend, is_exact=is_exact):
            if _place(each) not in of_torch:
                yield f"call {number}: {each}"


def _is_rounded(place: str, backend: str) -> bool:
    return place != _LOG and (backend == "inductor" or place.startswith("state"))


def _places(one: Shown, other: Shown, backend: str) -> set[str]:
    return set(map(_place, _differences(one, other, backend)))


def _place(difference: str) -> str:
    return difference.partition(": ")[0]


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _told(site: SiteRecord) -> str:
    place = f"{Path(site.file).name}:{site.line}"
    return f"{place} {site.refusal}" + (f": {site.detail}" if site.detail else "")


def measure(
    case: Measured,
    mode: str,
    *,
    backend: str = "inductor",
    seed: int = 0,
    fullgraph: bool = True,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Measurement:
    """Build a model and run it eager, compiled as it is, and mended under ``fullgraph``.

    ``on_stage`` is told "eager", "stock" or "mended" as that begins. Raises only what building,
    patching or running the model eagerly raises.
    """
    on_stage("eager")
    _seed(seed)
    model = case.build().train(mode == "train")
    inputs = case.inputs()
    copies = [copy.deepcopy(model) for _ in range(2)]
    calls = itertools.islice(_calls(model, model, inputs, seed + 1), ROUNDS)
    eager = Run(0, None, tuple(calls), ())
    with inductor_config.patch(_SETTINGS):
        _warm_up(backend)
        on_stage("stock")
        stock = _compiled(copies[0], inputs, backend, seed + 1)
        on_stage("mended")
        start = now()
        mended = bcmend.patch(copies[1])
        patching = now().since(start)
        try:
            found = _compiled(mended, inputs, backend, seed + 1, fullgraph=fullgraph)
            refused = bcmend.report(mended).refused
        finally:
            bcmend.unpatch(mended)
    first, later = ratios(stock, found, patching)
    return Measurement(
        name=case.name,
        mode=mode,
        stock_graphs=stock.graphs,
        stock_error=stock.error,
        graphs=found.graphs,
        error=found.error,
        differences=tuple(_own_differences(eager, found, stock, backend)),
        refusals=tuple(sorted({_told(site) for site in refused})),
        first_call=first.wall,
        later_call=later.wall,
        first_call_cpu=first.processor,
        later_call_cpu=later.processor,
        stock_seconds=stock.seconds[0].processor if stock.seconds else 0.0,
        stock_operators=stock.operators,
        operators=found.operators,
    )


def ratios(stock: Run, mended: Run, patching: Seconds) -> tuple[Seconds, Seconds]:
    """Return the first and a later call of mended code over those of stock, 0 where one failed."""
    if mended.steady is None or stock.steady is None:
        return Seconds(0.0, 0.0), Seconds(0.0, 0.0)
    first = _over(patching + mended.seconds[0], stock.seconds[0])
    return first, _over(mended.steady, stock.steady)


def _over(one: Seconds, other: Seconds) -> Seconds:
    processor = one.processor / other.processor if other.processor else 0.0
    return Seconds(one.wall / other.wall, processor)


def _warm(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def _warm_up(backend: str) -> None:
    """Have a back end and bcmend load what they need, which is no time of the first model."""
    torch._dynamo.reset()
    mended = bcmend.patch(_warm)
    torch.compile(mended, backend="eager")(torch.ones(2))
    bcmend.unpatch(_warm)
    weight = torch.ones(2, requires_grad=True)
    found = torch.compile(torch.sin, backend=CountingBackend(backend))(weight)
    found.sum().backward()


def _steady(calls: Iterator[Shown]) -> Seconds:
    """Return the medians of what calls take."""
    taken = []
    for _ in range(_STEADY):
        start = now()
        next(calls)
        taken.append(now().since(start))
    return Seconds(median(each.wall for each in taken), median(each.processor for each in taken))


def _compiled(
    model: Module, inputs: Inputs, backend: str, seed: int, *, fullgraph: bool = False
) -> Run:
    torch._dynamo.reset()
    counting = CountingBackend(backend)
    compiled = torch.compile(model, backend=counting, dynamic=False, fullgraph=fullgraph)
    shown, seconds, error, graphs, operators, steady = [], [], None, [0], 0, None
    calls = _calls(model, compiled, inputs, seed)
    try:
        for _ in range(ROUNDS):
            start = now()
            shown.append(next(calls))
            seconds.append(now().since(start))
            graphs.append(counting.graphs - sum(graphs))
            operators = operators or counting.operators
        steady = _steady(calls)
    except Exception as failure:
        # a model that fails to compile is a finding to report, not the end of the table
        error = _first_line(failure)
    return Run(max(graphs), error, tuple(shown), tuple(seconds), steady, operators)
