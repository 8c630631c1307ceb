"""Planted bugs: ``python -m tests.fuzz.planted``. What share of them does the fuzzer find?

Each is a monkeypatch of one function of bcmend. They are applied one at a time, each in a process of
its own, until the fuzzer finds a difference that is not there without the bug, or time is over.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from tests.fuzz.jobs import quiet
from tests.fuzz.oracles import NO_REFERENCE, SAME, STOCK_TOO, WRONG, judge
from tests.fuzz.search import search

Wrong = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug.

    Attributes:
        name: what goes wrong.
        place: dotted path of the function that is replaced.
        wrap: makes the wrong function of the right one.
    """

    name: str
    place: str
    wrap: Callable[[Any], Wrong]


PLANTED: list[Planted] = []


def _plant(name: str, place: str) -> Callable[[Callable[[Any], Wrong]], Callable[[Any], Wrong]]:
    def keep(wrap: Callable[[Any], Wrong]) -> Callable[[Any], Wrong]:
        PLANTED.append(Planted(name, f"bcmend.{place}", wrap))
        return wrap

    return keep


def _plant_result(name: str, place: str, result: object) -> None:
    """Plant a function that does nothing and returns `result`."""
    PLANTED.append(Planted(name, f"bcmend.{place}", lambda right: lambda *a, **k: result))


# --- merging and lowering ------------------------------------------------------------------------


@_plant("where chooses the other side", "runtime.lower.by_where")
def _where(right: Any) -> Wrong:
    from bcmend.runtime import lower

    return lambda tx, predicate, *more: right(tx, lower.negated(tx, predicate), *more)


@_plant("cond runs the other side", "runtime.lower.by_cond")
def _cond(right: Any) -> Wrong:
    from bcmend.runtime import lower

    return lambda tx, predicate, *more: right(tx, lower.negated(tx, predicate), *more)


@_plant("no gate keeps the gradients of the untaken side back", "runtime.lower._Gate.__call__")
def _gate(right: Any) -> Wrong:
    return lambda self, outer: outer


@_plant("an arm changes the tensor itself, not a copy", "runtime.lower._own_copy")
def _no_copy(right: Any) -> Wrong:
    def wrong(tx: Any, outer: Any, gate: Any) -> Any:
        entered = gate(outer)
        entered.node.meta["example_value"] = outer.node.meta["example_value"]
        return entered

    return wrong


_plant_result(
    "what an arm changed in place is not written back", "runtime.in_place.write_back", None
)


@_plant("constants that differ become the first", "runtime.merge._merge_constants")
def _constants(right: Any) -> Wrong:
    return lambda one, other: lambda merged: one


@_plant("an int and a float that are equal become one", "runtime.merge._merge_constants")
def _kinds(right: Any) -> Wrong:
    def wrong(one: Any, other: Any) -> Any:
        same = one.as_python_constant() == other.as_python_constant()
        return (lambda merged: one) if same else right(one, other)

    return wrong


@_plant("tensors of different dtypes are merged", "runtime.merge.difference")
def _dtypes(right: Any) -> Wrong:
    return lambda one, other: right(one, other.to(one.dtype))


_plant_result("a merged alias that is changed later is not noticed", "runtime.watches.add", None)


@_plant("an operation that may fail is speculated", "runtime.ladder.weigh")
def _speculated(right: Any) -> Wrong:
    return lambda policy, hazards, *more: right(
        policy, [dataclasses.replace(each, partial="") for each in hazards], *more
    )


@_plant("random numbers of both sides are drawn", "runtime.ladder.weigh")
def _drawn(right: Any) -> Wrong:
    return lambda policy, hazards, *more: right(
        policy, [dataclasses.replace(each, random="") for each in hazards], *more
    )


# --- effects -------------------------------------------------------------------------------------

_plant_result("stores of arms are lost", "runtime.ladder.apply_changes", None)


@_plant("the predicate is not applied to a store", "runtime.changes._create_later")
def _unconditional(right: Any) -> Wrong:
    from bcmend.runtime import lower

    def wrong(tx: Any, site: Any, predicate: Any, *more: Any) -> Any:
        always = lower.either(tx, predicate, lower.negated(tx, predicate))
        creation, value = more
        return right(tx, site, always, dataclasses.replace(creation, taken=True), value)

    return wrong


_plant_result(
    "what an arm did to lists stays while the other is traced",
    "runtime.snapshots.Remembered.restore",
    None,
)


