"""`python -m corpus.sides`: all sides of what is mended in models, each beside eager execution.

Each model is mended, compiled and called as ``bcmend.verify(model, ..., sides="all")`` does it, in
a process of its own with limits of time and memory. With `--resume FILE` results are kept there, a
line each, and what has one is not run again.

Exit code 0 when nothing differs, 1 when something does, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import torch

import bcmend
from bcmend.reports.verdict import Verdict
from corpus import lines
from corpus.architectures.isolation import Limits, OnStage, Stopped, isolated

#: An object, and the arguments of a call of it, in their order and by their names.
Called = tuple[Any, Sequence[Any], Mapping[str, Any]]
#: Of a part, what makes these, by name.
Builds = Mapping[str, Callable[[], Called]]


@dataclass(frozen=True, slots=True)
class Record:
    """What was found of one model.

    Attributes:
        part, name: which.
        backend: of `torch.compile`.
        train: whether gradients were compared.
        sites: how many mended sites have sides.
        counts: how many sides have each status.
        pairs: how many pairs of sides of neighbours were taken, and how many there are.
        not_forced: why sides were not forced, each with how many.
        differs: the first difference; empty where all is equal.
        stopped: why there is nothing of that; else empty.
        seconds: how long it took.
    """

    part: str
    name: str
    backend: str
    train: bool
    sites: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    pairs: tuple[int, int] = (0, 0)
    not_forced: tuple[tuple[str, int], ...] = ()
    differs: str = ""
    stopped: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, bool]:
        return self.part, self.name, self.backend, self.train

    @classmethod
    def of_line(cls, line: str) -> Record:
        return cls(**json.loads(line))

    def __str__(self) -> str:
        counts, taken = dict(self.counts), "{} of {} pairs".format(*self.pairs)
        seen, told = counts.get("seen", 0), counts.get("forced", 0)
        sides = f"{self.sites} sites, {sum(counts.values())} sides: {seen} seen, {told} forced"
        why = "; ".join(f"{count} not forced, {text}" for text, count in self.not_forced)
        end = self.stopped or self.differs or why or "all equal"
        return f"{self.name}: {sides}, {taken}, {self.seconds:.0f} s: {end}"


def _models() -> Builds:
    from corpus.models.registry import CASES

    def build(case: Any) -> Called:
        model, inputs = case.build()
        return model, (), inputs

    return {case.name: partial(build, case) for case in CASES}


def _of_kind(kind: Any) -> Called:
    return kind.build(), (), kind.layouts()[0]


def _towers() -> Builds:
    from corpus.towers.registry import KINDS

    return {kind.name: partial(_of_kind, kind) for kind in KINDS}


def _before() -> Builds:
    from corpus.before.registry import CASES

    return {case.name: partial(_of_kind, case.kind("before")) for case in CASES}


def _architectures() -> Builds:
    from corpus.architectures.building import architecture
    from corpus.architectures.classes import model_types

    def build(name: str) -> Called:
        found = architecture(name)
        return found.build(), (), found.inputs()

    return {name: partial(build, name) for name in model_types()}


def _patterns() -> Builds:
    from corpus.patterns.registry import PATTERNS

    def build(pattern: Any) -> Called:
        call = pattern.inputs()[0]
        return pattern.make(), call.arguments, call.keywords

    return {pattern.name: partial(build, pattern) for pattern in PATTERNS}


def _libraries() -> Builds:
    """The functions and modules of the libraries that are here, one of each in turn, by chance."""
    from corpus.libraries.measure import call_of
    from corpus.libraries.names import found, prepare, sampled
    from corpus.libraries.registry import LIBRARIES

    def build(name: str) -> Called:
        call = call_of(found(name))
        return call.target, call.arguments, call.named

    orders = []
    for library in LIBRARIES.values():
        if find_spec(library.package) is not None:
            prepare(library)
            orders.append(sampled(library))
    names = [name for turn in zip_longest(*orders) for name in turn if name]
    return {name: partial(build, name) for name in names}


PARTS: Final = {
    "models": _models,
    "towers": _towers,
    "before": _before,
    "architectures": _architectures,
    "patterns": _patterns,
    "libraries": _libraries,
}


def measured(part: str, name: str, parsed: argparse.Namespace) -> Record:
    """Return what is found of one model."""
    begun = time.monotonic()
    limits = Limits(seconds=2 * parsed.seconds + 120)
    found = isolated(partial(_verified, part, name, parsed), limits)
    record = Record(part, name, parsed.backend, parsed.train, seconds=time.monotonic() - begun)
    return _with_verdict(record, found)


def _verified(part: str, name: str, parsed: argparse.Namespace, on_stage: OnStage) -> Verdict:
    torch.set_num_threads(1)
    with open("/dev/null", "w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        torch.manual_seed(0)
        obj, arguments, keywords = PARTS[part]()[name]()
        if not parsed.train and isinstance(obj, torch.nn.Module):
            obj.eval()
        on_stage("verify")
        ways = {"backend": parsed.backend, "train": parsed.train, "seconds": parsed.seconds}
        return bcmend.verify(obj, *arguments, sides="all", **ways, **keywords)


def _with_verdict(record: Record, found: Verdict | Stopped) -> Record:
    if isinstance(found, Stopped):
        return replace(record, stopped=f"{found.stage}: {found.reason}")
    differs = "" if found.difference is None else str(found)
    if found.each_call_raised:
        return replace(record, stopped=f"each call raised {found.raised[0]}")
    if found.sides is None:
        return replace(record, differs=differs)
    why = Counter(each.detail for each in found.sides.having("not forced"))
    return replace(
        record,
        sites=found.sides.sites,
        counts=tuple(Counter(each.status for each in found.sides.records).items()),
        pairs=found.sides.pairs,
        not_forced=tuple(why.items()),
        differs=differs,
    )


def summary(records: Sequence[Record]) -> Iterator[str]:
    """Yield a row of a table for each part, and what is not forced."""
    headings = "part, back end, models, sites, sides, seen, forced, not forced, pairs, differ"
    yield f"| {headings.replace(', ', ' | ')} |"
    yield f"|{'---|' * (headings.count(',') + 1)}"
    for part, backend, train in sorted({(each.part, each.backend, each.train) for each in records}):
        rows = [
            each for each in records if each.key[::2] == (part, backend) and each.train is train
        ]
        rows = [each for each in rows if not each.stopped]
        counts: Counter[str] = Counter()
        for each in rows:
            counts.update(dict(each.counts))
        cells = [
            part,
            f"{backend}{', training' if train else ''}",
            len(rows),
            sum(each.sites for each in rows),
            counts.total(),
            counts["seen"],
            counts["forced"],
            counts["not forced"],
            "{} of {}".format(*(sum(each.pairs[place] for each in rows) for place in (0, 1))),
            sum(bool(each.differs) for each in rows),
        ]
        yield f"| {' | '.join(map(str, cells))} |"
    why: Counter[str] = Counter()
    for each in records:
        why.update(dict(each.not_forced))
    yield from (f"{count} not forced: {text}" for text, count in why.most_common())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m corpus.sides",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--backend", default="eager", help="of torch.compile; eager")
    parser.add_argument("--train", action="store_true", help="go backward, in training mode")
    parser.add_argument("--seconds", type=float, default=120.0, help="for one model; 120")
    parser.add_argument("--minutes", type=float, default=20.0, help="begin none after that; 20")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep results there")
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.names) - PARTS[parsed.part]().keys():
        parser.error(f"no {', '.join(sorted(unknown))} among the {parsed.part}")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints, and returns the exit code."""
    parsed = parse(arguments)
    records = lines.read(parsed.resume, Record.of_line)
    done = {each.key for each in records}
    end = time.monotonic() + parsed.minutes * 60
    for name in parsed.names or PARTS[parsed.part]():
        key = (parsed.part, name, parsed.backend, parsed.train)
        if key in done or time.monotonic() > end:
            continue
        records.append(record := measured(parsed.part, name, parsed))
        if parsed.resume is not None:
            lines.append(parsed.resume, record)
        print(record, flush=True)
    print("\n".join(summary(records)))
    return 1 if any(each.differs for each in records) else 0


if __name__ == "__main__":
    sys.exit(main())
