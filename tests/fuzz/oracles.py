"""What a random program is tried against, and what counts as wrong.

Every oracle runs a program in eager execution and in another way, has `tests.equivalence` and
`tests.observation` compare the two, and takes away what docs/deviations.md declares. Reads a
program; produces a `Verdict`.
"""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, Final

import torch

import bcmend
from bcmend.site_report import Report
from tests.equivalence import (
    TOLERANCE,
    CompiledRun,
    fresh,
    leave_unpatched,
    run_compiled,
    run_eagerly,
)
from tests.fuzz.plain import mend_in_place
from tests.fuzz.programs import Program, factory_of, inputs_of
from tests.observation import Observation, differences

SAME: Final = "same"
WRONG: Final = "wrong"
STOCK_TOO: Final = "stock too"  # torch.compile by itself differs in the same call
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


class OutOfTime(BaseException):
    """No handler of a program, or of a compiler, catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in a block that takes longer. Only in the main thread."""

    def stop(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- what is compared ----------------------------------------------------------------------------

# Statements after which a failed check is not followed by a second run in plain Python.
_CHANGES: Final = re.compile(r"\w_\(|\brand|dropout|\] [-+*]?= |[-+*]= ")


def found_differences(
    program: Program,
    original: list[Observation],
    other: list[Observation],
    *,
    exact: bool = False,
    any_random_state: bool = False,
) -> list[str]:
    """Return where `other` is not what `original` is, less what is declared.

    Args:
        program: what was run.
        original: of eager execution.
        other: of another way to run it, each call.
        exact: nothing is declared.
        any_random_state: the state of random number generators is left out.
    """
    found: list[str] = []
    for number, (one, two) in enumerate(zip(original, other, strict=True)):
        tolerance = TOLERANCE if program.training and not exact else 0.0
        here = [
            f"call {number}: {each}"
            for each in differences(
                _with_plain_output(one),
                _with_plain_output(two),
                tolerance=tolerance,
                may_copy=not exact,
                zero_gradients=not exact,
                any_random_state=any_random_state,
            )
        ]
        found += here
        failed = one.raised is not None
        if here and not exact and failed and _CHANGES.search(program.body):
            return found[: -len(here)]  # and the state that later calls begin with is another
        if here:
            return found
    return found


_HISTORY: Final = re.compile(r", (grad_fn=<[^>]*>|requires_grad=True)")


def _with_plain_output(one: Observation) -> Observation:
    """Take the history of tensors out of what was written."""
    events = tuple(
        tuple(_HISTORY.sub("", part) if isinstance(part, str) else part for part in event)
        for event in one.events
    )
    return replace(one, events=events)


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
    bcmend.patch(subject)
    once = function.__code__
    bcmend.patch(subject)
    if function.__code__ is not once:
        yield "patching twice: another code object"
    bcmend.unpatch(subject)
    if function.__code__ is not code:
        yield "unpatch: another code object"


def mended_in_plain_python(program: Program) -> Verdict:
    """Mended code in CPython, each branch and record as its stand-in makes it."""
    inputs, original = inputs_of(program), _reference(program)
    other = run_eagerly(mend_in_place(program), inputs, training=program.training, patched=False)
    return _verdict(found_differences(program, original, other, exact=True))


def compiled(program: Program, backend: str = "eager", *, fullgraph: bool = False) -> Verdict:
    """A patched program under `torch.compile`, and where that differs, stock `torch.compile`."""
    make, inputs = fresh(factory_of(program)), inputs_of(program)
    original = _reference(program)
    loose = backend == "inductor"

    def run(**options: Any) -> CompiledRun:
        return run_compiled(
            make, inputs, backend=backend, training=program.training, fullgraph=fullgraph, **options
        )

    found = run()
    sites = _sites(found.report)
    wrong = found_differences(program, original, list(found.observations), any_random_state=loose)
    if not wrong and found.graphs <= 1:
        return Verdict(SAME, (), sites)
    stock = run(way=leave_unpatched)
    of_stock = found_differences(
        program, original, list(stock.observations), any_random_state=loose
    )
    if wrong and _first_call(of_stock) <= _first_call(wrong):
        return Verdict(STOCK_TOO, tuple(wrong), sites)
    if not wrong and not of_stock and found.graphs > stock.graphs > 0:
        wrong = [f"graphs: {found.graphs}, and {stock.graphs} of stock torch.compile"]
    return Verdict(WRONG if wrong else SAME, tuple(wrong), sites)


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
}


def judge(oracle: str, program: Program, seconds: float = 60.0) -> Verdict:
    """Run an oracle; a crash of bcmend outside the program is wrong, too long a run is slow."""
    try:
        with time_limit(seconds):
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