@_plant("a side that is kept for later is the other", "runtime.choices._resolved")
def _resolved(right: Any) -> Wrong:
    from bcmend.runtime import choices

    def wrong(value: Any, seen: Any) -> Any:
        if choices.is_choice(value):
            mark, condition, one, other = value
            value = (mark, condition, other, one)
        return right(value, seen)

    return wrong


# --- output and exceptions -----------------------------------------------------------------------


@_plant("an arm's output appears under the other side", "runtime.ladder._append_under")
def _other_side(right: Any) -> Wrong:
    return lambda tx, predicate, draft, taken, values: right(
        tx, predicate, draft, not taken, values
    )


@_plant("records are delivered twice", "runtime.boundary.deliver")
def _twice(right: Any) -> Wrong:
    def wrong(buffer: Any) -> None:
        buffer[:] = [*buffer, *buffer]
        right(buffer)

    return wrong


@_plant("records are delivered in reverse", "runtime.boundary.deliver")
def _reverse(right: Any) -> Wrong:
    def wrong(buffer: Any) -> None:
        buffer.reverse()
        right(buffer)

    return wrong


@_plant("printed tensors are not kept as they were", "runtime.sinks._snapshot_tensor")
def _late(right: Any) -> Wrong:
    return lambda tx, site, value: value


@_plant("a check fails where it holds", "runtime.guards.make_side_exit")
def _check(right: Any) -> Wrong:
    from bcmend.runtime import lower

    return lambda tx, site, predicate: right(tx, site, lower.negated(tx, predicate))


_plant_result("a check is left out", "runtime.side_exits.add", None)
_plant_result("an exception passes its handler by", "runtime.guards.handled_by_a_caller", False)


# --- truths and loops ----------------------------------------------------------------------------


@_plant("torch.equal says the contrary", "runtime.truths._answered")
def _contrary(right: Any) -> Wrong:
    from bcmend.runtime import truths

    def wrong(answer: Any, *more: Any) -> Any:
        if answer is not truths._equal:
            return right(answer, *more)

        def contrary(tx: Any, input: Any, other: Any) -> Any:
            found = truths._equal(tx, input, other)
            return truths.lower.negated(tx, found) if hasattr(found, "as_proxy") else found

        return right(contrary, *more)

    return wrong


@_plant("a number is tested as float32", "runtime.scalars._python_like")
def _narrow(right: Any) -> Wrong:
    import torch

    return lambda example: torch.int64


@_plant("a condition of a loop is the last turn's", "runtime.loops._unless_no_turn")
def _no_turn(right: Any) -> Wrong:
    return lambda tx, first, before, after, stays_if: right(tx, first, before, after, not stays_if)


@_plant("in a half, the condition has the other truth", "runtime.splits._half")
def _halves(right: Any) -> Wrong:
    return lambda tx, arm, condition, truth: right(tx, arm, condition, not truth)


# --- rewriting -----------------------------------------------------------------------------------


@_plant("a live-in is forgotten", "rewrite.branch._inputs")
def _live_in(right: Any) -> Wrong:
    def wrong(*arguments: Any, **keywords: Any) -> Any:
        found = right(*arguments, **keywords)
        return found[:-1] if isinstance(found, tuple) else found

    return wrong


@_plant("live-outs come back in another order", "rewrite.write._pack_results")
def _live_out(right: Any) -> Wrong:
    return lambda outputs, extra: right(tuple(reversed(outputs)), extra)


@_plant("else is lost: both sides go to the first arm", "rewrite.write.CodeWriter._write_entry")
def _else(right: Any) -> Wrong:
    def wrong(self: Any, stretch: Any, number: int, member: Any, *, taken: bool) -> None:
        right(self, stretch, number, member, taken=True)

    return wrong


@_plant("operands of a larger expression change places", "rewrite.write._operand_names")
def _operand(right: Any) -> Wrong:
    return lambda lowering: right(lowering)[::-1]


@_plant("a keyword of a call is dropped", "codeobj.assemble.lower")
def _keyword(right: Any) -> Wrong:
    from bcmend.codeobj.decode import Instruction

    def wrong(instructions: Any, *more: Any) -> Any:
        units = [
            Instruction("NOP", None, None, each.location) if each.op == "KW_NAMES" else each
            for each in instructions
        ]
        return right(units, *more)

    return wrong


