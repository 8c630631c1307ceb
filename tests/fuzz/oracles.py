"""What a random program is tried against, and what counts as wrong.

Every oracle runs a program in eager execution and in another way, has `tests.equivalence` and
`tests.observation` compare the two, and takes away what docs/deviations.md declares. Reads a
program; produces a `Verdict`.
"""

from __future__ import annotations

import gc
import random
import re
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Final, Protocol

import torch

import bcmend
from bcmend.reports.site_report import Report
from tests.equivalence import (
    TOLERANCE,
    CompiledRun,
    Make,
    fresh,
    leave_unpatched,
    run_compiled,
    run_eagerly,
)
from tests.fuzz.declared import (
    is_declared_end,
    is_of_a_piece,
    is_of_no_stride,
    is_of_warm_code,
    without_nan,
    without_tracebacks,
)
from tests.fuzz.exported import found_in_export
from tests.fuzz.plain import mend_in_place
from tests.fuzz.programs import Program, factory_of, inputs_of, policy_of
from tests.fuzz.sides import found_on_all_sides
from tests.fuzz.surface import found_on_the_surface
from tests.observation import Event, Interruption, Observation, differences
from tests.registrations import registrations_undone

SAME: Final = "same"
WRONG: Final = "wrong"
STOCK_TOO: Final = "stock too"  # torch.compile by itself differs in the same call
MORE_GRAPHS: Final = "more graphs"  # than stock, but no call is in more pieces and smaller ones
SLOW: Final = "slow"
NO_REFERENCE: Final = "no reference"  # its backward pass fails in eager execution


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an oracle says.

    `differences` are those that count, `sites` what became of the program's sites.
    """

    kind: str
    differences: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


class Pieces(Protocol):
    """The sizes of the graphs that each call of a compiled program has run."""

    @property
    def pieces(self) -> tuple[tuple[int, ...], ...]: ...


class OutOfTime(Interruption):
    """No handler of a program, or of a compiler, catches it."""


#: After how many seconds a block is told once more.
_AGAIN: Final = 2.0


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in a block that takes longer. Only in the main thread.

    What counts is the time of the processor, since a machine may be busy with other things; a block
    that waits for something gets ten times as long. It is raised again while the block goes on:
    what Python calls by itself, such as a method that deletes an object, loses an exception.
    """

    def stop(_: int, frame: FrameType | None) -> None:
        if _is_not_to_be_left(frame):
            signal.setitimer(signal.ITIMER_PROF, 0.1, _AGAIN)  # until it is done
            return
        raise OutOfTime

    clocks = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {name: signal.signal(name, stop) for name in clocks}
    signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds, _AGAIN)
    try:
        yield
    finally:
        for name, clock in clocks.items():
            signal.signal(name, signal.SIG_IGN)  # one that has come by now would set its clock anew
            signal.setitimer(clock, 0)
            signal.signal(name, before[name])


def _is_not_to_be_left(frame: FrameType | None) -> bool:
    """Return whether an exception would end the process, or be lost.

    C++ code of the backward pass is on the stack, or the garbage collector, or what measures the
    coverage, which would keep a lock.
    """
    # By identity: code that Dynamo writes may have constants that have no hash.
    collecting = {id(getattr(each, "__code__", None)) for each in gc.callbacks}
    while frame is not None:
        if frame.f_code.co_name == "_engine_run_backward" or id(frame.f_code) in collecting:
            return True
        if str(frame.f_globals.get("__name__")).startswith("coverage."):
            return True
        frame = frame.f_back
    return False


# --- what is compared ----------------------------------------------------------------------------


def found_differences(
    program: Program,
    original: list[Observation],
    other: list[Observation],
    *,
    exact: bool = False,
    any_random_state: bool = False,
    kept: bool = False,
) -> list[str]:
    """Return where `other` is not what `original` is, less what is declared.

    Args:
        program: what was run.
        original: of eager execution.
        other: of another way to run it, each call.
        exact: nothing is declared.
        any_random_state: the state of random number generators is left out.
        kept: some output is left alone.
    """
    policy = policy_of(program)
    drops = not exact and policy.output == "drop"
    is_off = any(each.endswith(":output") for each in policy.off)
    keeps = not exact and (kept or is_off or policy.output == "keep")
    for number, (one, two) in enumerate(zip(original, other, strict=True)):
        if not exact and is_declared_end(program, one, two):
            return []
        reorders = program.training or any_random_state  # gradients, and Inductor
        tolerance = TOLERANCE if reorders and not exact else 0.0
        here = [
            f"call {number}: {each}"
            for each in differences(
                _with_plain_output(one, dropped=drops, kept=keeps),
                _with_plain_output(two, dropped=drops, kept=keeps),
                tolerance=tolerance,
                may_copy=not exact,
                zero_gradients=not exact,
                any_random_state=any_random_state,
            )
            if not is_of_warm_code(one, each)
        ]
        here = [each for each in here if not _is_of_an_address(each)]
        if not exact:
            here = [each for each in here if not is_of_no_stride(each)]
        if not exact and len(here) == 1:
            here = [each for each in here if not is_of_a_piece(program, one, each[8:])]
        if here:
            return here
    return []


