"""``python -m tests.captures NAME... --minutes M``: tries captures whose names begin with these.

Without ``--minutes`` a few programs of each. A program that differs from eager execution, where
stock torch does not, is printed whole, and the exit code is 1. ``--unused`` lists rows of which
stock torch, with ``fullgraph=True``, captures every call that stands alone: these may go.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import torch

from bcmend.trials.captures import ALONE, programs, taken_by_stock
from tests.captures.running import Capture, chosen, verify


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.captures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--minutes", type=float, default=0.0, help="for all of them together")
    parser.add_argument("--programs", type=int, default=3, help="of each, without --minutes")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--unused", action="store_true")
    parsed = parser.parse_args()
    found = chosen(parsed.names)
    if not found:
        parser.error("nothing has such a name")
    if parsed.unused:
        return _list_unused([each for each in found if each.target is not None], parsed.seed)
    wrong = 0
    begun, share = time.monotonic(), 60 * parsed.minutes / len(found)
    for number, each in enumerate(found, 1):
        until = begun + share * number
        count = None if parsed.minutes else parsed.programs
        options = {"backend": parsed.backend, "trains": parsed.train}
        result = verify(each, parsed.seed, count=count, until=until, **options)
        wrong += len(result.wrong)
        print(each.name, dict(+result.counts), *result.wrong, sep="\n", flush=True)
    print(f"{wrong} programs differ")
    return int(wrong > 0)


def _list_unused(found: list[Capture], seed: str) -> int:
    for each in found:
        tries = programs(each.domain, random.Random(f"{seed} {each.name}"))
        alone = [next(tries) for _ in range(40)]
        alone = [program for program in alone if program.form == ALONE]
        if all(taken_by_stock(program, each.target) for program in alone):
            print(each.name)
    print(f"torch {torch.__version__} captures the rows above by itself")
    return 0


if __name__ == "__main__":
    sys.exit(main())
