"""A case by one of its calls: both sides of each branch of it, as ``bcmend.verify`` takes them."""

from __future__ import annotations

from typing import Final

import bcmend
from bcmend.errors import TrialError
from tests.matrix.comparison import (
    DIFFERS,
    LEFT_OUT,
    ONE_GRAPH,
    Verdict,
    inputs_of,
    isolated,
)
from tests.matrix.programs import Case, module_of, source_of

#: For the calls of one case, and for its process.
_SECONDS: Final = 20.0
_ALL_SECONDS: Final = 90.0


def judge_all_sides(case: Case, backend: str) -> Verdict:
    """Compare calls of a case that are told which sides to take, eager and mended.

    What stock differs in as well does not count, and what the inputs show without being told is
    what ``judge`` compares.
    """
    found = isolated(lambda: _verdict(case, backend), _ALL_SECONDS)
    return found if isinstance(found, Verdict) else Verdict(LEFT_OUT, str(found))


def _verdict(case: Case, backend: str) -> Verdict:
    program, state, is_argument, _ = module_of(source_of(case)).make()
    x, p = inputs_of(case, 0, taken=case.first)
    given = (x, p, state) if is_argument else (x, p)
    more = {"train": case.training, "backend": backend, "sides": "all", "seconds": _SECONDS}
    try:
        found = bcmend.verify(program, *given, runs=1, **more)
    except (TrialError, bcmend.CallError) as error:
        return Verdict(LEFT_OUT, str(error))
    if found.sides is None or not found.sides.records:
        return Verdict(LEFT_OUT, "no site has sides")
    told = tuple(f"{each.side} {each.status}" for each in found.sides.records)
    for each in found.sides.differences:
        if each.forced and not each.stock:
            what = f"{each.aspect} {each.where}: {each.eager}, mended {each.mended}"
            return Verdict(DIFFERS, f"{what}, told {each.forced}", sites=told)
    return Verdict(ONE_GRAPH, sites=told)
