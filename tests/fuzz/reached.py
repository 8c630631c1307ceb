"""Which lines and branches of bcmend fuzzing reaches: ``python -m tests.fuzz --coverage``.

Searches in this process, with all oracles and with mutated functions, and measures what is run.
Nothing of bcmend may be imported before the measuring begins, so this module imports nothing of it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Final

import coverage


@dataclass(frozen=True, slots=True)
class Excluded:
    """Lines that match a pattern, with the blocks that they begin, are left out for a reason."""

    pattern: str
    reason: str


#: What no program can reach here.
EXCLUDED: Final = (
    Excluded(r"if TYPE_CHECKING:", "read by the type checker alone"),
    Excluded(r"raise AssertionError|^\s*assert ", "states what cannot be"),
    Excluded(r"except (ImportError|PackageNotFoundError)", "an installation without a library"),
    Excluded(r"if (not )?behavior\.(HAS|IS|KEEPS|LOAD|JUMPS)\w*:$", "another version of Python"),
    Excluded(r"\.is_cuda\b.*:$|_on_accelerator\(.*:$|device\.type .*:$", "an accelerator"),
)
#: Conditions that have one outcome here.
PARTIAL: Final = (Excluded(r"behavior\.", "another version of Python"),)

#: Seconds that one program may take: what is slow comes to little in the end.
_LIMIT = 8.0
#: Of the time, how much mutated functions get.
_MUTATIONS = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for some minutes, then print what was reached of each file, and of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz --coverage", description=__doc__)
    parser.add_argument("--coverage", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the processor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--oracles", default="", help="separated by commas; all by default")
    parser.add_argument("--missing", action="store_true", help="list the lines not reached")
    given = parser.parse_args(arguments)
    terminal = sys.stdout
    measured = coverage.Coverage(data_file=None, branch=True, source=["bcmend"], config_file=False)
    for each in EXCLUDED:
        measured.exclude(each.pattern)
    for each in PARTIAL:
        measured.exclude(each.pattern, which="partial")
    measured.start()
    seconds = given.minutes * 60
    kinds = _search(given.seed, seconds * (1 - _MUTATIONS), given.oracles)
    mutations = importlib.import_module("tests.fuzz.mutations")
    mutations.main(["torch.nn", "--minutes", str(given.minutes * _MUTATIONS)])
    measured.stop()
    sys.stdout = terminal
    text = StringIO()
    measured.report(file=text, show_missing=given.missing, skip_covered=False)
    print(kinds, text.getvalue(), sep="\n")
    return 0


def _search(seed: int, seconds: float, oracles: str) -> str:
    jobs = importlib.import_module("tests.fuzz.jobs")
    searching = importlib.import_module("tests.fuzz.search")
    jobs.quiet()
    names = oracles.split(",") if oracles else list(searching.SHARES)
    tally = jobs.Tally()
    shares = {name: searching.SHARES[name] for name in names}
    first = seed * searching.SEEDS_OF_A_JOB
    for tried in searching.search(first, seconds, shares, _LIMIT, clock=time.process_time):
        tally.add(tried)
    return "\n".join(tally.lines())
