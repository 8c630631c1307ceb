"""Items at data-dependent places: ``x[row]``, ``x[row.item(), 0]``, ``x[:, column]``; crops.

Dynamo writes ``torch.select`` for ``x[number]`` with an unbacked number; with any other index of
that kind torch raises while the call is traced, or the number becomes a constant of the graph. Here
such an index is written as one ``select`` for each of these numbers, behind the rest of the index,
and ``x[top:bottom, left:right]`` as one slice behind the other, in front of items that tensors
name. The result is a view where it is one in eager execution.

Where that is changed in place and has a history of gradients, autograd regenerates the view while
the call is traced, and the symbol of its storage offset is in no operation of the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeGuard

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat, fx_graph, hooks
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    is_batched,
    is_symbolic_int,
    is_unbacked,
)
from bcmend.tracing.gradients.gradient_flow import has_gradient
from bcmend.tracing.indexing import stacked_items
from bcmend.tracing.indexing.index_parts import (
    INDEX_TYPES,
    Item,
    Part,
    Slice,
    is_known,
    is_number,
    items_of,
    names_dimension,
    names_place,
    part_of,
)
from bcmend.tracing.numbers import ahead, arm_selections, scalars, size_questions
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import attempt

_IN_PLACE: Final = frozenset(
    getattr(operator, f"i{name}")
    for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
)


def read(tx: compat.Tracer, tensor: TensorValue, key: Value) -> TensorValue | None:
    """Return ``tensor[key]``; ``None`` where Dynamo's own way is as good."""
    example = example_of(tensor)
    if isinstance(key, compat.SymNodeVariable):
        require_item(tx, tensor, 0, key)
        return _before_known_places(tx, tensor, key)
    if example.layout is not torch.strided or is_batched(example):
        return None
    steps = slices_first(tx, key)
    if steps is not None:
        for each in steps:
            tensor = part_at(tx, tensor, each)
        return tensor
    part = part_of(tx, example.dim(), key)
    if part is None or not _is_written_otherwise(part):
        return None
    rest, slices, numbers = _divided(tx, key, example.dim())
    if None in numbers.values():
        return None
    for place, at in slices[1:]:
        tensor = _sliced(tx, tensor, at, rest[place])
        rest[place] = containers.whole_slice(constant(None))
    # Inductor takes no item at such a place of what is an item at a known place.
    for at in reversed(numbers):
        require_item(tx, tensor, at, numbers[at])
        tensor = fx_graph.function(tx, torch.select, tensor, at, numbers[at])
    if not rest:
        return tensor
    return fx_graph.function(tx, operator.getitem, tensor, compat.TupleVariable(rest))


def part_at(tx: compat.Tracer, tensor: Value, key: Value) -> TensorValue:
    """Return ``tensor[key]``, as it is written wherever a program has it."""
    found: Any = compat.BuiltinVariable(operator.getitem).call_function(tx, [tensor, key], {})
    return found  # type: ignore[no-any-return]


def slices_first(tx: compat.Tracer, key: Value) -> list[Value] | None:
    """Return data-dependent slices, and the rest, of an index in which tensors name items too.

    ``x[rows, :, top:bottom]`` is ``x[:, :, top:bottom][rows]``; torch loses the offset of the slice
    where it does both at once. ``None`` for other indices.
    """
    items = items_of(key)
    names = list(map(_names_places, items))
    others = [each for each, is_named in zip(items, names, strict=True) if not is_named]
    has_list = any(map(_is_list_of_places, items))
    if not (has_list and any(_is_open(tx, each) for each in others)):
        return None
    if not all(map(_is_known_kind, others)):
        return None
    whole = containers.whole_slice(constant(None))
    first = [
        whole if is_named else each
        for each, is_named in zip(items, names, strict=True)
        if not is_known(each, None)
    ]
    rest = [
        whole if isinstance(each, compat.SliceVariable) else each
        for each in items
        if not _is_one_place(each)
    ]
    return [compat.TupleVariable(first), compat.TupleVariable(rest)]


def _names_places(value: Value) -> bool:
    """Return whether a part of an index names items by a tensor or a list."""
    is_tensor = _is_tensor(value) and example_of(value).dtype in INDEX_TYPES
    return is_tensor or _is_list_of_places(value)


def _is_list_of_places(value: Value) -> bool:
    if isinstance(value, (compat.ListVariable, compat.TupleVariable)):
        return all(isinstance(each.realize(), compat.ConstantVariable) for each in value.items)
    if not _is_tensor(value):
        return False
    return example_of(value).dtype in INDEX_TYPES and example_of(value).dim() > 0


def _is_known_kind(value: Value) -> bool:
    is_slice = isinstance(value, compat.SliceVariable)
    return is_slice or _is_one_place(value) or not names_dimension(value)


def _is_one_place(value: Value) -> bool:
    """Return whether an index is a number, which torch takes before it looks at tensors."""
    return is_number(value) or is_symbolic_int(value)


def _is_open(tx: compat.Tracer, value: Value) -> bool:
    is_slice = isinstance(value, compat.SliceVariable)
    return is_slice and attempt(lambda: names_place(tx, value)) is True


