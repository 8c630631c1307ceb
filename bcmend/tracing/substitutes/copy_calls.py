"""``copy.copy`` and ``copy.deepcopy`` of tensors, and ``copy.copy`` of plain containers.

A tensor without gradients is copied deeply by ``clone``, which gives the same values in the same
places of a memory of its own, and flatly by ``detach``, which shares the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import Value, constant, example_of, with_items
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt
from bcmend.tracing.substitutes.autograd_leaf import is_plain
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal

_IMMUTABLE: Final = (int, float, bool, str, bytes, type(None), complex)


@answers_to("deepcopy")
def _deepcopy(call: ReplacedCall) -> Answer:
    """Answer ``copy.deepcopy`` of a tensor, or of lists, dictionaries and tuples of such.

    Anything else Dynamo copies by itself, with a guard on which object a tensor is.
    """
    value = _only_argument(call)
    if value is None:
        return PASS
    copied = attempt(lambda: _Copies(call).of(value))
    if not isinstance(copied, Refusal):
        return copied
    if isinstance(copied, NotThisWay):
        return PASS
    raise copied


class _Copies:
    """The copies made by one call, in each of which an object stands once."""

    def __init__(self, call: ReplacedCall) -> None:
        self.call = call
        self.made: dict[Any, Value] = {}
        self.memories: set[Any] = set()

    def of(self, value: Value) -> Value:
        value = value.realize()
        if isinstance(value, compat.TensorVariable):
            return self._once(value.as_proxy().node, lambda: self._of_tensor(value))
        if type(value) is compat.ListVariable:
            return self._once(id(value), lambda: self._of_list(value))
        if type(value) is compat.TupleVariable:
            return with_items(value, [self.of(item) for item in value.items])
        if containers.is_plain_dictionary(value):
            return self._once(id(value), lambda: self._of_dictionary(value))
        if value.is_python_constant() and type(value.as_python_constant()) in _IMMUTABLE:
            return value
        raise NotThisWay()

    def _once(self, key: Any, make: Callable[[], Value]) -> Value:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def _of_list(self, value: compat.ListVariable) -> Value:
        copied = containers.new_list([])
        self.made[id(value)] = copied
        copied.items.extend(self.of(item) for item in value.items)
        return copied

    def _of_dictionary(self, value: Any) -> Value:
        containers.guard_keys(value)
        items = {key: self.of(item) for key, item in value.items.items()}
        if not all(containers.key_model(key).is_python_constant() for key in items):
            raise NotThisWay()
        return containers.new_dictionary(items)

    def _of_tensor(self, value: compat.TensorVariable) -> Value:
        _require_plain(value)
        example = example_of(value)
        is_static = not compat.free_symbols(example)
        is_dense = is_static and compat.is_non_overlapping_and_dense_or_false(example)
        if not is_dense or example.untyped_storage().nbytes() != example.nbytes:
            raise unequal("its memory holds more than its elements, or holds some of them twice")
        if storage_of(example) in self.memories:
            raise unequal("another tensor of the same memory is copied with it")
        self.memories.add(storage_of(example))
        layout = compat.VariableTracker.build(self.call.tx, torch.preserve_format)
        return value.call_method(self.call.tx, "clone", [], {"memory_format": layout})


@answers_to("copy")
def _copy(call: ReplacedCall) -> Answer:
    """Answer ``copy.copy`` of a tensor, a list, a dictionary or something immutable."""
    value: Any = _only_argument(call)
    answer: Answer = PASS
    if isinstance(value, compat.TensorVariable):
        _require_plain(value)
        answer = value.call_method(call.tx, "detach", [], {})
    elif type(value) is compat.ListVariable or containers.is_plain_dictionary(value):
        answer = value.call_method(call.tx, "copy", [], {})
    elif value is not None and value.is_python_constant():
        known = value.as_python_constant()
        answer = constant(known) if type(known) in _IMMUTABLE else PASS
    return answer


def _only_argument(call: ReplacedCall) -> Any:
    return call.args[0].realize() if len(call.args) == 1 and not call.kwargs else None


def _require_plain(value: compat.TensorVariable) -> None:
    if not is_plain(value) or getattr(value, "class_type", None) is torch.nn.Parameter:
        raise unequal("it is a parameter, or of another subclass")
    example = example_of(value)
    if example.requires_grad or not example.is_leaf:
        raise unequal("it requires gradients")
    if example.is_conj() or example.is_neg():
        raise unequal("it is a view that conjugates or negates")
