"""Iterators that the arms of a branch advance.

A loop that is left on a tensor goes on in one arm and not in the other, so that the state of its
iterator differs afterwards. Nobody can tell where nothing else holds the iterator. A generator is
set back like an iterator (``snapshots``), unless it stands in a block that has an exit of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch._dynamo.variables import LazyVariableTracker
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.functions import LocalGeneratorObjectVariable

from bcmend.names import PREFIX
from bcmend.runtime import frames, snapshots
from bcmend.runtime.per_trace import kept

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


@contextmanager
def ending(tx: Any, *, returns: bool) -> Iterator[None]:
    """For the length of a block, know that what is traced goes on to the end of the frame."""
    frames = _ending_frames(tx)
    if returns:
        frames.append(tx)
    try:
        yield
    finally:
        if returns:
            frames.pop()


def _ending_frames(tx: Any) -> list[Any]:
    return kept(tx.output, "ending_frames", list)


def end_here(
    tx: Any,
    consumed: Sequence[VariableTracker],
    results: Sequence[VariableTracker],
    *,
    returns: bool = False,
) -> bool:
    """Whether nobody can see, after the branch, what has become of the objects in ``consumed``.

    ``returns`` says that the frame ends with the branch.
    """
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
    held = _held_by_frames(tx, [*_ending_frames(tx), *([tx] if returns else [])])
    for value in (*results, *held, *effects.store_attr_mutations.values()):
        VariableTracker.visit(note, value, cache, side_effects=effects)
    return not seen


def _was_made_here(variable: VariableTracker) -> bool:
    """Whether the trace made an object; of a range's iterator, Dynamo does not track changes."""
    kind = variable.mutation_type
    return variable.source is None and (kind is None or isinstance(kind, ValueMutationNew))


def _held_by_frames(tx: Any, but: Sequence[Any]) -> Iterator[Any]:
    """Yield what the frames being traced hold under names of the program, and in their operands.

    Operands themselves are left out: a loop has its own iterator there, which it drops where it is
    left.
    """
    for frame in frames.being_traced(tx):
        if not any(frame is each for each in but):
            yield from _values(frame.symbolic_locals.items())
            yield from (vars(each) for each in frame.stack if not _is_left_out(each))


def _is_left_out(operand: VariableTracker) -> bool:
    """Whether an operand is the iterator of a loop, or was there before the call."""
    return type(operand) is LazyVariableTracker or snapshots.is_consumable(operand)


def _values(pairs: Iterable[tuple[str, VariableTracker]]) -> Iterator[VariableTracker]:
    return (value for name, value in pairs if not name.startswith(PREFIX))