def _is_of_an_address(found: str) -> bool:
    """Return whether two texts, of an exception for one, differ in addresses alone."""
    texts = _ADDRESS.sub("0x", found).split(": str ", 1)[-1].split(" and str ")
    return len(texts) == 2 and texts[0] == texts[1]


# A record of the log names the function in which Dynamo goes on behind a break.
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+")
_HISTORY: Final = re.compile(r", (grad_fn=<[^>]*>|requires_grad=True)")


def _with_plain_output(one: Observation, *, dropped: bool, kept: bool) -> Observation:
    """Take the history of tensors, and what a break adds, out of what was written.

    And what torch writes about a graph of its back end "aot_eager" that fails, and about functions
    of its own that are deprecated, as is declared.
    """
    if dropped:
        return replace(one, events=())
    shown = without_tracebacks if kept else str
    events = tuple(
        tuple(shown(plain_text(part)) if isinstance(part, str) else part for part in event)
        for event in one.events
        if not (event[0] == "stderr" and _OF_A_GRAPH in str(event[1]))
        and not (event[:2] == ("warning", "FutureWarning") and _OF_TORCH in str(event[2]))
    )
    return replace(one, events=events)


#: How torch/fx/graph_module.py begins to show the code of a graph that fails.
_OF_A_GRAPH: Final = "Call using an FX-traced Module, line "

#: How torch says that one of its functions is deprecated.
_OF_TORCH: Final = "will be removed in a future PyTorch release"

_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]{6,}")


#: Who calls a program, and what stands in for the runtime in plain Python, is no part of it.
_OUTSIDE: Final = tuple(str(Path("tests") / name) for name in ("observation.py", "stand_ins.py"))


def _without_callers(one: Observation) -> Observation:
    """Take out of each log record a place outside of the program, in which it was asked for.

    And the traceback of an exception, which has the functions that stand for regions in it; and the
    globals, of which stand-ins name others.
    """
    events = tuple(_without_caller(event) if event[0] == "log" else event for event in one.events)
    parts = {key: each for key, each in (one.state.parts or {}).items() if key != "['globals']"}
    return replace(one, events=events, state=replace(one.state, parts=parts))


def _without_caller(event: Event) -> Event:
    return event[:4] if str(event[4]).endswith(_OUTSIDE) else event[:8]


def plain_text(text: str) -> str:
    return _ADDRESS.sub("0x", _RESUMED.sub(r"\1", _HISTORY.sub("", text)))


# --- the oracles ---------------------------------------------------------------------------------


class NoReference(Exception):
    """A program cannot be run in eager execution to the end."""


def _reference(program: Program) -> list[Observation]:
    try:
        return run_eagerly(
            factory_of(program), inputs_of(program), training=program.training, patched=False
        )
    except RuntimeError as error:  # what a backward pass needs was changed in place
        raise NoReference from error


def patched_eagerly(program: Program) -> Verdict:
    """A patched program in eager execution: there is no difference, and `unpatch` restores it."""
    make, inputs = factory_of(program), inputs_of(program)
    original = _reference(program)
    patched = run_eagerly(make, inputs, training=program.training, patched=True)
    found = found_differences(program, original, patched, exact=True)
    return _verdict([*found, *_not_restored(make())])


def _not_restored(subject: Any) -> Iterator[str]:
    function = subject if isinstance(subject, FunctionType) else type(subject).forward
    code = function.__code__
    bcmend.patch(subject, policy=bcmend.Policy(mend="ahead"))
    once = function.__code__
    bcmend.patch(subject)
    if function.__code__ is not once:
        yield "patching twice: another code object"
    bcmend.unpatch(subject)
    if function.__code__ is not code:
        yield "unpatch: another code object"


_STACKLEVEL: Final = re.compile(r"stacklevel=\d+")

# An arm names an unbound variable that functions share otherwise than the frame itself does. Where
# Dynamo traces it, it is the original code that raises in the end.
_OF_A_CELL: Final = "cannot access free variable"


