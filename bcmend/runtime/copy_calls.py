"""``copy.copy`` and ``copy.deepcopy`` of tensors, and ``copy.copy`` of plain containers.

A tensor without gradients is copied deeply by ``clone``, which gives the same values in the same
places of a memory of its own, and flatly by ``detach``, which shares the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch._dynamo.variables import (
    ConstDictVariable,
    ListVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.fx.experimental.symbolic_shapes import free_symbols

from bcmend.runtime.leaves import is_plain
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.operations import storage_of
from bcmend.runtime.substitution import Call, Refused, answers_to

__all__: list[str] = []

_IMMUTABLE: Final = (int, float, bool, str, bytes, type(None), complex)


@answers_to("deepcopy")
def _deepcopy(call: Call) -> VariableTracker | None:
    """``copy.deepcopy`` of a tensor, or of lists, dictionaries and tuples of such.

    Through anything else Dynamo goes by itself, and with a guard on which object a tensor is.
    """
    value = _only_argument(call)
    if value is None:
        return None
    try:
        return _Copies(call).of(value)
    except _NotKnown:
        return None


class _NotKnown(Exception):
    """Something that is copied in a way of its own."""


class _Copies:
    """The copies made by one call, in each of which an object stands once."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.made: dict[Any, VariableTracker] = {}
        self.memories: set[Any] = set()

    def of(self, value: VariableTracker) -> VariableTracker:
        value = value.realize()
        if isinstance(value, TensorVariable):
            return self._once(value.as_proxy().node, lambda: self._of_tensor(value))
        if type(value) is ListVariable:
            return self._once(id(value), lambda: self._of_list(value))
        if type(value) is TupleVariable:
            items = [self.of(item) for item in value.items]
            same = all(
                one is other.realize() for one, other in zip(items, value.items, strict=True)
            )
            return value if same else TupleVariable(items)
        if _is_dictionary(value):
            return self._once(id(value), lambda: self._of_dictionary(value))
        if value.is_python_constant() and type(value.as_python_constant()) in _IMMUTABLE:
            return value
        raise _NotKnown

    def _once(self, key: Any, make: Callable[[], VariableTracker]) -> VariableTracker:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def _of_list(self, value: ListVariable) -> VariableTracker:
        copied = ListVariable([], mutation_type=ValueMutationNew())
        self.made[id(value)] = copied
        copied.items.extend(self.of(item) for item in value.items)
        return copied

    def _of_dictionary(self, value: Any) -> VariableTracker:
        items = {key: self.of(item) for key, item in value.items.items()}
        if not all(key.vt.is_python_constant() for key in items):
            raise _NotKnown
        return ConstDictVariable(items, dict, mutation_type=ValueMutationNew())

    def _of_tensor(self, value: TensorVariable) -> VariableTracker:
        _require_plain(value)
        example = example_of(value)
        known = not free_symbols(example) and is_non_overlapping_and_dense_or_false(example)
        if not known or example.untyped_storage().nbytes() != example.nbytes:
            raise Refused("its memory holds more than its elements, or holds some of them twice")
        if storage_of(example) in self.memories:
            raise Refused("another tensor of the same memory is copied with it")
        self.memories.add(storage_of(example))
        keep: Any = VariableTracker.build(self.call.tx, torch.preserve_format)
        copied = value.call_method(self.call.tx, "clone", [], {"memory_format": keep})
        assert isinstance(copied, VariableTracker)
        return copied


@answers_to("copy")
def _copy(call: Call) -> VariableTracker | None:
    """``copy.copy`` of a tensor, a list, a dictionary or something immutable."""
    value: Any = _only_argument(call)
    if isinstance(value, TensorVariable):
        _require_plain(value)
        shared: VariableTracker = value.call_method(call.tx, "detach", [], {})
        return shared
    if type(value) is ListVariable or _is_dictionary(value):
        made: VariableTracker = value.call_method(call.tx, "copy", [], {})
        return made
    if value is not None and value.is_python_constant():
        known = value.as_python_constant()
        if type(known) in _IMMUTABLE:
            return constant(known)
    return None


def _is_dictionary(value: Any) -> bool:
    return type(value) is ConstDictVariable and value.user_cls is dict


def _only_argument(call: Call) -> VariableTracker | None:
    return call.args[0].realize() if len(call.args) == 1 and not call.kwargs else None


def _require_plain(value: TensorVariable) -> None:
    if not is_plain(value) or getattr(value, "class_type", None) is torch.nn.Parameter:
        raise Refused("it is a parameter, or of another subclass")
    example = example_of(value)
    if example.requires_grad or not example.is_leaf:
        raise Refused("it requires gradients")
    if example.is_conj() or example.is_neg():
        raise Refused("it is a view that conjugates or negates")
