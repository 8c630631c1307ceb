"""Iterators that the arms of a branch advance.

A loop that is left on a tensor goes on in one arm and not in the other, so that the state of its
iterator differs afterwards. Nobody can tell where nothing else holds the iterator. A generator is
set back like an iterator (``snapshots``), unless it stands in a block that has an exit of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.functions import LocalGeneratorObjectVariable

from bcmend.names import PREFIX
from bcmend.runtime import snapshots

__all__ = ["end_here", "hold_an_open_generator"]


def hold_an_open_generator(values: Sequence[VariableTracker], effects: Any) -> bool:
    """Whether a generator that stands inside a ``with`` or ``try`` is in ``values``."""
    found: list[VariableTracker] = []

    def note(variable: VariableTracker) -> None:
        if isinstance(variable, LocalGeneratorObjectVariable):
            frame: Any = variable.inline_tracer
            if frame.block_stack:
                found.append(variable)

    snapshots.visit(note, values, effects)
    return bool(found)


def end_here(
    tx: Any, consumed: Sequence[VariableTracker], results: Sequence[VariableTracker]
) -> bool:
    """Whether nobody can see, after the branch, how far the iterators in ``consumed`` have come."""
    if not consumed:
        return True
    if not all(_was_made_here(each) for each in consumed):
        return False
    sought = {id(each) for each in consumed}
    seen: list[VariableTracker] = []

    def note(variable: VariableTracker) -> None:
        if id(variable) in sought:
            seen.append(variable)

    effects = tx.output.side_effects
    cache: dict[int, Any] = {}
    for value in (*results, *_held_by_frames(tx), *effects.store_attr_mutations.values()):
        VariableTracker.visit(note, value, cache, side_effects=effects)
    return not seen


def _was_made_here(iterator: VariableTracker) -> bool:
    """Whether the trace made the iterator; of a range's, Dynamo does not track changes."""
    kind = iterator.mutation_type
    return iterator.source is None and (kind is None or isinstance(kind, ValueMutationNew))


def _held_by_frames(tx: Any) -> Iterator[VariableTracker]:
    """Yield what the frames being traced hold under names of the program.

    Operands are left out: a loop has its own iterator there, which it drops where it is left.
    """
    frame = tx
    while frame is not None:
        yield from _values(frame.symbolic_locals.items())
        frame = getattr(frame, "parent", None)


def _values(pairs: Iterable[tuple[str, VariableTracker]]) -> Iterator[VariableTracker]:
    return (value for name, value in pairs if not name.startswith(PREFIX))
