"""Runs one kind of code eager, compiled as it is, mended, and by hand, through the same calls.

Each way has a module of its own from one seed, and goes through twenty calls, one layout after the
other. In training each layout is two steps from the same weights, forward, backward and optimizer.
Graphs are counted where they are compiled and where they run: one that is compiled anew for each
layout is no good, and neither is a call in which none runs any more.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_map

import bcmend
from bcmend.reports.outcomes import SiteRecord
from corpus.models.compare import differences
from corpus.models.measure import CountingBackend
from corpus.towers.kind import Inputs, Kind
from corpus.transformers5.measure import TOLERANCE

MODES: Final = ("eval", "train")
BACKENDS: Final = ("counting", "inductor")
#: How a module is compiled: as it is, mended, each also under fullgraph=True; by hand.
WAYS: Final = ("stock", "stock, fullgraph", "mended", "mended, fullgraph", "by hand")
CALLS: Final = 20
#: How often all layouts are called before a time is taken, and how often then: the median counts.
_WARM: Final = 3
_TIMED: Final = 9

OnStage = Callable[[str], None]


class RunningBackend(CountingBackend):
    """A back end that also counts the graphs that run."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ran = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        compiled = super().__call__(graph, inputs)

        def run(*arguments: Any) -> Any:
            self.ran += 1
            return compiled(*arguments)

        return run


@dataclass(frozen=True, slots=True)
class Shown:
    """What one call showed: its result or its error, and what it left behind.

    ``weights``: the loss, its gradients and the parameters after a step; none in evaluation.
    """

    result: object
    arguments: Inputs
    attributes: Mapping[str, object]
    weights: Mapping[str, object]
    raised: bool