def mended_in_plain_python(program: Program) -> Verdict:
    """Mended code in CPython: all of it, and then some of it, with wider forms and splits.

    Stand-ins have other callers than the program, and so no statement names those.
    """
    program = replace(program, body=_STACKLEVEL.sub("stacklevel=1", program.body))
    inputs, original = inputs_of(program), _reference(program)
    found: list[str] = []
    for source in (None, random.Random(program.text)):
        make = mend_in_place(program, source)
        other = run_eagerly(make, inputs, training=program.training, patched=False)
        here = found_differences(
            program,
            [_without_callers(each) for each in original],
            [_without_callers(each) for each in other],
            exact=True,
        )
        if not any(_OF_A_CELL in each for each in here) and not _is_asked_elsewhere(here):
            found += [each for each in here if not _shows_stand_ins(each)]
    return _verdict(found)


def _shows_stand_ins(difference: str) -> bool:
    """Return whether it is a traceback in the output, of an exception through a stand-in."""
    is_of_output = re.match(r"call \d+: events: ", difference) is not None
    return is_of_output and ("stand_ins.py" in difference or "fuzz/plain.py" in difference)


def _is_asked_elsewhere(found: list[str]) -> bool:
    """Return whether it is a stand-in that makes a bool of a condition, which fails there."""
    return all("raised.['where']" in each for each in found) and "stand_ins.py" in str(found)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A program that is compiled in several ways, and what it does in eager execution."""

    program: Program
    backend: str
    original: list[Observation]

    def run(self, policy: bcmend.Policy | None, *, fullgraph: bool) -> CompiledRun:
        """Compile the program, patched or, without a policy, as it is."""

        def patch_then_compile(make: Make, options: Mapping[str, Any]) -> tuple[Any, Any]:
            subject = bcmend.patch(make(), policy=policy)
            return subject, torch.compile(subject, **options)

        return run_compiled(
            fresh(factory_of(self.program)),
            inputs_of(self.program),
            backend=self.backend,
            training=self.program.training,
            fullgraph=fullgraph,
            way=leave_unpatched if policy is None else patch_then_compile,
        )

    def wrong_with(self, one: CompiledRun) -> list[str]:
        sites = [] if one.report is None else one.report.sites
        return found_differences(
            self.program,
            self.original,
            list(one.observations),
            any_random_state=self.backend == "inductor",
            kept=any(each.kind == "output" and each.refusal for each in sites),
        )


def compiled(program: Program, backend: str = "eager", *, fullgraph: bool = False) -> Verdict:
    """A patched program under `torch.compile`, and where that differs, stock `torch.compile`."""
    trial = _Trial(program, backend, _reference(program))
    try:
        found = trial.run(policy_of(program), fullgraph=fullgraph)
    except RuntimeError as error:
        if backend == "eager" and _IN_PLACE in str(error):
            return compiled(program, "aot_eager", fullgraph=fullgraph)
        if _AGAIN_BACKWARD in str(error):
            return Verdict(SAME)
        raise
    wrong = trial.wrong_with(found)
    if found.graphs <= 1 and not wrong:
        return Verdict(SAME, (), _sites(found.report))
    return _beside_stock(trial, found, wrong, fullgraph=fullgraph)


def _beside_stock(
    trial: _Trial, found: CompiledRun, wrong: list[str], *, fullgraph: bool
) -> Verdict:
    """Compare what differs, and how many graphs there are, with stock `torch.compile`.

    A refusal breaks the graph, as stock does; a wrong value is compared with what it gives where
    the graph may break.
    """
    sites = _sites(found.report)
    try:
        stock = trial.run(None, fullgraph=fullgraph and _is_refused(found))
    except RuntimeError:  # in its backward pass
        return Verdict(STOCK_TOO if wrong else SAME, tuple(wrong), sites)
    if not wrong and found.graphs - found.empty > stock.graphs - stock.empty:
        text = f"graphs: {found.graphs}, and {stock.graphs} of stock torch.compile"
        return Verdict(WRONG if is_broken_up_more(found, stock) else MORE_GRAPHS, (text,), sites)
    if wrong and _first_call(trial.wrong_with(stock)) <= _first_call(wrong):
        return Verdict(STOCK_TOO, tuple(wrong), sites)
    if wrong and fullgraph and _is_wrong_in_one_graph(trial, wrong):
        return Verdict(STOCK_TOO, tuple(wrong), sites)
    if wrong and _is_declared(trial, found, fullgraph=fullgraph):
        wrong = []
    return Verdict(WRONG if wrong else SAME, tuple(wrong), sites)


#: What a backward pass says that a side which was not taken has made impossible, as is declared: a
#: back end that makes changes in place as they are written fails then.
_IN_PLACE: Final = "has been modified by an inplace operation"
#: And of a merged value that the program has kept, which may be a leaf in eager execution.
_AGAIN_BACKWARD: Final = "Trying to backward through the graph a second time"


def _is_wrong_in_one_graph(trial: _Trial, wrong: list[str]) -> bool:
    """Return whether stock `torch.compile` has one graph, with the same differences."""
    stock = trial.run(None, fullgraph=True)
    return not _is_refused(stock) and trial.wrong_with(stock) == wrong


def _is_declared(trial: _Trial, found: CompiledRun, *, fullgraph: bool) -> bool:
    """Return whether other ways to compile a program show that a difference is declared."""
    return _is_zero_times_infinity(trial, found, fullgraph=fullgraph) or _is_left_out(
        trial, found, fullgraph=fullgraph
    )


def _is_left_out(trial: _Trial, found: CompiledRun, *, fullgraph: bool) -> bool:
    """Return whether a call that fails in eager execution does not: AOTAutograd left that out.

    The back end "eager" runs the same graph with all that is in it.
    """
    pairs = zip(trial.original, found.observations, strict=True)
    if trial.backend == "eager" or all(one.raised is None or two.raised for one, two in pairs):
        return False
    other = replace(trial, backend="eager")
    return not other.wrong_with(other.run(policy_of(trial.program), fullgraph=fullgraph))


def _is_zero_times_infinity(trial: _Trial, found: CompiledRun, *, fullgraph: bool) -> bool:
    """Return whether nothing differs but gradients that are NaN, and those before the branches.

    A side that does not run has no gradients.
    """
    program = trial.program
    pairs = zip(trial.original, found.observations, strict=True)
    less = [without_nan(one, two) for one, two in pairs]
    if not program.training or found_differences(program, trial.original, less):
        return False
    one_side = replace(policy_of(program), branch="cond")
    return bool(trial.wrong_with(trial.run(one_side, fullgraph=fullgraph)))


def is_broken_up_more(found: Pieces, stock: Pieces) -> bool:
    """Return whether some call runs in more graphs than with stock, none larger or with more in it.

    A call may be compiled anew more often than stock's pieces of it, since one graph of the whole
    has all their guards; and it may run in more graphs where stock leaves a frame to eager
    execution: then there are operations in them that stock has in none.
    """
    both = zip(found.pieces, stock.pieces, strict=True)
    sizes = ([[*filter(None, ran)] for ran in pair] for pair in both)
    return any(
        len(ours) > len(stocks) > 0
        and sum(ours) * len(stocks) <= sum(stocks) * len(ours)
        and sum(ours) - sum(stocks) < len(ours) - len(stocks)
        for ours, stocks in sizes
    )


def _is_refused(run: CompiledRun) -> bool:
    """Return whether a call ended with an exception of the compiler's."""
    raised = [one.raised for one in run.observations if one.raised is not None]
    return any(
        each.parts is None or each.parts["['type']"].text.startswith("'torch.") for each in raised
    )


