"""``python -m tests.opinfo``: every entry of the database in every program, or a part of it.

Cases that are in the file of ``--resume`` are not run again; it gets a line for each case.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("BCMEND_STRICT", "1")

from tests.opinfo.comparison import Case, Verdict, cases, judge
from tests.opinfo.entries import entries

_SECONDS_PER_CASE = 120


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=__doc__)
    parser.add_argument("--entries", default="", metavar="PATTERN", help="of their names")
    parser.add_argument("--cases", default="", metavar="PATTERN", help="of the names of cases")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--resume", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    known: set[str] = set()
    if given.resume is not None and given.resume.exists():
        known = {json.loads(each)["case"] for each in given.resume.read_text().splitlines()}
    chosen = [each for each in entries() if re.search(given.entries, each.name)]
    left = [each for each in cases(chosen) if re.search(given.cases, str(each))]
    end, found = time.monotonic() + given.seconds, Counter[str]()
    for case in (each for each in left if str(each) not in known):
        if time.monotonic() > end:
            found["not run"] += 1
            continue
        verdict = _judged(case, given.backend)
        found[verdict.status] += 1
        if verdict.status == "wrong":
            print(f"{case}: {verdict.detail}", flush=True)
        if given.resume is not None:
            line = {"case": str(case), "status": verdict.status, "detail": verdict.detail}
            line |= {"graphs": verdict.graphs, "stock": verdict.stock_graphs}
            with given.resume.open("a") as file:
                file.write(json.dumps(line) + "\n")
    print(dict(found))
    return 1 if found["wrong"] else 0


def _judged(case: Case, backend: str) -> Verdict:
    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS_PER_CASE)
    try:
        return judge(case, backend)
    except Exception as error:  # of the database, mostly
        return Verdict("left out", f"{type(error).__name__}: {error}")
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    sys.exit(main())
