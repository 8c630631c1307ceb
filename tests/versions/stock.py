"""``python -m tests.versions.stock FILE``: what torch captures of each pattern by itself.

Each pattern of `corpus/patterns` is compiled by stock `torch.compile` under ``fullgraph=True`` with
the back end "eager", called with all of its inputs, and compared with eager execution. The file
gets a line for each; patterns that it has for the running torch and Python are not run again.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

from corpus.patterns import PATTERNS, Pattern
from tests.equivalence import fresh, leave_unpatched, run_compiled, run_eagerly
from tests.observation import Observation, differences
from tests.versions.record import DIFFERS, FAILS, WHOLE, Record, append, read, running


def main() -> None:
    """Run the patterns that the file does not have."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions.stock", description=__doc__)
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args().file
    logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
    pair, known = running(), read(file)
    for pattern in PATTERNS:
        if (pair, pattern.name) not in known:
            began = time.perf_counter()
            outcome = captured(pattern)
            seconds = round(time.perf_counter() - began, 2)
            append(file, [Record(pair, pattern.name, outcome, seconds)])


def captured(pattern: Pattern) -> str:
    """Return what becomes of a pattern with stock."""
    make = fresh(pattern.make)
    eager = run_eagerly(make, pattern.inputs, training=False, patched=False)
    compiled = run_compiled(make, pattern.inputs, way=leave_unpatched).observations
    pairs = list(zip(eager, compiled, strict=True))
    if any(_fails(*each) for each in pairs):
        return FAILS
    return WHOLE if all(not _differences(pattern, *each) for each in pairs) else DIFFERS


def _fails(eager: Observation, compiled: Observation) -> bool:
    """Return whether a call raises where eager execution does not, or an exception of Dynamo."""
    if compiled.raised is None:
        return False
    return eager.raised is None or eager.raised.kind != compiled.raised.kind


def _differences(pattern: Pattern, one: Observation, other: Observation) -> list[str]:
    return list(
        differences(
            one,
            other,
            may_copy=pattern.may_copy,
            any_random_state=pattern.any_random_state,
        )
    )


if __name__ == "__main__":
    main()