def _first_call(found: list[str]) -> float:
    numbers = [int(each.split()[1].rstrip(":")) for each in found if each.startswith("call ")]
    return min(numbers, default=float("inf"))


def _sites(report: Report | None) -> tuple[str, ...]:
    if report is None:
        return ()
    words = (
        f"{site.kind} {site.lowering}" if site.status == "mended" else f"refused {site.refusal}"
        for site in report.sites
        if site.status != "planned"
    )
    return tuple(words)


def _verdict(found: list[str]) -> Verdict:
    return Verdict(WRONG if found else SAME, tuple(found))


ORACLES: Final[dict[str, Callable[[Program], Verdict]]] = {
    "eager": patched_eagerly,
    "plain": mended_in_plain_python,
    "compiled": compiled,
    "fullgraph": lambda program: compiled(program, fullgraph=True),
    "aot_eager": lambda program: compiled(program, "aot_eager"),
    "inductor": lambda program: compiled(program, "inductor"),
    "exported": lambda program: _verdict(list(found_in_export(program))),
    "sides": lambda program: _verdict(list(found_on_all_sides(program))),
    "surface": lambda program: _verdict(list(found_on_the_surface(program))),
}


def judge(oracle: str, program: Program, seconds: float = 30.0) -> Verdict:
    """Run an oracle; a crash of bcmend outside the program is wrong, too long a run is slow."""
    torch.set_printoptions(profile="default")  # what another program has set
    try:
        with registrations_undone(), time_limit(seconds):
            return ORACLES[oracle](program)
    except OutOfTime:
        return Verdict(SLOW, (f"more than {seconds:.0f} seconds",))
    except NoReference:
        return Verdict(NO_REFERENCE)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"crash: {type(error).__name__}: {str(error)[:200]} at {where.filename}:{where.lineno}"
        )
        return Verdict(WRONG, (text,))
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
