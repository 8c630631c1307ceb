"""What holds a list or a dictionary that the trace has made, beside one live-in of a loop.

Each turn of the loop makes another one in its place. What else held it would not see how that one
is changed, nor be the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bcmend.dynamo import compat
from bcmend.dynamo.values import Value
from bcmend.names import PREFIX
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Root
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
        is_held = any(each is other for other in others) or roots.holds(around, each)
        if is_held or len(_names_of(tx, each)) > 1:
            raise NotThisWay("a turn changes a container that is held elsewhere")


def are_held_beside(tx: compat.Tracer, containers: Sequence[Value], phi: Value) -> bool:
    """Return whether anything but a phi may hold one of some lists or dictionaries of its sides.

    One that stood for both would be another object than the one that is held.
    """
    if not containers:
        return False
    around, of_phi = [*_held_around(tx)], _names_of(tx, phi)
    return any(roots.holds(around, each) or _names_of(tx, each) - of_phi for each in containers)


def _held_around(tx: compat.Tracer) -> Iterator[Value]:
    """Yield what holds values beside the locals of the function itself."""
    own = roots.frames_of_the_function(tx)
    for edge in roots.edges(tx):
        if edge.root is not Root.LOCAL or not edge.is_of(own):
            yield edge.value


def _names_of(tx: compat.Tracer, value: Value) -> set[str]:
    """Return the names in the function of what holds a value and may be read from here on."""
    return {
        name
        for frame in roots.frames_of_the_function(tx)
        for name, held in frame.symbolic_locals.items()
        if not name.startswith(PREFIX) and roots.holds([held], value) and roots.is_live(frame, name)
    }
