"""Items of Python's containers at data-dependent places: ``layers[int(x.argmax())]``.

The instruction is split (``rewrite.sites.split_points``) into a half in which there is such an item
and a half in which there is none, which raises as in eager execution. The first is split by the
items that are left, until there is one: the depth of the branches is the logarithm of the number of
items. Each half goes on with an item of its own, a tensor, a module, a function or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, fx_graph, handlers, hooks
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.slots import Slot, pushed
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    is_batched,
    is_named_tuple,
    is_unbacked,
    object_behind,
)
from bcmend.tracing.numbers import predicates, scalars
from bcmend.tracing.sites import body_states, capture_mode
from bcmend.tracing.sites.lifted_inputs import before_arms
from bcmend.tracing.speculation.arm_failures import NO_ITEM

#: Every item is traced once, with all that follows in its arm.
ITEMS_AT_MOST: Final = 16

#: How modules find an item as a list does.
_AS_LISTS_DO: Final = tuple(
    each.__getitem__ for each in (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList)
)
_LISTS: Final = (compat.ListVariable, compat.TupleVariable, compat.SizeVariable)
_INDEX_TYPES: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """A data-dependent place in a container, as far as it is known.

    Attributes:
        number: the number, or the tensor that Python takes one from.
        identity: what a fact about the place is about: the number, and what it is a place in.
        keys: the keys of the items that it may be the place of, in ascending order.
        size: how many items there are, if a number below zero counts from the end; else ``None``.
        is_inside: whether it is known to be the place of an item.
        key: an int64 tensor of the key, that counts from the beginning; ``None`` if not computed.
    """

    number: Any
    identity: Any
    keys: tuple[int, ...]
    size: int | None
    is_inside: bool = False
    key: TensorValue | None = None

    @property
    def is_decided(self) -> bool:
        """Return whether there is one item left, or none."""
        return len(self.keys) <= int(self.is_inside)

    def computed(self, tx: compat.Tracer) -> OpenPlace:
        """Return the place with a tensor of its key."""
        if self.key is not None:
            return self
        if _is_truth(self.number):
            truth = predicates.as_predicate(tx, self.number)
            key = fx_graph.method(tx, "to", truth, torch.int64)
        elif isinstance(self.number, compat.TensorVariable):
            # The tensor is held as it is now, whatever is written to it later.
            key = fx_graph.method(tx, "to", self.number, torch.int64, copy=True)
            key = fx_graph.method(tx, "reshape", key, ())
        else:
            key = scalars.integer_tensor(tx, self.number)
        is_counted = _is_truth(self.number) or _is_between(self.number, 0, self.keys[-1] + 1)
        if self.size is not None and not is_counted:
            is_below = fx_graph.function(tx, torch.lt, key, 0)
            from_end = fx_graph.function(tx, torch.add, key, self.size)
            key = fx_graph.function(tx, torch.where, is_below, from_end, key)
        return replace(self, key=key)

    def condition(self, tx: compat.Tracer) -> TensorValue:
        """Return whether there is such an item; then, whether it is in the upper half of these."""
        assert self.key is not None
        if not self.is_inside:
            return self._inside(tx, self.key)
        if _is_truth(self.number):
            return predicates.as_predicate(tx, self.number)
        compare = torch.eq if len(self.keys) == 2 else torch.ge
        return fx_graph.function(tx, compare, self.key, self._middle)

    def in_half(self, truth: bool) -> OpenPlace:
        """Return the place where ``condition`` has a truth."""
        if not self.is_inside:
            return replace(self, is_inside=True) if truth else replace(self, keys=())
        keys = tuple(each for each in self.keys if (each >= self._middle) is truth)
        return replace(self, keys=keys)

    @property
    def _middle(self) -> int:
        return self.keys[len(self.keys) // 2]

    def _inside(self, tx: compat.Tracer, key: TensorValue) -> TensorValue:
        first, last = self.keys[0], self.keys[-1]
        if last - first + 1 > len(self.keys):
            equal = [fx_graph.function(tx, torch.eq, key, each) for each in self.keys]
            return reduce(lambda one, other: predicates.either(tx, one, other), equal)
        is_above = fx_graph.function(tx, torch.ge, key, first)
        return predicates.both(tx, is_above, fx_graph.function(tx, torch.le, key, last))


#: What is known of places where the trace is, innermost last.
_KNOWN: Final[Slot[list[OpenPlace]]] = Slot(list, rolls_back=False)


def holding(tx: compat.Tracer, place: OpenPlace) -> AbstractContextManager[None]:
    """For the length of a block, what ``place`` says is known."""
    return pushed(_KNOWN.of(tx.output), place)


def open_place(tx: compat.Tracer, operands: Sequence[Value]) -> OpenPlace | None:
    """Return the place that a subscript reads, whose operands come last; ``None`` for others."""
    if len(operands) < 2:
        return None
    place = _place_in(tx, operands[-2].realize(), operands[-1].realize())
    if place is None or not place.keys:
        return None
    known = (each for each in reversed(_KNOWN.of(tx.output)) if each.identity == place.identity)
    return next(known, place)


def _place_in(tx: compat.Tracer, container: Value, number: Value) -> OpenPlace | None:
    if not _depends_on_data(tx, number):
        return None
    size = _length(tx, container)
    keys = _numbers_among_keys(container) if size is None else tuple(range(size))
    if not keys or (size is None and isinstance(number, compat.TensorVariable)):
        return None
    identity = (_name(tx, number), size, keys)
    if _is_truth(number):
        is_inside = {0, 1} <= {*keys}
        keys = tuple(each for each in keys if each in (0, 1))
    else:
        first = keys[0] if size is None else -size
        has_gaps = keys[-1] - keys[0] >= len(keys)
        is_inside = not has_gaps and _is_between(number, first, keys[-1] + 1)
    return OpenPlace(number, identity, keys, size, is_inside)


def _depends_on_data(tx: compat.Tracer, number: Value) -> bool:
    if isinstance(number, compat.SymNodeVariable):
        is_whole = isinstance(number.sym_num, (torch.SymInt, torch.SymBool))
        # A number out of an argument has a known value, and a guard on it; better none.
        return is_whole and (is_unbacked(number) or scalars.is_taken(tx, number))
    if type(number) is not compat.TensorVariable:
        return False
    example = example_of(number)
    is_one = isinstance(example.numel(), int) and example.numel() == 1
    return is_one and example.dtype in _INDEX_TYPES and not is_batched(example)


def _name(tx: compat.Tracer, number: Value) -> Any:
    """Return what stands for a number: no change of a tensor goes unnoticed."""
    proxy = before_arms(tx, number.as_proxy())
    if isinstance(number, compat.TensorVariable):
        return proxy.node, example_of(number)._version
    return proxy.node


def _is_truth(number: Value) -> bool:
    return isinstance(number, compat.SymNodeVariable) and isinstance(number.sym_num, torch.SymBool)


def _is_between(number: Value, lowest: int, end: int) -> bool:
    """Return whether it is known without the data that a number is in a range."""
    if not isinstance(number, compat.SymNodeVariable):
        return False
    bounds = (number.sym_num >= lowest, number.sym_num < end)
    return all(map(compat.statically_known_true, bounds))


def _length(tx: compat.Tracer, container: Value) -> int | None:
    """Return how many items a container has that finds them by their places; else ``None``."""
    if type(container) in _LISTS or is_named_tuple(container):
        return len(container.items)  # type: ignore[attr-defined]
    is_object = isinstance(container, compat.UserDefinedObjectVariable)
    if not (is_object and _finds_as_lists_do(object_behind(container))):
        return None
    length = compat.BuiltinVariable(len).call_function(tx, [container], {})
    return length.as_python_constant() if length.is_python_constant() else None


def _finds_as_lists_do(module: object) -> bool:
    return getattr(type(module), "__getitem__", None) in _AS_LISTS_DO


def _numbers_among_keys(container: Any) -> tuple[int, ...]:
    """Return the integers among the keys of a dictionary in which no other key equals one."""
    if type(container) not in (compat.ConstDictVariable, compat.OrderedDictVariable):
        return ()
    keys = [containers.key_model(each) for each in container.items]
    if not all(isinstance(each, compat.ConstantVariable) for each in keys):
        return ()
    values = [each.value for each in keys]
    if not all(type(each) in (int, bool, str, type(None)) for each in values):
        return ()
    containers.guard_keys(container)
    return tuple(sorted(int(each) for each in values if isinstance(each, int)))


@hooks.around(compat.BuiltinVariable, methods.CALL_GETITEM, "items at data-dependent places")
def _item(inner: Any, variable: Any, tx: compat.Tracer, *operands: Value, **named: Value) -> Any:
    """Model ``container[number]``."""
    if named or not capture_mode.may_be_mended(tx):
        return inner(variable, tx, *operands, **named)
    place = open_place(tx, operands)
    if place is not None and place.is_decided:
        if not place.keys:
            handlers.break_graph(NO_ITEM, "", "An item is read that is not there.")
        return inner(variable, tx, operands[0], constant(place.keys[0]))
    if place is not None and frames.is_captured_whole(tx):
        body_states.split_where_read(tx, None)
    return inner(variable, tx, *operands)
