"""Which lines and branches of bcmend fuzzing reaches: ``python -m tests.fuzz --coverage``.

Searches in this process, with all oracles and with mutated functions, and measures what is run.
Nothing of bcmend may be imported before the measuring begins, so this module imports nothing of it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from io import StringIO

import coverage

#: Of the time, how much mutated functions get.
_MUTATIONS = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for some minutes, then print what was reached of each file, and of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz --coverage", description=__doc__)
    parser.add_argument("--coverage", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--oracles", default="", help="separated by commas; all by default")
    parser.add_argument("--missing", action="store_true", help="list the lines not reached")
    given = parser.parse_args(arguments)
    terminal = sys.stdout
    measured = coverage.Coverage(data_file=None, branch=True, source=["bcmend"], config_file=False)
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
    for tried in searching.search(seed, seconds, shares):
        tally.add(tried)
    return "\n".join(tally.lines())