def _before_known_places(
    tx: compat.Tracer, tensor: TensorValue, number: Value
) -> TensorValue | None:
    """Return the item of an item at known places, as ``x[0][number]``: the number's is taken first.

    ``None`` for other tensors.
    """
    proxy = tensor.as_proxy()
    node: Any = proxy.node
    places: list[Any] = []
    while _is_item_at_a_known_place(node):
        places.insert(0, node.args[1])
        node = node.args[0]
    if not places:
        return None
    whole = fx_graph.variable_of(tx, Proxy(node, proxy.tracer))
    found = fx_graph.function(tx, torch.select, whole, len(places), number)
    for each in places:
        found = fx_graph.function(tx, operator.getitem, found, constant(each))
    return found


def _is_item_at_a_known_place(node: Any) -> bool:
    """Return whether a node is a view of an item of a tensor that is still of its form."""
    if node.target is not operator.getitem or type(node.args[1]) is not int:
        return False
    item, whole = (each.meta.get("example_value") for each in (node, node.args[0]))
    if not (type(item) is compat.FakeTensor and type(whole) is compat.FakeTensor):
        return False
    if whole.layout is not torch.strided or not whole.dim() or is_batched(whole):
        return False
    place = node.args[1] % whole.shape[0] if node.args[1] < 0 else node.args[1]
    offset = whole.storage_offset() + place * whole.stride(0)
    return (item.shape, item.stride()) == (whole.shape[1:], whole.stride()[1:]) and (
        compat.statically_known_true(item.storage_offset() == offset)
    )


def _divided(
    tx: compat.Tracer, key: Value, dimensions: int
) -> tuple[list[Value], list[tuple[int, int]], dict[int, Any]]:
    """Return an index without its data-dependent items, and what is data-dependent of it.

    That is for each slice its position and its dimension, and for each dimension with an item the
    number, ``None`` for one that cannot be had.
    """
    rest: list[Value] = []
    slices, numbers, items = [], {}, items_of(key)
    for each, at in zip(items, _dimensions(items, dimensions), strict=True):
        if at is None or not names_place(tx, each):
            rest.append(each)
        elif isinstance(each, compat.SliceVariable):
            slices.append((len(rest), at))
            rest.append(each)
        else:
            is_tensor = isinstance(each, compat.TensorVariable)
            numbers[at] = scalars.take(tx, each) if is_tensor else each  # type: ignore[arg-type]
    return rest, slices, numbers


def _is_written_otherwise(part: Part) -> bool:
    """Return whether an index becomes several operations: of two slices torch loses an offset."""
    slices = sum(isinstance(each, Slice) for each in part.axes)
    return slices > 1 or any(isinstance(each, Item) for each in part.axes)


def _sliced(tx: compat.Tracer, tensor: TensorValue, at: int, part: Value) -> TensorValue:
    """Return a tensor of which one dimension is sliced."""
    before = [containers.whole_slice(constant(None)) for _ in range(at)]
    return fx_graph.function(tx, operator.getitem, tensor, compat.TupleVariable([*before, part]))


def require_item(tx: compat.Tracer, tensor: TensorValue, at: int, place: Any) -> None:
    """Have the graph assert that there is an item at a place: Inductor reads memory unasked."""
    if is_symbolic_int(place):
        shape = example_of(tensor).shape
        if -len(shape) <= at < len(shape):
            number, size = place.sym_num, shape[at]
            size_questions.claim(tx, number < size, number >= -size)


def _dimensions(items: Sequence[Value], count: int) -> Iterator[int | None]:
    """Yield for each part of an index the dimension of the tensor that it is of."""
    at, unnamed = 0, count - sum(map(names_dimension, items))
    for each in items:
        yield at if names_dimension(each) else None
        at += unnamed if is_known(each, ...) else int(names_dimension(each))


def as_one_item(tx: compat.Tracer, tensor: Value, mask: Value) -> list[Value] | None:
    """Return a tensor without sizes and a mask without sizes as views of one item, as torch does.

    Torch itself knows no size of what ``x[x > 0]`` is then. ``None`` for all else.
    """
    given = tensor, mask
    if not all(type(each) is compat.TensorVariable for each in given):
        return None
    examples = [example_of(each) for each in given if isinstance(each, compat.TensorVariable)]
    if any(each.dim() for each in examples) or examples[1].dtype is not torch.bool:
        return None
    return [tensor.call_method(tx, "unsqueeze", [constant(0)], {}), _mask_of_one(tx, mask)]


def _mask_of_one(tx: compat.Tracer, mask: Any) -> Value:
    """Return a view of one item, the same one each time: what a mask selects has one size."""
    node = mask.as_proxy().node
    for each in node.users:
        example = each.meta.get("example_value")
        is_view = (each.target, each.args) == ("unsqueeze", (node, 0))
        if is_view and isinstance(example, torch.Tensor) and tuple(example.shape) == (1,):
            known: Value = fx_graph.variable_of(tx, Proxy(each, mask.as_proxy().tracer))
            return known
    view: Value = mask.call_method(tx, "unsqueeze", [constant(0)], {})
    return view


