"""Whether two heaps are one: a partial bijection of their objects.

What a branch or a loop leaves has to be, on each side, what that side has left: two places that
have one object there have one in the joined heap, and two objects there are two. What is from
before is itself on both sides, unless nothing else holds it: then nobody can tell. What is opaque
is equal to itself alone. Containers have the same keys, in order, a constant is that of the side,
and a tensor that of the side, or what the branch has made of it. Nothing is asked of numbers of the
graph, and of tensors that a loop carries.

Each join and each loop of each trace is asked, whatever has planned it: a fault in a plan costs a
lowering, and no result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import TensorValue, Value
from bcmend.names import DEAD
from bcmend.tracing.heap.heap import Heap, Key, Object, is_attribute, is_table_of_names, looked_at
from bcmend.tracing.heap.same import is_same
from bcmend.tracing.search import strict
from bcmend.tracing.search.assumptions import Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites.phi import Phi

#: What may be so in a joined heap, and not on a side.
OLDER: Final = "another object than that from before"
ONE_FOR_TWO: Final = "one object in place of two"
TWO_FOR_ONE: Final = "two objects in place of one"
UNKNOWN: Final = "another object of a kind that is not looked into"
KEYS: Final = "other keys or items"
CONSTANT: Final = "another constant"
TENSOR: Final = "another tensor"
HOW: Final = (OLDER, ONE_FOR_TWO, TWO_FOR_ONE, UNKNOWN, KEYS, CONSTANT, TENSOR)

#: What stands for several values, of which nothing is asked.
_OPEN: Final = (Phi, compat.SymNodeVariable)

#: How an object is reached: from a root, by the keys of what holds it.
Path = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Torn:
    """Places of a joined heap that are not as those of a side.

    Attributes:
        how: one of the above.
        places: where.
    """

    how: str
    places: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.how}: {', '.join('/'.join(map(str, path)) for path in self.places)}"


def require_match(
    joined: Heap,
    sides: Sequence[Heap],
    otherwise: Finding,
    is_tensor_of: Callable[[int, TensorValue, TensorValue], bool] = lambda *_: True,
) -> None:
    """Require that a joined heap is, on each side, that of the side.

    Args:
        otherwise: what the join has assumed.
        is_tensor_of: says of the position of a side, a tensor of the joined heap and one of that
            side whether the first stands for the second there.

    Raises:
        Falsified: it is not.
        InternalError: likewise in strict mode.
    """
    for at, side in enumerate(sides):
        found = torn(joined, side, sides, partial(is_tensor_of, at))
        if found is not None and strict.IS_ON:
            raise strict.InternalError(f"what a join leaves is not what a side leaves: {found}")
        if found is not None:
            falsify(replace(otherwise, evidence=found.how))


def torn(
    joined: Heap,
    side: Heap,
    sides: Sequence[Heap],
    is_tensor_of: Callable[[TensorValue, TensorValue], bool] = lambda *_: True,
) -> Torn | None:
    """Return where a joined heap is not that of one of ``sides``; None if it is."""
    pairs = _Pairs()
    seen: set[tuple[int, int]] = set()
    left: deque[tuple[Path, Value, Value]] = deque(
        ((key,), joined.held[key], side.held[key]) for key in joined.held if key in side.held
    )
    while left:
        path, here, there = left.popleft()
        one, other = joined.object_of(here), side.object_of(there)
        if one is None or other is None or type(one.model) is not type(other.model):
            how = _told_apart(joined, looked_at(here), side, looked_at(there), is_tensor_of)
            if how is not None:
                return Torn(how, (path,))
            continue
        if (id(one.model), id(other.model)) in seen:
            continue
        seen.add((id(one.model), id(other.model)))
        if one.has_identity and other.has_identity:
            is_other = one.model is not other.model
            if is_other and (_is_older(one, sides) or _is_seen(other, side)):
                return Torn(OLDER, (path,))
            found = pairs.add(one, other, path)
            if found is not None:
                return found
        if not _has_same_keys(one, other):
            return Torn(KEYS, (path,))
        left.extend(
            ((*path, key), each, other.fields[key])
            for key, each in one.fields.items()
            if key in other.fields
        )
    return None


def _told_apart(
    joined: Heap,
    here: Value,
    side: Heap,
    there: Value,
    is_tensor_of: Callable[[TensorValue, TensorValue], bool],
) -> str | None:
    """Return how values that are not looked into differ; None if nobody can tell."""
    if here is there:
        return None
    if not (here.is_realized() and there.is_realized()):
        return None if here.source == there.source else UNKNOWN
    if isinstance(here, compat.TensorVariable) and isinstance(there, compat.TensorVariable):
        return None if is_tensor_of(here, there) else TENSOR
    if type(here) is compat.ConstantVariable and not isinstance(there, _OPEN):
        return None if is_same(here, there) or _is_dead(here) or _is_dead(there) else CONSTANT
    return UNKNOWN if _is_opaque(joined, here) and _is_opaque(side, there) else None


def _is_dead(value: Value) -> bool:
    return type(value) is compat.ConstantVariable and value.value == DEAD


def _has_same_keys(one: Object, other: Object) -> bool:
    """Return whether two containers have the same keys, in order; attributes come one by one.

    What one side alone puts into a table of a module is created when the graph has run.
    """
    if is_table_of_names(one.model):
        return True
    if isinstance(one.model, compat.SetVariable):
        both = containers.keys_of_both(one.fields, other.fields)
        return len(one.fields) == len(other.fields) == len(both)
    keys, others = ([key for key in each.fields if not is_attribute(key)] for each in (one, other))
    return containers.have_same_keys(keys, others)


def _is_opaque(known: Heap, value: Value) -> bool:
    """Return whether a value is an object that can be changed, and nothing is known of its kind."""
    if not value.is_realized() or isinstance(value, (Phi, compat.TensorVariable)):
        return False
    return value.mutation_type is not None and known.object_of(value) is None


def _is_seen(older: Object, side: Heap) -> bool:
    """Return whether an object is from before, and anything holds it beside the place itself."""
    return not older.is_new and side.counts[id(older.model)] > 1


def _is_older(joined: Object, sides: Sequence[Heap]) -> bool:
    """Return whether an object of a joined heap is from before what is joined."""
    known = (side.objects.get(id(joined.model)) for side in sides)
    return any(each is not None and not each.is_new for each in known)


@dataclass(slots=True)
class _Pairs:
    """Which objects of two heaps are one, and where they were met first."""

    of_joined: dict[int, tuple[int, Path]] = field(default_factory=dict)
    of_side: dict[int, tuple[int, Path]] = field(default_factory=dict)

    def add(self, joined: Object, side: Object, path: Path) -> Torn | None:
        """Have two objects be one; return why they cannot be."""
        here, there = id(joined.model), id(side.model)
        for known, key, partner, how in (
            (self.of_joined, here, there, ONE_FOR_TWO),
            (self.of_side, there, here, TWO_FOR_ONE),
        ):
            first, before = known.setdefault(key, (partner, path))
            if first != partner:
                return Torn(how, (before, path))
        return None
