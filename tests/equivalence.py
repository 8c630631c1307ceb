"""Whether a patched program is the original, seen from outside, and how many graphs it takes.

Reads a factory of a program and one of its inputs; runs the original in eager execution, the
patched program in eager execution and the patched program compiled, each from the same seed and
each through all calls on one object; produces a `Comparison`, or asserts that it is flawless.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final

import numpy
import torch
from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler
from torch.fx._lazy_graph_module import _LazyGraphModule

import bcmend
from bcmend.reports.site_report import Report
from tests.named_globals import globals_of
from tests.observation import Observation, differences, observe

Make = Callable[[], Any]
Inputs = Callable[[], Sequence["Call"]]

_SEED: Final = 20
TOLERANCE: Final = 1e-5  # for compilers that reorder arithmetic


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


def call(*arguments: Any, **keywords: Any) -> Call:
    """The arguments of one call, written as in the call."""
    return Call(arguments, keywords)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found.

    `eager_differences` are those of the patched program in eager execution, `differences` those of
    the compiled one. `graphs` counts what the back end compiled in all calls together, `recompiles`
    the frames that calls after the first had compiled.
    """

    eager_differences: tuple[str, ...]
    differences: tuple[str, ...]
    graphs: int
    recompiles: int
    report: Report | None


class CountingBackend:
    """Another back end, how many graphs it has compiled, how many of them have no operation of the
    program's, and of how many operations those are that have run."""

    def __init__(self, name: str) -> None:
        self.graphs = 0
        self.empty = 0
        self.ran: list[int] = []
        self._inner = torch._dynamo.lookup_backend(name)

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Any:
        size = sum(map(_is_of_the_program, graph.graph.nodes))
        _LazyGraphModule.force_recompile(graph)  # as Dynamo does with what a back end returns
        compiled = self._inner(graph, inputs, **options)
        self.graphs += 1
        self.empty += not size

        def run(*arguments: Any) -> Any:
            self.ran.append(size)
            return compiled(*arguments)

        return run


def _is_of_the_program(node: torch.fx.Node) -> bool:
    """Return whether a node is an operation, and not output that bcmend has put into the graph."""
    return node.op.startswith("call") and not str(node.target).startswith("bcmend.")


# How a program gets patched and compiled. Each returns the program and what to call.

Way = Callable[[Make, Mapping[str, Any]], tuple[Any, Callable[..., Any]]]


def patch_then_compile(make: Make, options: Mapping[str, Any]) -> tuple[Any, Callable[..., Any]]:
    program = bcmend.patch(make())
    return program, torch.compile(program, **options)


def compile_then_patch(make: Make, options: Mapping[str, Any]) -> tuple[Any, Callable[..., Any]]:
    program = make()
    compiled = torch.compile(program, **options)
    bcmend.patch(program)
    return program, compiled


def compile_in_place(make: Make, options: Mapping[str, Any]) -> tuple[Any, Callable[..., Any]]:
    program = bcmend.patch(make())
    program.compile(**options)
    return program, program


def patch_the_class(make: Make, options: Mapping[str, Any]) -> tuple[Any, Callable[..., Any]]:
    """Patch a class, then make the instance that is compiled."""
    random_state = torch.get_rng_state()
    its_class = type(make())
    torch.set_rng_state(random_state)
    bcmend.patch(its_class)
    program = its_class()
    return program, torch.compile(program, **options)


def leave_unpatched(make: Make, options: Mapping[str, Any]) -> tuple[Any, Callable[..., Any]]:
    """Stock `torch.compile`, to compare with."""
    program = make()
    return program, torch.compile(program, **options)


def fresh(make: Make) -> Make:
    """Return `make` with code objects of its own, which neither Dynamo nor bcmend has met."""
    if not isinstance(make, FunctionType):
        return make
    code = _copied(make.__code__)
    return FunctionType(code, make.__globals__, make.__name__, make.__defaults__, make.__closure__)


