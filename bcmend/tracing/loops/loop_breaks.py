"""Whether Dynamo stops within a loop, asked of the code that the user wrote.

Dynamo does not compile a frame whose graph breaks within a loop. It looks for a jump back in what
follows, up to the first return; mended code has returns where the original has none.

Works round ``InstructionTranslatorBase.maybe_has_backedge`` (torch/_dynamo/symbolic_convert.py), to
which a return within the loop hides the jump back. Reproduced on torch 2.13.0; no issue is known.
What is asked of the original code can go when
``test_a_return_hides_from_dynamo_that_it_stops_in_a_loop`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails; ``breaks_around`` stays.
"""

from __future__ import annotations

import dis
import math
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any, Final

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import RETURNS
from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.sites import body_states, site_table
from bcmend.weak_tables import ByIdentity

#: What an instruction does, and its source position.
_Place = tuple[str | int | None, ...]

_JUMPS: Final = frozenset([*dis.hasjrel, *dis.hasjabs])
_IN_LOOPS: Final[ByIdentity[CodeType, frozenset[_Place]]] = ByIdentity()


@hooks.around(
    compat.InstructionTranslatorBase,
    methods.HAS_BACKWARD_JUMP,
    "graph breaks within loops of mended code",
    gate=hooks.first,
)
def _may_go_back(inner: Any, tx: compat.Tracer) -> bool:
    for frame in frames.outwards(tx):
        origin = _origin(frames.resumed(frame.f_code))
        here = frame.current_instruction
        if origin is None or here.positions is None:
            continue
        if (operation(here), *here.positions) in _IN_LOOPS.setdefault(
            origin, partial(places_in_loops, origin)
        ):
            return True
    return bool(inner(tx))


def _origin(code: CodeType) -> CodeType | None:
    """Return what mended code was written for, known by its sites."""
    return next((site.origin for site in _sites_of(code)), None)


def _sites_of(code: CodeType) -> Iterator[site_table.LiveSite]:
    found = (site_table.find(each) for each in code.co_consts if isinstance(each, str))
    return (each for each in found if each is not None)


def breaks_around(tx: compat.Tracer, site: site_table.LiveSite) -> bool:
    """Return whether a site stands in a loop whose own test has been found to break the graph.

    Dynamo does not compile such a loop if what the site replaces breaks the graph in it. With the
    site mended, each turn would be a graph of its own.
    """
    if not body_states.may_break(tx.output.root_tx.f_code):
        return False
    offset = -1 if site.plan is None else site.plan.offset
    return any(
        each.plan is not None
        and each.plan.place is not None
        and each.outcome.refused
        and offset in _loop_at(each.origin, each.plan.offset)
        for each in _sites_of(frames.resumed(tx.f_code))
    )


def _loop_at(code: CodeType, test: int) -> range:
    """Return the offsets of the innermost loop that has a jump, its test, at an offset."""
    for each in dis.get_instructions(code):
        # A test that is written a second time is known by an offset in the jump back.
        if each.offset + 4 > test and each.opcode in _JUMPS and each.argval <= test:
            return range(each.argval, each.offset + 1)
    return range(0)


def places_in_loops(code: CodeType) -> frozenset[_Place]:
    """Return where Dynamo would find a jump back in what follows.

    The test of a loop stands twice at one place: before the loop, and at its end.
    """
    inside: set[_Place] = set()
    outside: set[_Place] = set()
    lowest = math.inf  # to which a jump goes behind here, before the next return
    for each in reversed(list(dis.get_instructions(code))):
        found = inside if lowest < each.offset else outside
        found.add((operation(each), *(each.positions or ())))
        if operation(each) in RETURNS:
            lowest = math.inf
        elif each.opcode in _JUMPS:
            lowest = min(lowest, each.argval)
    return frozenset(inside - outside)
