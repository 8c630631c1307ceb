"""Iterators that the arms of a branch advance.

A loop that is left on a tensor goes on in one arm and not in the other, so that the state of its
iterator differs afterwards, which is not observable where nothing else holds the iterator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bcmend.dynamo import compat, hooks, snapshots
from bcmend.dynamo.models import effect_tables, methods, translators
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Edge, Root
from bcmend.tracing.sites.refusal import Refusal


def hold_an_open_generator(values: Sequence[Value], effects: Any) -> bool:
    """Return whether ``values`` hold a generator suspended inside a ``with`` or ``try``.

    ``snapshots`` can set no other generator back than one outside such blocks.
    """
    blocks: list[Any] = []

    def note(variable: Value) -> None:
        if isinstance(variable, compat.LocalGeneratorObjectVariable):
            blocks.extend(translators.blocks_of(translators.frame_of_generator(variable)))

    snapshots.visit(note, values, effects)
    return bool(blocks)


#: The generators that a trace has made.
_MADE: Final[Slot[list[Any]]] = Slot(list, rolls_back=False)


@hooks.around(
    compat.LocalGeneratorFunctionVariable,
    methods.CALL_FUNCTION,
    "generators that arms leave suspended",
)
def _call_generator_function(
    inner: Any, function: Any, tx: compat.Tracer, *args: Any, **kwargs: Any
) -> Value:
    made: Value = inner(function, tx, *args, **kwargs)
    _MADE.of(tx.output).append(made)
    return made


@contextmanager
def none_left_suspended(tx: compat.Tracer) -> Iterator[None]:
    """Refuse a block that makes a generator and leaves it suspended in a ``try`` or ``with``.

    Python closes it when nothing holds it any more, and Dynamo never does.
    """
    made = _MADE.of(tx.output)
    count = len(made)
    try:
        yield
        if any(map(translators.is_suspended_in_a_block, made[count:])):
            raise Refusal("arm-effects", "a generator is left suspended in a try or with")
    finally:
        del made[count:]


@contextmanager
def ending(tx: compat.Tracer, *, returns: bool) -> Iterator[None]:
    """Note that what is traced in a block goes on to the end of the frame, if it ``returns``."""
    ending_frames = _ENDING.of(tx.output)
    if returns:
        ending_frames.append(tx)
    try:
        yield
    finally:
        if returns:
            ending_frames.pop()


_ENDING: Final[Slot[list[Any]]] = Slot(list, rolls_back=False)


def end_here(
    tx: compat.Tracer, consumed: Sequence[Value], left: Sequence[Any], *, returns: bool = False
) -> bool:
    """Return whether nothing holds the objects in ``consumed`` after the branch.

    ``left`` is all that the arms leave behind, in lists and dictionaries; ``returns`` says that the
    frame ends with the branch.
    """
    if not consumed:
        return True
    if not all(_was_made_here(each) for each in consumed):
        return False
    effects, ends = tx.output.side_effects, [*_ENDING.of(tx.output), *([tx] if returns else [])]
    held = (edge.value for edge in roots.edges(tx) if not _is_done_with(edge, ends))
    values = [*left, *held]
    return not any(roots.holds(values, each, effects) for each in consumed)


def runs_code_when_closed(variable: Value) -> bool:
    """Return whether a value is a generator that runs code when it is closed now.

    What it goes over, another generator, is closed with it.
    """
    if not isinstance(variable, compat.LocalGeneratorObjectVariable):
        return False
    if translators.is_exhausted(variable):
        return False
    inside = translators.frame_of_generator(variable).stack
    is_in_a_block = translators.is_suspended_in_a_block(variable)
    return is_in_a_block or any(map(runs_code_when_closed, inside))


def close_in_arms(
    tx: compat.Tracer, arms: Sequence[tuple[Sequence[Value], Sequence[Value]]]
) -> bool:
    """Return whether generators that arms have advanced are closed unseen behind the branch.

    There they stand as before it. Python closes them where they are dropped, and Dynamo at the end
    of the trace as they stand, in torch 2.13 never. So every arm has to bring them to where nothing
    runs, and they are closed no more.

    ``arms`` are the iterators that each has advanced, and the generators among them that would run
    code when they are closed.
    """
    kind = compat.LocalGeneratorObjectVariable
    taken = [each for advanced, _ in arms for each in advanced if isinstance(each, kind)]
    for each in taken:
        for advanced, opened in arms:
            if each in opened or (each not in advanced and runs_code_when_closed(each)):
                return False
    effect_tables.drop_closed_generators(tx.output, taken)
    return True


def _was_made_here(variable: Value) -> bool:
    """Return whether the trace made an object; Dynamo does not track changes of range iterators."""
    kind = variable.mutation_type
    return variable.source is None and (kind is None or isinstance(kind, compat.ValueMutationNew))


def _is_done_with(edge: Edge, ends: Sequence[Any]) -> bool:
    """Return whether nothing reads what a root holds once the branch has ended.

    Such are variables and operands of frames that end with it, and iterators that are operands: a
    loop has its own there, which it drops where it is left. A lazy one was there before the call.
    """
    if edge.is_of(ends) or edge.is_of_bcmend:
        return True
    is_lazy = type(edge.value) is compat.LazyVariableTracker
    return edge.root is Root.OPERAND and (is_lazy or snapshots.is_consumable(edge.value))


BACKWARDS: Final = "dictionaries that are gone over backwards"
#: Iterators that Dynamo makes of the items that a dictionary has, with these and how many they
#: were, by identity.
_BACKWARDS: Final[Slot[dict[int, tuple[Value, Any, int]]]] = Slot(dict, rolls_back=False)


def note_backwards(tx: compat.Tracer, iterator: Value, items: dict[Any, Any]) -> None:
    """Note that an iterator goes over a dictionary backwards, to which it is one over a list."""
    _BACKWARDS.of(tx.output)[id(iterator)] = iterator, items, len(items)


@hooks.around(compat.ListIteratorVariable, methods.ITERNEXT, BACKWARDS)
def _next(inner: Any, iterator: Any, tx: compat.Tracer) -> Any:
    _, items, count = _BACKWARDS.of(tx.output).get(id(iterator), (iterator, (), 0))
    if len(items) != count:
        message = "dictionary changed size during iteration"
        compat.raise_observed_exception(RuntimeError, tx, args=[message])
    return inner(iterator, tx)


def go_over(
    tx: compat.Tracer,
    variable: Value,
    *,
    but: Sequence[Value] = (),
    keys_are_the_same: bool = False,
) -> bool:
    """Return whether an iterator that is still in use has the contents of a container.

    Args:
        tx: the frame being traced.
        variable: the container.
        but: iterators that do not count.
        keys_are_the_same: whether only values of a dictionary are other ones, which an iterator
            over its keys does not show.
    """
    items, found = vars(variable)["items"], []

    def note(value: Value) -> None:
        if not isinstance(value, compat.IteratorVariable) or any(value is each for each in but):
            return
        of_a_list = isinstance(value, compat.ListIteratorVariable) and value.items is items
        _, goes_back_over, _ = _BACKWARDS.of(tx.output).get(id(value), (value, None, 0))
        if (
            of_a_list
            or goes_back_over is items
            or snapshots.goes_over(value, items, keys_alone=keys_are_the_same)
        ):
            found.append(value)

    snapshots.visit(note, [edge.value for edge in roots.edges(tx)], tx.output.side_effects)
    return bool(found)
