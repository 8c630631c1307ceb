"""What holds a list or a dictionary that the trace has made, beside one live-in of a loop.

Each turn of the loop makes another one in its place. What else held it would not see how that one
is changed, nor be the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from types import CodeType
from typing import Any

from bcmend.analysis.liveness import Liveness, live_before, liveness
from bcmend.bytecode.decode import decode
from bcmend.cfg.graph import Graph, build_graph
from bcmend.dynamo import compat, frames
from bcmend.dynamo.values import Value
from bcmend.names import PREFIX
from bcmend.tracing.output.caller_frames import is_a_part
from bcmend.tracing.sites.refusal import NotThisWay


def require_held_once(
    tx: compat.Tracer, containers: Sequence[Value], leaves: Sequence[Value]
) -> None:
    """Raise ``Refusal`` if anything but one live-in may hold one of some lists or dictionaries.

    ``leaves`` is what all live-ins hold; ``tx`` is at the jump of the loop.
    """
    if not containers:
        return
    around = [*leaves, *_held_around(tx)]
    for position, each in enumerate(containers):
        others = [*containers[:position], *containers[position + 1 :]]
        is_held = any(each is other for other in others) or frames.holds(around, each)
        if is_held or len(_names_of(tx, each)) > 1:
            raise NotThisWay("a turn changes a container that is held elsewhere")


def are_held_beside(tx: compat.Tracer, containers: Sequence[Value], phi: Value) -> bool:
    """Return whether anything but a phi may hold one of some lists or dictionaries of its sides.

    One that stood for both would be another object than the one that is held.
    """
    if not containers:
        return False
    around, of_phi = [*_held_around(tx)], _names_of(tx, phi)
    return any(frames.holds(around, each) or _names_of(tx, each) - of_phi for each in containers)


def _held_around(tx: compat.Tracer) -> Iterator[Value]:
    """Yield what holds values beside the locals of the function itself.

    That is what attributes hold, what was there before the call, operands, and the locals of the
    other frames.
    """
    effects = tx.output.side_effects
    for stored in effects.store_attr_mutations.values():
        yield from stored.values()
    yield from (each for each in effects.id_to_variable.values() if each.source is not None)
    own = _of_the_function(tx)
    for frame in frames.being_traced(tx):
        yield from frame.stack
        if not any(frame is each for each in own):
            yield from frame.symbolic_locals.values()


def _names_of(tx: compat.Tracer, value: Value) -> set[str]:
    """Return the names in the function of what holds a value and may be read from here on."""
    return {
        name
        for frame in _of_the_function(tx)
        for name, held in frame.symbolic_locals.items()
        if not name.startswith(PREFIX) and frames.holds([held], value) and _is_live(frame, name)
    }


def _of_the_function(tx: compat.Tracer) -> list[Any]:
    """Return the frames of the function being traced: those of its parts, and its own."""
    around = list(frames.outwards(tx))
    parts = list(takewhile(lambda frame: is_a_part(frame.f_code), around))
    return around[: len(parts) + 1]


def _is_live(frame: Any, name: str) -> bool:
    """Return whether a local may be read behind the instruction at which a frame is."""
    code = frame.f_code
    if name in code.co_cellvars or name in code.co_freevars:
        return True
    graph, known = _analysis(code)
    at = frame.current_instruction.offset
    later = (i for i, each in enumerate(graph.function.instructions) if each.offset == at)
    found = next(later, None)
    return found is None or name in live_before(graph, known, found + 1)


@cache
def _analysis(code: CodeType) -> tuple[Graph, Liveness]:
    graph = build_graph(decode(code))
    return graph, liveness(graph)