def _copied(code: CodeType) -> CodeType:
    return code.replace(
        co_consts=tuple(
            _copied(each) if isinstance(each, CodeType) else each for each in code.co_consts
        )
    )


def _seed() -> None:
    torch.default_generator.manual_seed(_SEED)  # others note a traceback where they are not in use
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(_SEED)
    random.seed(_SEED)
    numpy.random.seed(_SEED)


def _calls(inputs: Inputs, training: bool) -> list[Call]:
    calls = list(inputs())
    if training:
        for one in calls:
            for value in (*one.arguments, *one.keywords.values()):
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    value.requires_grad_()
    return calls


def _set_mode(program: Any, training: bool) -> None:
    if isinstance(program, torch.nn.Module):
        program.train(training)


@dataclass(frozen=True, slots=True)
class _Subject:
    """A program, what is called of it, and what reads the globals that belong to it."""

    program: Any
    entry: Callable[..., Any]
    outer: Callable[[], Mapping[str, object]]


def _observe_all(
    subject: _Subject,
    calls: Sequence[Call],
    training: bool,
    begin: Callable[[], None] = lambda: None,
) -> list[Observation]:
    _set_mode(subject.program, training)
    found = []
    for one in calls:
        begin()
        _seed()  # a call may draw more or fewer numbers, and the next one not show it
        found.append(
            observe(
                subject.entry,
                one.arguments,
                one.keywords,
                subject.program,
                training=training,
                outer=subject.outer(),
            )
        )
    return found


def run_eagerly(make: Make, inputs: Inputs, *, training: bool, patched: bool) -> list[Observation]:
    """Run all calls without compiling anything."""
    _seed()
    policy = bcmend.Policy(mend="ahead")  # else nothing would be changed
    with globals_of(make) as outer:
        program = make()
        calls = _calls(inputs, training)
        with bcmend.patched(program, policy=policy) if patched else nullcontext():
            return _observe_all(_Subject(program, program, outer), calls, training)


@dataclass(frozen=True, slots=True)
class CompiledRun:
    """All calls of one compiled program.

    `first_frames` counts what the first of them had compiled; `pieces` has for each call the sizes
    of the graphs that have run; `empty` counts the graphs without an operation of the program's.
    """

    observations: tuple[Observation, ...]
    graphs: int
    first_frames: int
    later_frames: int
    report: Report | None
    pieces: tuple[tuple[int, ...], ...] = ()
    empty: int = 0


def run_compiled(
    make: Make,
    inputs: Inputs,
    *,
    backend: str = "eager",
    fullgraph: bool = True,
    training: bool = False,
    way: Way = patch_then_compile,
) -> CompiledRun:
    """Run all calls on one compiled object, and leave nothing patched or compiled behind."""
    torch._dynamo.reset()
    counting = CountingBackend(backend)
    _seed()
    with _settings_for(backend), globals_of(make) as outer:
        program, compiled = way(make, {"backend": counting, "fullgraph": fullgraph})
        subject = _Subject(program, compiled, outer)
        try:
            calls = _calls(inputs, training)
            ends: list[int] = []

            def begin() -> None:
                ends.append(len(counting.ran))

            with _counted_compilations() as first:
                observations = _observe_all(subject, calls[:1], training, begin)
            with _counted_compilations() as later:
                observations += _observe_all(subject, calls[1:], training, begin)
            begin()
            report = None if way is leave_unpatched else bcmend.report(program, ahead=True)
        finally:
            bcmend.unpatch()
            torch._dynamo.reset()
    counts = (counting.graphs, sum(first), sum(later))
    pieces = tuple(tuple(counting.ran[one:end]) for one, end in itertools.pairwise(ends))
    return CompiledRun(tuple(observations), *counts, report, pieces, counting.empty)


@contextmanager
def _counted_compilations() -> Iterator[list[int]]:
    """Yield a list that gets a 1 for each frame that Dynamo begins to compile."""
    begun: list[int] = []

    def note(arguments: CallbackArgs) -> None:
        if arguments.callback_trigger is CallbackTrigger.DYNAMO:  # not a backward pass
            begun.append(1)

    callback_handler.register_start_callback(note)
    try:
        yield begun
    finally:
        callback_handler.remove_start_callback(note)