def _is_tensor(value: Value) -> TypeGuard[TensorValue]:
    return type(value) is compat.TensorVariable


_PURPOSE: Final = "items at data-dependent places"


@hooks.around(compat.BuiltinVariable, methods.INSERT_OPERATION, _PURPOSE, place=1)
def _insert(inner: Any, variable: Any, tx: compat.Tracer, arguments: Any, keywords: Any) -> Any:
    """Insert an operator into the graph, such as ``x[row]``; ``x[mask]`` has a new size."""
    reads = variable.fn is operator.getitem and len(arguments) == 2
    selection = None
    if reads and capture_mode.in_mended_code(tx):
        tensor, key = (each.realize() for each in arguments)
        key = _without_arrays(tx, key) if _is_tensor(tensor) else key
        arguments = [tensor, key]
        if _is_tensor(tensor):
            _claim_bounds(tx, tensor, key)
        stacked = stacked_items.with_stacked(tx, key) if _is_tensor(tensor) else None
        if stacked is not None:
            arguments = tensor, key = [tensor, stacked]
        found = read(tx, tensor, key) if _is_tensor(tensor) else None
        if found is not None:
            return found
        arguments = as_one_item(tx, tensor, key) or arguments
        if _is_tensor(tensor) and arguments[1] is key:
            key, selection = arm_selections.read(tx, key)
            arguments = [tensor, key]
    is_changed = variable.fn in _IN_PLACE
    with _view_regenerated(tx, arguments[0].realize()) if is_changed else nullcontext():
        result = inner(variable, tx, arguments, keywords)
    if reads and type(result) is compat.TensorVariable and capture_mode.in_mended_code(tx):
        ahead.know_sizes(tx, result)
        if selection is not None:
            arm_selections.note(tx, tensor, selection, result)
    return result


def _without_arrays(tx: compat.Tracer, key: Value) -> Value:
    """Return an index in which integers of numpy's are tensors, which are numbers to torch too."""
    items = items_of(key)
    if not any(map(scalars.is_integer_of_array, items)):
        return key
    found = [scalars.as_tensor(tx, each) for each in items]
    return compat.TupleVariable(found) if type(key) is compat.TupleVariable else found[0]


def _claim_bounds(tx: compat.Tracer, tensor: TensorValue, key: Value) -> None:
    """Have the graph assert that no bound of a slice counts from the end, if gradients flow.

    Inductor compiles the backward of a slice, and of what is computed of it, only where it knows
    that. A bound that is meant to count from the end, as in ``x[:-n]``, is left as it is.
    """
    if not torch.is_grad_enabled():
        return
    slices = [each for each in items_of(key) if isinstance(each, compat.SliceVariable)]
    bounds = [bound.realize() for each in slices for bound in each.items]
    numbers = [each.sym_num for each in bounds if is_symbolic_int(each) and is_unbacked(each)]
    sums = list(filter(_is_sum, numbers))
    if sums and (has_gradient(tensor.as_proxy().node) or _trains(tx)):
        size_questions.claim(tx, *(each >= 0 for each in sums))


def _is_sum(number: torch.SymInt) -> bool:
    """Return whether nothing is subtracted in a number but what is known."""
    terms = number.node.expr.as_coefficients_dict()
    return all(count > 0 for term, count in terms.items() if not term.is_number)


def _trains(tx: compat.Tracer) -> bool:
    """Return whether something in the graph requires gradients so far."""
    return any(map(has_gradient, tx.output.root_tracer.graph.nodes))


def _view_regenerated(tx: compat.Tracer, value: Value) -> AbstractContextManager[Any]:
    """Let autograd regenerate a view, whose offset then is in no operation of the graph."""
    if not _has_unbacked_offset(value):
        return nullcontext()
    environment: Any = tx.output.shape_env
    ignoring: AbstractContextManager[Any] = environment.ignore_fresh_unbacked_symbols()
    return ignoring


def _has_unbacked_offset(value: Value) -> bool:
    if type(value) is not compat.TensorVariable:
        return False
    example = example_of(value)
    offset = example.storage_offset() if example.layout is torch.strided else 0
    return isinstance(offset, torch.SymInt) and bool(compat.free_unbacked_symbols(offset))


@hooks.around(compat.TensorVariable, methods.CALL_METHOD, _PURPOSE, place=4)
def _call_method(
    inner: Any, variable: Any, tx: compat.Tracer, name: str, args: Any, kwargs: Any
) -> Any:
    """Model ``x[row].add_(1)``."""
    is_changed = name.endswith("_") and not name.endswith("__")
    with _view_regenerated(tx, variable) if is_changed else nullcontext():
        return inner(variable, tx, name, args, kwargs)


@hooks.around(compat.TensorVariable, methods.READ_WHAT_HAS_CHANGED, _PURPOSE)
def _read_again(inner: Any, variable: Any, tx: compat.Tracer, *others: Any, **named: Any) -> None:
    """Model ``x[row][0] = 1``, behind which Dynamo looks at the view."""
    with _view_regenerated(tx, variable):
        inner(variable, tx, *others, **named)
