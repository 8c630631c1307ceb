"""``python -m tests.matrix``: programs that cover all pairs, or a part of them.

Prints every program that differs from eager execution where stock does not. Programs that are in
the file of ``--resume`` are not run again; it gets a line for each program.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("BCMEND_STRICT", "1")

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.matrix.all_sides import judge_all_sides
from tests.matrix.comparison import (
    DIFFERS,
    WORSE,
    first_difference,
    isolated_run,
    judge,
    prepare,
)
from tests.matrix.programs import (
    CONSTRUCT,
    EFFECT,
    OBSERVER,
    Case,
    body_of,
    case_of,
    covering,
    kind_of,
)
from tests.matrix.surroundings import SURROUNDINGS
from tests.matrix.table import Record, page_of, summary_of

_JUDGES: Final = {"calls": judge, "sides": judge_all_sides}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="EFFECT|CONSTRUCT|OBSERVER")
    parser.add_argument("--around", choices=SURROUNDINGS, help="what stands round each call")
    parser.add_argument("--every", action="store_true", help="every effect, not one of a kind")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--oracle", choices=_JUDGES, default="calls", help="or all sides of one")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--resume", type=Path, metavar="FILE")
    parser.add_argument("--write", type=Path, metavar="PATH", help="the page of the documentation")
    parser.add_argument("--show", metavar="'EFFECT | CONSTRUCT | OBSERVER'")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    prepare(given.backend)
    if given.show:
        return _show(given)
    records = _known(given.resume)
    done = {each.case for each in records}
    left = [each for each in _chosen(given) if each not in done]
    wrong = 0
    for record in _judged(left, given):
        records.append(record)
        wrong += record.verdict.status in (DIFFERS, WORSE)
        if given.resume is not None:
            with given.resume.open("a") as file:
                file.write(json.dumps(record.as_row()) + "\n")
    print(summary_of(records))
    if given.write is not None:
        given.write.write_text(page_of(records, given.backend), encoding="utf-8")
    return 1 if wrong else 0


def _known(path: Path | None) -> list[Record]:
    if path is None or not path.exists():
        return []
    return [Record.of_row(json.loads(each)) for each in path.read_text().splitlines()]


def _chosen(given: argparse.Namespace) -> list[Case]:
    """Return the cases of the seed; with a name, those of the effect or kind, or what it is of."""
    only = given.only
    if only in EFFECT:
        triples = [each for each in covering(given.seed, every=True) if each[0] == only]
    else:
        triples = covering(given.seed, every=given.every)
        names = ({kind_of(each[0]), *each[1:]} for each in triples)
        triples = [each for each, of in zip(triples, names, strict=True) if not only or only in of]
    if not triples:
        raise SystemExit(f"nothing is called {only!r}")
    return [case_of(each, given.seed, given.around) for each in triples]


def _judged(cases: Sequence[Case], given: argparse.Namespace) -> Iterator[Record]:
    """Yield what becomes of cases, while there is time."""
    end = time.monotonic() + given.minutes * 60
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[found]}"),
    )
    work = functools.partial(_record, backend=given.backend, oracle=given.oracle)
    pool: Any = nullcontext()
    if given.jobs > 1:
        pool = multiprocessing.get_context("fork").Pool(given.jobs)
    wrong = 0
    with pool as workers, Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(cases), found="")
        records = workers.imap_unordered(work, cases) if workers else map(work, cases)
        for record in records:
            if record.verdict.status in (DIFFERS, WORSE):
                wrong += 1
                progress.console.print(_line_of(record), markup=False, highlight=False)
            progress.update(task, advance=1, found=f"{wrong} found; {record.case.name}")
            yield record
            if time.monotonic() > end:
                return


def _record(case: Case, backend: str, oracle: str) -> Record:
    begun = time.monotonic()
    return Record(case, _JUDGES[oracle](case, backend), round(time.monotonic() - begun, 2))


def _line_of(record: Record) -> str:
    verdict = record.verdict
    graphs = f"{verdict.graphs} graphs, {verdict.stock_graphs} with stock"
    return (
        f"{verdict.status}: {record.case.name} ({record.case.options}): {verdict.mended or graphs}"
    )


def _show(given: argparse.Namespace) -> int:
    """Print a program, and what eager execution, stock and mended code do."""
    names = [each.strip() for each in given.show.split("|")]
    tables: tuple[dict[str, Any], ...] = (EFFECT, CONSTRUCT, OBSERVER)
    known = [name in table for name, table in zip(names, tables, strict=False)]
    if len(names) != 3 or known != [True] * 3:
        raise SystemExit("an effect, a construct and an observer, with | between them")
    case = case_of((names[0], names[1], names[2]), given.seed, given.around)
    print(body_of(case), case.options, sep="\n\n")
    eager = isolated_run(case, "eager", given.backend)
    for way in ("stock", "mended"):
        run = isolated_run(case, way, given.backend)
        pieces = [len(each) for each in run.pieces]
        print(f"{way}: {run.graphs} graphs, {pieces} at each call; {', '.join(run.sites)}")
        print(f"    {first_difference(eager, run, given.backend)[1] or 'equal'}")
        for each in dict.fromkeys(run.breaks):
            print(f"    broken: {' '.join(each.split())}")
    print(judge(case, given.backend).status)
    return 0


if __name__ == "__main__":
    sys.exit(main())
