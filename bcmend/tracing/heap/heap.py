"""A heap: the objects that a trace knows at one moment, and who holds which.

It is a picture, taken while an arm is on the models or after a join: what models hold is copied,
since an arm is taken back. What no row describes is opaque: nothing is said of what is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers, objects
from bcmend.dynamo.values import Value, items_in
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Root
from bcmend.tracing.sites.phi import Phi

#: How a value is reached from what holds it: a root, the position of an item, a key, an attribute.
Key: TypeAlias = Hashable


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """What one model holds.

    Attributes:
        model: stands for the object; two models are two objects.
        has_identity: whether the program can tell it from an equal one.
        is_new: whether it was made in an arm that is traced, or in the trace since.
        fields: what is held, by where; models as well.
    """

    model: Value
    has_identity: bool
    is_new: bool
    fields: dict[Key, Value]


@dataclass(slots=True, eq=False)
class Heap:
    """All objects that were reached, by the identities of their models.

    Attributes:
        held: what the roots hold, by the root.
        objects: what is no leaf, and is no phi: that is two values.
        counts: in how many places each is.
    """

    held: dict[Key, Value] = field(default_factory=dict)
    objects: dict[int, Object] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)

    def object_of(self, value: Value) -> Object | None:
        return self.objects.get(id(looked_at(value)))


def of(
    tx: compat.Tracer, result: Value, scope: int | None = None, *, returns: bool = False
) -> Heap:
    """Return the heap as it is now, with ``result`` among the roots.

    Args:
        scope: that of the trace around the arms, by default the present one; what is of a later
            one is new.
        returns: whether the function being traced returns ``result``, so that its variables end.
    """
    scope = compat.current_scope_id() if scope is None else scope
    heap = Heap({"result": result, **dict(_held(tx, result, returns))})
    left = list(heap.held.values())
    stores = tx.output.side_effects.store_attr_mutations
    while left:
        value = looked_at(left.pop())
        heap.counts[id(value)] += 1
        if id(value) not in heap.objects and (found := _object(value, stores, scope)) is not None:
            heap.objects[id(value)] = found
            left.extend(found.fields.values())
    return heap


def _held(tx: compat.Tracer, result: Value, returns: bool) -> Iterator[tuple[Key, Value]]:
    """Yield what the roots hold, but for variables that are not read before they are stored to.

    Such is one of each live-out as well: the one that it is stored to, or was read from.
    """
    own = roots.frames_of_the_function(tx)
    handed_on = {id(looked_at(each)): "" for each in items_in(result) or ()}
    for edge in roots.edges(tx):
        if edge.is_of_records or edge.is_outlet:
            continue
        is_of_a_frame = edge.root in roots.OF_FRAMES
        is_own = is_of_a_frame and edge.is_of(own)
        if is_own and returns:
            continue
        if is_own and edge.root is Root.LOCAL:
            if edge.is_of_bcmend or not roots.is_live(edge.owner, edge.key):
                continue
            name = handed_on.get(id(looked_at(edge.value)))
            if name in ("", edge.key):
                handed_on[id(looked_at(edge.value))] = edge.key
                continue
        if is_of_a_frame:
            yield (edge.root, id(edge.owner), edge.key), edge.value
        elif edge.root is Root.BEFORE:  # what is stored is a field of its owner
            yield (edge.root, id(edge.value)), edge.value


def is_attribute(key: Key) -> bool:
    """Return whether a key is one of an attribute, and none of an item."""
    return isinstance(key, tuple) and key[0] == "."


def looked_at(value: Value) -> Value:
    """Return the model behind a lazy one that something has looked at."""
    return value.realize() if value.is_realized() else value


def _object(value: Any, stores: Mapping[Any, Any], scope: int) -> Object | None:
    if not value.is_realized() or isinstance(value, Phi):
        return None
    kind = value.mutation_type
    is_new = kind is not None and kind.scope > scope
    if type(value) in (compat.TupleVariable, compat.SizeVariable):
        return Object(value, False, is_new, dict(enumerate(value.items)))
    fields, stored = _fields(value), stores.get(value, {})
    if fields is None and not stored:
        return None
    fields = {**(fields or {}), **{(".", name): each for name, each in stored.items()}}
    return Object(value, kind is not None, is_new, fields)


def _fields(value: Any) -> dict[Key, Value] | None:
    """Return what a model holds; None if nothing is known of models of its kind."""
    if type(value) in (compat.ListVariable, compat.DequeVariable):
        return dict(enumerate(value.items))
    if type(value) in containers.DICTIONARIES:
        return dict(value.items)
    if type(value) is compat.SetVariable:
        return dict(value.items.items())
    kind = type(value)  # of a model that is looked at; asking Dynamo's classes takes longer
    if issubclass(kind, compat.CellVariable):
        contents = value.pre_existing_contents
        return {} if contents is None else {(".", "cell_contents"): contents}
    if kind is compat.NestedUserFunctionVariable:
        return {"closure": value.closure} if isinstance(value.closure, Value) else {}
    if not issubclass(kind, objects.FROM_ATTRIBUTES):
        return None
    model: Any = value
    inner: Any = containers.contents_of(model)
    if inner is not model:
        return {} if inner is None else {"contents": inner}
    held = inner.items
    return dict(held) if isinstance(held, dict) else dict(enumerate(held))


#: Tables of a module in which an entry is a name that code would have to spell to find it.
TABLES_OF_NAMES: Final = ("_buffers", "_parameters", "_modules", "_non_persistent_buffers_set")


def is_table_of_names(variable: Value) -> bool:
    """Return whether a dictionary or a set is such a table of a module."""
    source = variable.source
    if type(variable) not in (compat.ConstDictVariable, compat.SetVariable) or source is None:
        return False
    return source.name.rstrip("']").endswith(TABLES_OF_NAMES)
