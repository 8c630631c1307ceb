"""Lists of tensors of one number, read as one tensor: ``torch.as_tensor([x[0], 3])``, ``y[rows]``.

Torch reads the numbers, one after the other, into new memory. A graph stacks the tensors. An index
may be a list of numbers that were taken out of tensors, or that branches leave, or a range up to
such a number.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Final

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import Value, example_of, is_symbolic_int, is_unbacked, made_of
from bcmend.tracing.loops import open_ranges
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.numbers import scalars
from bcmend.tracing.two_forms import open_numbers, sides

#: Numbers of these types become ones of the last without a change.
_INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_SEQUENCES: Final = (compat.ListVariable, compat.TupleVariable)


def stacked(tx: compat.Tracer, items: Value, dtype: torch.dtype | None) -> Value | None:
    """Return a tensor on the CPU of the numbers of a list of tensors, of lists of them, and so on.

    ``None`` where there is no tensor among them, or where torch may read other numbers of them.
    """
    numbers = list(leaves(items)) if is_sequence(items) else []
    tensors = [each for each in numbers if isinstance(each, compat.TensorVariable)]
    if not tensors or not all(map(_is_plain, tensors)):
        return None
    if dtype is None:
        dtypes = {example_of(each).dtype for each in tensors}
        if len(dtypes) > 1 or len(tensors) < len(numbers):
            return None  # they are promoted
        (dtype,) = dtypes
    is_kept = all(_is_kept(each, dtype) for each in numbers)
    return _stacked(tx, items, dtype) if is_kept and _shape(items) is not None else None


def with_stacked(tx: compat.Tracer, key: Value) -> Value | None:
    """Return an index in which lists of tensors are tensors; ``None`` for one without such lists.

    Torch makes an index of bytes a mask, so that only integers of 64 bits are taken.
    """
    if type(key) is compat.ListVariable:
        # Torch takes a list with lists or tensors in it for a tuple.
        kinds = (*_SEQUENCES, compat.TensorVariable)
        is_a_tuple = any(isinstance(each, kinds) for each in _items(key))
        return None if is_a_tuple else _stacked_index(tx, key)
    if isinstance(key, open_ranges.OpenRange):
        return _stacked_index(tx, key)
    if type(key) is not compat.TupleVariable:
        return None
    items = [each.realize() for each in key.items]
    found = [_stacked_index(tx, each) or each for each in items]
    is_same = all(one is other for one, other in zip(items, found, strict=True))
    return None if is_same else compat.TupleVariable(found)


def _stacked_index(tx: compat.Tracer, value: Value) -> Value | None:
    if isinstance(value, open_ranges.OpenRange):
        return value.as_tensor(tx)
    known = _with_numbers(tx, value)
    numbers = list(leaves(known)) if is_sequence(known) else []
    dtypes = {example_of(each).dtype for each in numbers if isinstance(each, compat.TensorVariable)}
    if dtypes:
        return stacked(tx, known, torch.int64) if dtypes == {torch.int64} else None
    are_numbers = any(map(is_unbacked, numbers)) and all(
        _is_kept(each, torch.int64) for each in numbers
    )
    return _stacked(tx, known, torch.int64) if are_numbers and _shape(known) is not None else None


def _with_numbers(tx: compat.Tracer, value: Value) -> Value:
    """Return lists in which integers that branches leave in several forms are one number each."""
    if type(value) in _SEQUENCES:
        items = _items(value)
        found = [_with_numbers(tx, each) for each in items]
        is_same = all(map(operator.is_, items, found))
        return value if is_same else made_of(value, found)
    is_open = isinstance(value, LazyPhi) and open_numbers.kind_of(value) is int
    if not is_open or not sides.have_at_hand(value):
        return value
    assert sides.is_open(value)
    return open_numbers.joined(tx, value) or value


def is_sequence(value: Value) -> bool:
    """Return whether a value is a list or a tuple, and of no other class."""
    return type(value) in _SEQUENCES


def leaves(items: Value) -> Iterator[Value]:
    """Yield what is in a list, and in the lists in it."""
    for each in _items(items):
        if type(each) in _SEQUENCES:
            yield from leaves(each)
        else:
            yield each


def _items(sequence: Value) -> list[Value]:
    assert isinstance(sequence, _SEQUENCES)
    return [each.realize() for each in sequence.items]


def _is_plain(tensor: compat.TensorVariable) -> bool:
    example = example_of(tensor)
    is_number = type(tensor) is compat.TensorVariable and example.dim() == 0
    return is_number and example.device.type == "cpu" and not example.requires_grad


def _is_kept(value: Value, dtype: torch.dtype) -> bool:
    """Return whether a number is the same as one of a type."""
    if isinstance(value, compat.TensorVariable):
        given = example_of(value).dtype
        return given is dtype or (given in _INTEGERS and dtype is torch.int64)
    if dtype is not torch.int64:
        return False
    is_known = isinstance(value, compat.ConstantVariable) and type(value.value) is int
    return is_known or is_symbolic_int(value)


def _shape(items: Value) -> tuple[int, ...] | None:
    """Return the sizes of nested lists; ``None`` where they are ragged."""
    if type(items) not in _SEQUENCES:
        return ()
    found = {_shape(each) for each in _items(items)}
    if len(found) != 1 or None in found:
        return None
    (inner,) = found
    return None if inner is None else (len(_items(items)), *inner)


def _stacked(tx: compat.Tracer, value: Value, dtype: torch.dtype) -> Any:
    if type(value) in _SEQUENCES:
        inner = [_stacked(tx, each, dtype) for each in _items(value)]
        return fx_graph.function(tx, torch.stack, compat.ListVariable(inner))
    if isinstance(value, compat.TensorVariable):
        is_same = example_of(value).dtype is dtype
        return value if is_same else fx_graph.method(tx, "to", value, dtype)
    known = scalars.tensor_of_count(tx, value) if is_symbolic_int(value) else None
    if known is not None and example_of(known).device.type == "cpu":
        return known
    return fx_graph.function(tx, torch.scalar_tensor, value, dtype=dtype, device="cpu")
