"""Integer tensors whose numbers are places of a dimension by how they were made.

``topk``, ``argsort``, ``randint`` with fixed ends, ``arange`` and such give numbers from zero to an
end that is known while the call is traced. An index by them, or by a view of them, is never out of
range.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import torch
from torch.fx import Node

from bcmend.dynamo import compat
from bcmend.tracing.effects.operator_runs import (
    OperatorCall,
    OperatorRun,
    facts_of_node,
    operators_of,
    storage_of,
    storages_written,
    target_name,
    tensors_of,
)

#: Ends of the numbers of tensors, by the memory that they lie in.
Ends = Mapping[int, Any]


def places_given(node: Node, run: OperatorRun, fake_mode: Any) -> Ends:
    """Return the ends of the places that an operation is given as tensors."""
    found: dict[int, Any] = {}
    for each in node.all_input_nodes:
        for tensor in tensors_of(each)[:1]:
            memory, end = storage_of(tensor), _end(each, fake_mode)
            found[memory] = end if found.get(memory, end) == end else None
    known = {memory: end for memory, end in found.items() if end is not None}
    stand_ins = {other: known[of] for other, of in run.stands_for.items() if of in known}
    return known | stand_ins


def is_index_in_range(call: OperatorCall, ends: Ends) -> bool:
    """Return whether an operator reads or stores at places that its tensor is known to have."""
    packet = call.operator.overloadpacket
    if packet not in BY_PLACES:
        return False
    tensor, places = call.arguments[:2]
    return all(
        each is None or _is_below(each, ends, tensor.size(dimension))
        for dimension, each in enumerate(places)
    )


def _is_below(places: torch.Tensor, ends: Ends, size: Any) -> bool:
    end = ends.get(storage_of(places)) if _is_integer(places) else None
    return end is not None and compat.statically_known_true(end <= size)


def _is_integer(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.int64, torch.int32)


BY_PLACES: Final = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_)


def _end(node: Node, fake_mode: Any) -> Any:
    """Return what all numbers of a node are below, none being negative; ``None`` if unknown."""
    if node.op not in ("call_function", "call_method") or not _is_of_integers(node):
        return None
    made = _second_result_of(node) or node
    run = operators_of(made, fake_mode)
    if run is None or run.asserts or _is_written_to(node, fake_mode):
        return None
    calls = [each for each in run.calls if each.operator not in _ASKING]
    first, rest = next(iter(calls), None), calls[1:]
    if not all(each.operator in _KEEPING for each in rest):
        return None
    if first is None or first.operator in _KEEPING:
        inputs = made.all_input_nodes
        return _end(inputs[0], fake_mode) if made is node and len(inputs) == 1 else None
    packet = first.operator.overloadpacket
    if made is not node or (target_name(node) == "argsort" and packet is _aten.sort):
        return _of_dimension(first) if packet in _WITH_PLACES else None
    return _ENDS[packet](first) if packet in _ENDS else None


def _is_of_integers(node: Node) -> bool:
    example = node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and _is_integer(example)


def _second_result_of(node: Node) -> Node | None:
    """Return the node of several tensors of which a node is the second one."""
    if node.target is not operator.getitem:
        return None
    of, place = node.args
    is_of_several = isinstance(of, Node) and isinstance(of.meta.get("example_value"), tuple)
    return cast(Node, of) if is_of_several and place == 1 else None


def _is_written_to(node: Node, fake_mode: Any) -> bool:
    """Return whether an operation of the graph may change the numbers of a node."""
    memory = set(map(storage_of, tensors_of(node)))
    for each in node.graph.nodes:
        if facts_of_node(each).changes(each.args, each.kwargs):
            written = storages_written(each, fake_mode)
            if written is None or not memory.isdisjoint(written):
                return True
    return False


def _argument(call: OperatorCall, name: str) -> Any:
    """Return an argument of an operator by its name, given or not."""
    for position, each in enumerate(call.operator._schema.arguments):
        if each.name == name:
            given = call.arguments[position : position + 1]
            return given[0] if given else call.keywords.get(name, each.default_value)
    return None


def _of_dimension(call: OperatorCall) -> Any:
    tensor, dimension = call.arguments[0], _argument(call, "dim")
    if dimension is None:
        return tensor.numel()
    return tensor.size(dimension) if tensor.dim() else 1


def _of_numbers(call: OperatorCall) -> Any:
    """Return the end of numbers from ``start`` or ``low``, or zero, in steps of one."""
    names = ("start", "low", "end", "high", "n", "step")
    given = {name: _argument(call, name) for name in names}
    start, end = given["start"] or given["low"] or 0, given["end"] or given["high"] or given["n"]
    if not (isinstance(start, int) and isinstance(end, int)) or given["step"] not in (None, 1):
        return None
    return end if start >= 0 else None


_aten: Final = torch.ops.aten

#: Operators that give places beside other numbers, as their second result.
_WITH_PLACES: Final = (_aten.topk, _aten.sort, _aten.max, _aten.min)
_ENDS: Final[dict[Any, Callable[[OperatorCall], Any]]] = {
    **dict.fromkeys((_aten.argmax, _aten.argmin), _of_dimension),
    _aten.nonzero: lambda call: call.arguments[0].size(0) if call.arguments[0].dim() == 1 else None,
    **dict.fromkeys((_aten.randint, _aten.randperm, _aten.arange), _of_numbers),
}
#: What a run of an operation asks besides.
_ASKING: Final = frozenset([torch.ops.prim.device.default])
#: What gives numbers that it is given, and no others.
_KEEPING: Final = frozenset(
    [
        *(_aten.view.default, _aten.reshape.default, _aten.unsqueeze.default, _aten.t.default),
        *(_aten.squeeze.default, _aten.squeeze.dim, _aten.expand.default, _aten.permute.default),
        *(_aten.transpose.int, _aten.slice.Tensor, _aten.select.int, _aten.clone.default),
        *(_aten.detach.default, _aten.alias.default, _aten.flip.default, _aten.repeat.default),
        _aten._unsafe_view.default,
    ]
)
