"""The roots of the heap: all that holds a value while a frame is traced.

This is the one enumeration. Whoever asks who has an object asks here, and says which edges do not
count for it and why; an edge that nobody thought of counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import CodeType
from typing import Any, Final

from bcmend.analysis.liveness import Liveness, live_after, liveness
from bcmend.bytecode.decode import decode
from bcmend.cfg.graph import Graph, build_graph
from bcmend.dynamo import compat, frames, snapshots
from bcmend.dynamo.models import exceptions, translators
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value
from bcmend.names import BUFFER, ENTRY, PREFIX
from bcmend.tracing.sites.outlet import OUTLET


class Root(Enum):
    """What kind of thing holds a value.

    The frame of a generator is no root: it is a part of the generator, as items are of a list. Nor
    is what the other arm of a branch has left: it is not there where this arm is taken.
    """

    LOCAL = auto()  # a variable of a frame being traced; its key is the name
    OPERAND = auto()  # of a frame being traced; its key is the position
    BLOCK = auto()  # the context of a ``with`` that a frame is in
    HANDLED = auto()  # an exception that a frame handles
    STORED = auto()  # an attribute, a variable of closures or a global that the trace has stored
    BEFORE = auto()  # an object from before the call that the trace has looked at
    RECORD = auto()  # the inputs of a record of an arm around; those of the frame are a variable
    HOOK = auto()  # a hook that is put on a tensor


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """A root that holds a value.

    Attributes:
        root: its kind.
        owner: the frame, or the model of the object that was stored to; else None.
        key: the name or the position there.
        value: what is held, a model or a structure of such.
    """

    root: Root
    owner: Any
    key: Any
    value: Any

    @property
    def is_of_bcmend(self) -> bool:
        """Whether it is a variable that only rewritten bytecode has: it hands on what it holds."""
        return self.root is Root.LOCAL and self.key.startswith(PREFIX)

    @property
    def is_of_records(self) -> bool:
        """Whether what is held is the list of records that the call is given."""
        if self.root is Root.LOCAL:
            return bool(self.key == BUFFER)
        source = self.value.source if self.root is Root.BEFORE else None
        return isinstance(source, compat.LocalSource) and source.local_name == BUFFER

    @property
    def is_outlet(self) -> bool:
        """Whether what is held is the object that delivers records when it gets them."""
        if self.root is not Root.BEFORE or not self.value.is_realized():
            return False
        known: Any = self.value.realize()
        # Models of other kinds make what they stand for when they are asked.
        is_object = issubclass(type(known), compat.UserDefinedObjectVariable)
        return is_object and known.value is OUTLET

    def is_of(self, frames: Iterable[Any]) -> bool:
        """Return whether its owner is one of some frames."""
        return any(self.owner is each for each in frames)


#: The roots of one frame, of which an arm can change only what it is given.
OF_FRAMES: Final = frozenset((Root.LOCAL, Root.OPERAND, Root.BLOCK))

#: The records of the arms that are being traced, the innermost last; each has its ``inputs``.
RECORDS: Final[Slot[list[list[Any]]]] = Slot(list, rolls_back=False)


def edges(tx: compat.Tracer) -> Iterator[Edge]:
    """Yield every edge from a root, those of the innermost frame first."""
    for frame in frames.being_traced(tx):
        yield from _of_frame(frame)
    yield from beside_frames(tx)


def beside_frames(tx: compat.Tracer) -> Iterator[Edge]:
    """Yield the edges that are none of ``OF_FRAMES``."""
    for position, error in enumerate(exceptions.handled_in(tx)):
        yield Edge(Root.HANDLED, tx, position, error)
    effects = tx.output.side_effects
    for owner, stores in effects.store_attr_mutations.items():
        for name, value in stores.items():
            yield Edge(Root.STORED, owner, name, value)
    for model in effects.id_to_variable.values():
        if model.source is not None:
            yield Edge(Root.BEFORE, None, None, model)
    for drafts in RECORDS.of(tx.output):
        yield from (Edge(Root.RECORD, None, None, each.inputs) for each in drafts)
    for tensor, hook, handle, _ in effects.tensor_hooks.values():
        yield Edge(Root.HOOK, None, None, [tensor, hook, handle])


def _of_frame(frame: Any) -> Iterator[Edge]:
    for name, value in frame.symbolic_locals.items():
        yield Edge(Root.LOCAL, frame, name, value)
    for position, value in enumerate(frame.stack):
        yield Edge(Root.OPERAND, frame, position, value)
    for position, context in enumerate(translators.contexts_of(frame)):
        yield Edge(Root.BLOCK, frame, position, context)


def frames_of_the_function(tx: compat.Tracer) -> list[Any]:
    """Return the frames of the parts of the function being traced, and its own behind them."""
    found = []
    for frame in frames.being_traced(tx):
        found.append(frame)
        if ENTRY not in frame.f_code.co_varnames:
            break
    return found


def is_live(frame: Any, name: str) -> bool:
    """Return whether a local may be read behind the instruction at which a frame is."""
    code = frame.f_code
    if name in code.co_cellvars or name in code.co_freevars:
        return True
    graph, known = _analysis(code)
    at = frame.current_instruction.offset
    later = (i for i, each in enumerate(graph.function.instructions) if each.offset == at)
    found = next(later, None)
    return found is None or name in live_after(graph, known, found)


@cache
def _analysis(code: CodeType) -> tuple[Graph, Liveness]:
    graph = build_graph(decode(code))
    return graph, liveness(graph)


def reach(
    values: Iterable[Any],
    is_sought: Callable[[Value], bool],
    effects: Any = None,
    *,
    lazily: bool = False,
) -> bool:
    """Return whether a value that is sought is among ``values``, or in what they hold.

    Be it in the frame of a generator. With ``effects``, what was stored to the objects among them
    counts as well. ``lazily`` as in ``snapshots.visit``.
    """
    found: list[Value] = []

    def note(variable: Value) -> None:
        if is_sought(variable):
            found.append(variable)

    snapshots.visit(note, values, effects, lazily=lazily)
    return bool(found)


def holds(values: Iterable[Any], value: Value, effects: Any = None) -> bool:
    """Return whether a value is among ``values``, or in what they hold (``reach``)."""
    return reach(values, lambda model: model is value, effects, lazily=True)


def is_held(
    tx: compat.Tracer,
    value: Value,
    *,
    but: Callable[[Edge], bool] = lambda edge: edge.is_of_bcmend,
) -> bool:
    """Return whether anything holds a value, be it by way of others.

    ``but`` says of an edge whether it does not count.
    """
    return holds([edge.value for edge in edges(tx) if not but(edge)], value)