def _settings_for(backend: str) -> AbstractContextManager[Any]:
    if backend != "inductor":
        return nullcontext()
    return torch._inductor.config.patch(fallback_random=True)  # type: ignore[no-any-return]


def compare(
    make: Make,
    inputs: Inputs,
    *,
    backend: str = "eager",
    fullgraph: bool = True,
    training: bool = False,
    may_copy: bool = False,
    zero_gradients: bool = False,
    any_random_state: bool = False,
    way: Way = patch_then_compile,
) -> Comparison:
    """Run the original, the patched and the compiled program; arguments as `assert_equivalent`."""
    make = fresh(make)
    original = run_eagerly(make, inputs, training=training, patched=False)
    patched = run_eagerly(make, inputs, training=training, patched=True)
    run = run_compiled(
        make, inputs, backend=backend, fullgraph=fullgraph, training=training, way=way
    )
    tolerance = TOLERANCE if backend == "inductor" else 0.0
    found = [
        f"call {number}: {each}"
        for number, (one, other) in enumerate(zip(original, run.observations, strict=True))
        for each in differences(
            one,
            other,
            tolerance=tolerance,
            may_copy=may_copy,
            zero_gradients=zero_gradients,
            any_random_state=any_random_state or backend == "inductor",
            may_join=backend == "inductor",
        )
    ]
    in_eager = [
        f"call {number}: {each}"
        for number, (one, other) in enumerate(zip(original, patched, strict=True))
        for each in differences(one, other)
    ]
    return Comparison(tuple(in_eager), tuple(found), run.graphs, run.later_frames, run.report)


def assert_equivalent(
    make: Make,
    inputs: Inputs,
    *,
    backend: str = "eager",
    fullgraph: bool = True,
    graphs: int | None = 1,
    recompiles: int | None = 0,
    training: bool = False,
    may_copy: bool = False,
    zero_gradients: bool = False,
    any_random_state: bool = False,
    way: Way = patch_then_compile,
) -> Comparison:
    """Assert that a program, patched and compiled, cannot be told from the original.

    Compared are values (bits; under inductor within `TOLERANCE`), dtypes, shapes, strides,
    `requires_grad`, gradients of arguments and parameters, all state of arguments and program, who
    shares memory with whom, text, log records and warnings in their order, exceptions and the
    state of the random number generators, after every call.

    Args:
        make: builds the program, a function or a module; drawn from one seed each time.
        inputs: builds the arguments of all calls, which should take every path.
        backend: name of the back end under test.
        fullgraph: as for `torch.compile`.
        graphs: how many graphs all calls together have to take; `None` if it does not matter.
        recompiles: how many frames calls after the first may have compiled; `None` for any number.
        training: whether to record gradients and go backward, in training mode.
        may_copy: accept separate tensors where eager execution returns or stores an alias.
        zero_gradients: accept zeros where eager execution leaves a gradient `None`.
        any_random_state: accept another state of the random number generators afterwards.
        way: how the program gets patched and compiled.

    Raises:
        AssertionError: with every difference found.
    """
    found = compare(
        make,
        inputs,
        backend=backend,
        fullgraph=fullgraph,
        training=training,
        may_copy=may_copy,
        zero_gradients=zero_gradients,
        any_random_state=any_random_state,
        way=way,
    )
    wrong = [f"patched, in eager execution: {each}" for each in found.eager_differences]
    wrong += [f"compiled: {each}" for each in found.differences]
    if graphs is not None and found.graphs != graphs:
        wrong.append(f"{found.graphs} graphs, not {graphs}")
    if recompiles is not None and found.recompiles > recompiles:
        wrong.append(f"{found.recompiles} frames compiled after the first call")
    assert not wrong, "\n".join(wrong)
    return found