@_plant("handlers do not cover what was moved", "rewrite.write.CodeWriter._with_tries")
def _tries(right: Any) -> Wrong:
    return lambda self, stretch: (right(self, stretch)[0], [])


@_plant("lines are wrong", "codeobj.line_table.encode")
def _lines(right: Any) -> Wrong:
    return lambda runs, previous_line: right(runs, previous_line + 1)


@_plant("reading a mark is not noticed", "rewrite.unbound._fail_if_marked")
def _marks(right: Any) -> Wrong:
    return lambda shape, name, location: iter(())


@_plant("a check holds the other way round", "rewrite.branch.propose_guard")
def _contrary_guard(right: Any) -> Wrong:
    def wrong(*arguments: Any) -> Any:
        found = right(*arguments)
        if not hasattr(found, "raises_if"):
            return found
        return dataclasses.replace(found, raises_if=not found.raises_if)

    return wrong


@_plant("exits are taken for one another", "rewrite.exits._Sharing._kind")
def _exits(right: Any) -> Wrong:
    return lambda self, leaving: "same"


@_plant("too small a stack", "codeobj.assemble.check_depths")
def _depth(right: Any) -> Wrong:
    return lambda *arguments: max(right(*arguments) // 4, 1)


_plant_result("unpatch leaves the code", "install._remove_one", False)


# --- trying them ---------------------------------------------------------------------------------

_SHARES: Final = {"eager": 0.05, "plain": 0.2, "compiled": 0.45, "fullgraph": 0.3}
_RIGHT: Final = (SAME, STOCK_TOO, NO_REFERENCE)


@contextmanager
def applied(bug: Planted) -> Iterator[None]:
    """Have a bug for the length of a block."""
    path, _, name = bug.place.rpartition(".")
    owner = _resolved_path(path)
    with mock.patch.object(owner, name, bug.wrap(getattr(owner, name))):
        yield


def _resolved_path(path: str) -> Any:
    from pkgutil import resolve_name

    return resolve_name(path)


def find(bug: Planted, seconds: float, seed: int) -> tuple[str, float, int, str]:
    """Search until a difference is due to a bug; return oracle, time, programs and the difference.

    The oracle is empty if nothing was found.
    """
    begun, count, left = time.monotonic(), 0, seconds
    while left > 0:
        found = None
        with applied(bug):
            for tried in search(seed + count, left, _SHARES, limit=30.0):
                count += 1
                if tried.verdict.kind == WRONG:
                    found = tried
                    break
        if found is None:
            break
        # What is wrong without the bug too is another one.
        if judge(found.oracle, found.program).kind in _RIGHT:
            first = found.verdict.differences[0]
            return found.oracle, time.monotonic() - begun, count, first
        left = seconds - (time.monotonic() - begun)
    return "", time.monotonic() - begun, count, ""


def _find(number: int, seconds: float, seed: int, queue: Any) -> None:
    quiet()
    queue.put(find(PLANTED[number], seconds, seed))


def _row(number: int, seconds: float, seed: int) -> tuple[str, bool]:
    """Try one bug in a process of its own, which it may bring down."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_find, args=(number, seconds, seed, queue))
    begun = time.monotonic()
    process.start()
    found = None
    while found is None and time.monotonic() - begun < seconds + 120:
        try:
            found = queue.get(timeout=2)
        except Exception:
            if not process.is_alive():
                break
    crashed = found is None and bool(process.exitcode)
    if process.is_alive():
        process.join(5)
        process.kill()
    took = time.monotonic() - begun
    oracle, seconds_taken, count, what = found or ("crash" if crashed else "", took, 0, "")
    what = what.partition("\n")[0].replace("|", "/")[:60]
    name = PLANTED[number].name
    return f"| {name} | {oracle or 'not found'} | {seconds_taken:.0f} s | {count} | {what} |", bool(
        oracle
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the bugs; the exit status is how many were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.planted", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="for each bug")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="which of how many parts of the list")
    given = parser.parse_args(arguments)
    part, parts = map(int, given.part.split("/"))
    chosen = range(part, len(PLANTED), parts)
    print("| planted bug | found by | after | programs | first difference |\n|---|---|---|---|---|")
    missed = 0
    for number in chosen:
        row, found = _row(number, given.seconds, given.seed)
        print(row, flush=True)
        missed += not found
    print(f"\n{len(chosen) - missed} of {len(chosen)} found", flush=True)
    return missed


if __name__ == "__main__":
    from tests.fuzz.planted import main as run

    sys.exit(run())