@dataclass(frozen=True, slots=True)
class Way:
    """What became of all calls in one way.

    ``ran``: graphs, call by call, of calls that eager execution does not end with an exception;
    ``compiled``: of all calls. ``operators``: in the graphs of the first call.
    ``error``: what a call raised that eager execution did not raise, with which the calls ended.
    ``differences``: from eager execution.
    """

    ran: tuple[int, ...] = ()
    compiled: tuple[int, ...] = ()
    operators: int = 0
    error: str | None = None
    differences: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether each call was one graph, and equal to eager execution."""
        return self.error is None and not self.differences and set(self.ran) == {1}


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured of one kind in one mode.

    ``ways``: by name; ``refusals``: sites that are left as they are; ``later_call``: seconds of a
    mended call, once nothing is compiled any more, over those by hand. ``stopped``: how the process
    ended that should have measured it.
    """

    name: str
    mode: str
    backend: str
    ways: Mapping[str, Way] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    later_call: float | None = None
    stopped: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What was run."""
        return self.name, self.mode, self.backend

    @property
    def faults(self) -> tuple[str, ...]:
        """Where mended code differs from eager execution, or fails though it may break."""
        found = [self.stopped] if self.stopped else []
        if mended := self.ways.get("mended"):
            found += [mended.error] if mended.error else []
            found += mended.differences
        if fullgraph := self.ways.get("mended, fullgraph"):
            found += [f"fullgraph: {each}" for each in fullgraph.differences]
        return tuple(found)


def _copied(value: Any) -> Any:
    return tree_map(lambda each: each.detach().clone() if isinstance(each, Tensor) else each, value)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _tensors(getattr(value, each.name))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


def _loss(output: object) -> Tensor | None:
    terms = [each.double().square().sum() for each in _tensors(output) if each.requires_grad]
    return torch.stack(terms).sum() if terms else None


def _attributes(model: Module) -> dict[str, object]:
    """What modules have beside weights: fields that a call may set."""
    return {
        f"{name}.{field}": _copied(value)
        for name, module in model.named_modules()
        for field, value in vars(module).items()
        if not field.startswith("_")
    }


def _weights(model: Module, output: object, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    """Make a step of training, and return its loss, gradients and what parameters are then."""
    optimizer.zero_grad(set_to_none=True)
    loss = _loss(output)
    if loss is not None:
        loss.backward()
        optimizer.step()
    named = dict(model.named_parameters())
    gradients = {name: _copied(each.grad) for name, each in named.items()}
    return {"loss": _copied(loss), "gradients": gradients, "parameters": _copied(named)}


def first_line(error: BaseException) -> str:
    """Return an exception in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _calls(
    model: Module, call: Callable[..., Any], layouts: Sequence[Inputs], *, by_hand: bool = False
) -> Iterator[Shown]:
    """Go through all calls; in training with two steps for each layout.

    ``by_hand``: the call gets the numbers that the model reads out of the arguments.
    """
    start = _copied(model.state_dict())
    steps = 2 if model.training else 1
    for number in range(CALLS):
        arguments = _copied(layouts[number // steps % len(layouts)])
        if number % steps == 0:
            model.load_state_dict(start)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        weights: dict[str, object] = {}
        try:
            if by_hand:
                arguments = _numbers(model, arguments)
            with torch.set_grad_enabled(model.training):
                output, raised = call(**arguments), False
            if model.training:
                weights = _weights(model, output, optimizer)
        except Exception as error:
            # what a call raises is something that it shows, and is compared
            output, raised = first_line(error), True
        yield Shown(_copied_output(output), arguments, _attributes(model), weights, raised)


def _numbers(model: Module, arguments: Inputs) -> Inputs:
    with torch.no_grad():
        return model.numbers(**arguments)


def _copied_output(value: object) -> object:
    """Keep whether a tensor needs a gradient, but not its graph."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _copied_output(getattr(value, each.name)) for each in fields(value)}
    return tree_map(
        lambda each: (
            each.detach().clone().requires_grad_(each.requires_grad)
            if isinstance(each, Tensor)
            else each
        ),
        value,
    )


def _differences(eager: Shown, other: Shown, backend: str) -> Iterator[str]:
    tolerance = TOLERANCE[backend]
    exact = tolerance if backend == "inductor" else 0.0
    yield from differences(eager.result, other.result, "output", exact)
    yield from differences(eager.arguments, other.arguments, "arguments", exact)
    yield from differences(eager.attributes, other.attributes, "attributes", exact)
    yield from differences(eager.weights, other.weights, "weights", tolerance)


def eager_calls(kind: Kind, mode: str, seed: int = 0, calls: int = CALLS) -> list[Shown]:
    """Return what the first ``calls`` calls of a kind show in eager execution."""
    model = kind.build(seed).train(mode == "train")
    return list(itertools.islice(_calls(model, model, kind.layouts()), calls))


def _compiled(
    model: Module,
    call: Callable[..., Any],
    layouts: Sequence[Inputs],
    eager: Sequence[Shown],
    backend: str,
    *,
    fullgraph: bool = False,
    by_hand: bool = False,
) -> Way:
    """Compile a call and go through all, up to one that raises what eager does not."""
    torch._dynamo.reset()
    counting = RunningBackend(backend)
    compiled = torch.compile(call, backend=counting, fullgraph=fullgraph)
    ran: list[int] = []
    made: list[int] = []
    operators = 0
    error: str | None = None
    found: list[str] = []
    before = (0, 0)
    for number, shown in enumerate(_calls(model, compiled, layouts, by_hand=by_hand)):
        if shown.raised and shown.result != eager[number].result:
            error = f"call {number}: {shown.result}"
            break
        if not eager[number].raised:
            ran.append(counting.ran - before[0])
        made.append(counting.graphs - before[1])
        before = (counting.ran, counting.graphs)
        operators = operators or counting.operators
        differing = _differences(eager[number], shown, backend)
        found += [f"call {number}: {each}" for each in differing]
    return Way(tuple(ran), tuple(made), operators, error, tuple(found))


def _told(site: SiteRecord) -> str:
    place = f"{Path(site.file).name}:{site.line}"
    return f"{place} {site.refusal}" + (f": {site.detail}" if site.detail else "")


def calls_by_hand(kind: Kind, mode: str, seed: int = 0) -> list[Shown]:
    """Return what the calls by hand show in eager execution."""
    model = kind.build(seed).train(mode == "train")
    return list(_calls(model, model.by_hand, kind.layouts(), by_hand=True))


def _by_hand(kind: Kind, mode: str, backend: str, seed: int) -> Way:
    """Compare by hand with by hand: arguments and errors of these calls are their own."""
    model = kind.build(seed).train(mode == "train")
    eager = calls_by_hand(kind, mode, seed)
    return _compiled(model, model.by_hand, kind.layouts(), eager, backend, by_hand=True)


def measure(
    kind: Kind,
    mode: str = "eval",
    *,
    backend: str = "counting",
    seed: int = 0,
    timed: bool = False,
    ways: Sequence[str] = WAYS,
    on_stage: OnStage = lambda stage: None,
) -> Measurement:
    """Measure a kind in each of ``ways``; ``on_stage`` is told the name of each as it begins.

    With ``timed`` a later call is timed too. Raises only what building or patching raises.
    """
    on_stage("eager")
    eager = eager_calls(kind, mode, seed)
    found: dict[str, Way] = {}
    refusals: set[str] = set()
    for way in ways:
        if way == "by hand" and not kind.has_by_hand:
            continue
        on_stage(way)
        if way == "by hand":
            found[way] = _by_hand(kind, mode, backend, seed)
            continue
        model = kind.build(seed).train(mode == "train")
        arguments = (model, kind.layouts(), eager, backend)
        fullgraph = way.endswith("fullgraph")
        if way.startswith("stock"):
            found[way] = _compiled(model, *arguments, fullgraph=fullgraph)
            continue
        bcmend.patch(model)
        try:
            found[way] = _compiled(model, *arguments, fullgraph=fullgraph)
            refusals |= {_told(site) for site in bcmend.report(model).refused}
        finally:
            bcmend.unpatch(model)
    later = None
    if timed and kind.has_by_hand and found["mended"].error is None:
        on_stage("later call")
        later = _later_call(kind, mode, backend, seed)
    torch._dynamo.reset()
    return Measurement(kind.name, mode, backend, found, tuple(sorted(refusals)), later)


def _later_call(kind: Kind, mode: str, backend: str, seed: int) -> float:
    """Return the time of all layouts once mended, over that by hand, one after the other."""
    model = kind.build(seed).train(mode == "train")
    layouts, handed_in = [], []
    for each in kind.layouts():
        with contextlib.suppress(ValueError):  # numbers that do not fit are not timed
            handed_in.append(_numbers(model, each))
            layouts.append(each)
    by_hand = _seconds(model, model.by_hand, handed_in, backend)
    bcmend.patch(model)
    try:
        return _seconds(model, model, layouts, backend) / by_hand
    finally:
        bcmend.unpatch(model)


def _seconds(
    model: Module, call: Callable[..., Any], layouts: Sequence[Inputs], backend: str
) -> float:
    torch._dynamo.reset()
    compiled = torch.compile(call, backend=CountingBackend(backend))
    taken = []
    for _ in range(_WARM + _TIMED):
        start = perf_counter()
        for arguments in layouts:
            _once(model, compiled, arguments)
        taken.append(perf_counter() - start)
    return median(taken[_WARM:])


def _once(model: Module, call: Callable[..., Any], arguments: Inputs) -> None:
    """Call, and in training go back through the loss."""
    with torch.set_grad_enabled(model.training):
        output = call(**arguments)
    loss = _loss(output) if model.training else None
    if loss is not None:
        loss.backward()
