"""Tries programs of domains, and says which of them differ from eager execution."""

from __future__ import annotations

import pkgutil
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bcmend.knowledge.domains import Domain
from bcmend.knowledge.substitute_rows import TABLE
from bcmend.trials.captures import ALONE, Program, Tried, programs, tried
from tests.captures.constructs import CONSTRUCTS


@dataclass(frozen=True, slots=True)
class Capture:
    """What is captured: a row of the table, or a construct, which has no ``target``."""

    name: str
    domain: Domain
    target: Callable[..., Any] | None


@dataclass(slots=True)
class Found:
    """What trying a capture has found: how many programs, and those that differ."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, capture: Capture, program: Program, outcome: Tried) -> None:
        """Count a program."""
        self.counts["programs"] += 1
        self.counts["raising calls"] += sum(map(bool, outcome.raised))
        self.counts["alone"] += program.form == ALONE
        self.counts["captured alone"] += outcome.is_one_graph and program.form == ALONE
        self.counts["as stock"] += outcome.difference is not None and outcome.difference.stock
        if outcome.difference is not None and not outcome.difference.stock:
            self.wrong.append(f"{capture.name}, {program.form}:\n{program}\n{outcome.difference}")


def captures() -> list[Capture]:
    """Return all rows and all constructs."""
    rows = [
        Capture(name, row.domain, _found(name))
        for name, row in TABLE.items()
        if row.domain is not None
    ]
    return rows + [Capture(name, each, None) for name, each in CONSTRUCTS.items()]


def _found(name: str) -> Any:
    """Return what a qualified name names; None for what this Python or process lacks."""
    with suppress(AttributeError, ImportError):
        return pkgutil.resolve_name(name)
    return None


def verify(
    capture: Capture, seed: str, *, count: int | None = None, until: float = 0.0, **options: Any
) -> Found:
    """Try ``count`` programs, or such as begin before ``until`` (``time.monotonic``)."""
    found = Found()
    chooser = random.Random(f"{seed} {capture.name}")
    for number, program in enumerate(programs(capture.domain, chooser)):
        if number >= count if count is not None else time.monotonic() >= until:
            return found
        found.note(capture, program, tried(program, capture.target, **options))
    raise AssertionError("programs are without end")


def chosen(names: Iterable[str]) -> list[Capture]:
    """Return the captures whose names begin with one of those; all where there are none."""
    starts = tuple(names)
    return [each for each in captures() if not starts or each.name.startswith(starts)]
