"""Numbers that are computed in front of the graph.

``for t, h, w in grid.tolist()`` makes as many turns as the data say, and each of them tensors of
sizes that the data say. Where the numbers are computed from what the call is given, by operations
that do nothing else, those operations are cut out of the trace (``slices``). From then on the
boundary runs them before it calls the body, which gets the numbers as an argument: for Dynamo they
are integers like the sizes of a tensor, and another layout is another variant.

A trace notes what it could have had so. Only where it fails, or has to assume something of a
number, is it made again with the numbers at hand. It takes them for a tensor that it computes by
the very calls that were made in front of it; for any other it does as if there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat, frames
from bcmend.dynamo.models import containers, graph_inputs
from bcmend.dynamo.values import TensorValue, Value, example_of, items_in
from bcmend.names import NUMBERS
from bcmend.tracing.effects.operator_runs import is_in_place
from bcmend.tracing.effects.random_draws import may_draw
from bcmend.tracing.numbers.constant_tensors import is_of_torch, is_written, parts_of
from bcmend.tracing.numbers.slices import Scope, Slice, behind, cut, numbers_in
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.refusal import Refusal, attempt

#: Operations behind a tensor, and elements of each tensor on the way. They are computed twice: in
#: front of the graph, and in it.
_OPERATIONS: Final = 256
_ELEMENTS: Final = 2**18
#: Numbers of one tensor, each of which is compared at each call.
_NUMBERS: Final = 1024
#: Tensors of one body.
_SLICES: Final = 256

_WIDE: Final = (torch.float32, torch.float64)


def given(body: FunctionType, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the numbers that ``body`` is to get in a call: those of each tensor, as tuples.

    ``None`` for a tensor that cannot be computed in this call.
    """
    state = body_states.state_of(body.__code__, is_body=True)
    if not state.slices:
        return ()
    code, cells = body.__code__, body.__closure__ or ()
    local = dict(zip(frames.arguments_of(code), arguments, strict=False))
    local |= {
        name: cell.cell_contents
        for name, cell in zip(code.co_freevars, cells, strict=True)
        if _is_filled(cell)
    }
    found: list[Any] = []
    for each in list(state.slices):
        local[NUMBERS] = tuple(found)  # a later one may be computed from them
        found.append(_computed(each, Scope(local, body.__globals__)))
    return tuple(found)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _computed(wanted: Slice, scope: Scope) -> Any:
    """Return the numbers of a slice; ``None`` where it fails, as the program will in its turn."""
    try:
        with compat._disable_current_modes(), torch.no_grad():
            return numbers_in(wanted.value(scope))
    except Exception:
        return None


def number_in(tx: compat.Tracer, variable: TensorValue) -> Value | None:
    """Return the number in a tensor of one element that was computed in front of the graph."""
    if example_of(variable).dtype is torch.bool:
        return None  # a condition, by which nothing has a size
    found = _found(tx, variable)
    while found is not None and (items := items_in(found)) is not None:
        (found,) = (each.realize() for each in items)
    return found


def list_of(tx: compat.Tracer, variable: TensorValue) -> Value | None:
    """Return the numbers in a tensor as ``tolist`` gives them, if they were computed in front."""
    found = _found(tx, variable)
    return None if found is None else _as_lists(found)


def _as_lists(value: Value) -> Value:
    items = items_in(value)
    return (
        value
        if items is None
        else containers.new_list([_as_lists(each.realize()) for each in items])
    )


def _found(tx: compat.Tracer, variable: TensorValue) -> Value | None:
    """Return the numbers in a tensor; note what is behind it where they are not known."""
    policy = frames.mark_over(tx)
    root = tx.output.root_tx
    numbers: Any = tx.output.local_scope.get(NUMBERS)
    if numbers is None or tx.export or policy is None or policy.numbers != "ahead":
        return None
    wanted = attempt(lambda: _slice_of(tx, variable))
    if isinstance(wanted, Refusal):
        return None
    state = body_states.state_of(root.f_code)
    known = list(state.slices)
    if wanted not in known:
        if len(known) + len(state.noted) < _SLICES and wanted not in state.noted:
            scope = Scope(dict(tx.output.local_scope), tx.output.global_scope)
            if _is_short(_computed(wanted, scope)):
                state.noted.append(wanted)
        return None
    place = known.index(wanted)
    if place >= len(numbers) or not _is_short(numbers[place]):
        return None
    source = graph_inputs.item_of_local(NUMBERS, place)
    result: Value = Value.build(tx, numbers[place], source).realize()
    return result


def _is_short(numbers: Any) -> bool:
    if numbers is None:
        return False
    return not isinstance(numbers, tuple) or _count(numbers) <= _NUMBERS


def _count(numbers: Any) -> int:
    return sum(map(_count, numbers)) if isinstance(numbers, tuple) else 1


def _slice_of(tx: compat.Tracer, variable: TensorValue) -> Slice:
    """Return what is behind a tensor of integers. Raises ``Refusal``."""
    example = example_of(variable)
    if example.is_floating_point() or example.is_complex() or type(variable) is not _TENSOR:
        raise Refusal("constant-value")
    nodes = behind(tx, variable.as_proxy().node, _may_be_run, _OPERATIONS)
    if is_written(tx, dict.fromkeys(nodes)):
        raise Refusal("constant-value")
    return cut(tx, nodes)


_TENSOR: Final = compat.TensorVariable


def _may_be_run(node: Node) -> bool:
    """Return whether a node is given to the call, or computes something small, and nothing else."""
    if not all(map(_is_small, parts_of(node))):
        return False
    if node.op == "placeholder":
        return graph_inputs.source_of(node) is not None
    is_call = node.op in ("call_function", "call_method") and is_of_torch(node.target)
    return is_call and not (is_in_place(node) or may_draw(node))


def _is_small(example: Any) -> bool:
    """Return whether a value is no weight, and as precise in front of the graph as in it."""
    if isinstance(example, (int, torch.SymInt)):
        return True
    if not isinstance(example, torch.Tensor) or example.layout is not torch.strided:
        return False
    if example.requires_grad or example.is_complex() or example.is_quantized:
        return False
    is_precise = not example.is_floating_point() or example.dtype in _WIDE
    count = example.numel()
    known = count if isinstance(count, int) else _hint(count)
    return is_precise and known <= _ELEMENTS


def _hint(size: torch.SymInt) -> int:
    """Return a size as it is in the call being traced; 0 for one that the data say."""
    return int(size.node.hint) if size.node.has_hint() else 0
