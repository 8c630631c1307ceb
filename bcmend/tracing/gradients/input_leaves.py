"""Inputs of a graph that a call has require gradients: ``positions.requires_grad_()``.

Torch takes that for a change which it cannot trace. It is made in front of the graph, for which the
input then is one that requires gradients. What was computed of it before is computed of its
detached form, and has no history, as in eager execution. Guards are asked before that, so that each
call that finds the input as it was comes to the same graph.

A call that is made again in plain Python finds it as it was too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from bcmend.bytecode import emit
from bcmend.dynamo import compat, handlers, hooks, plain_python
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, Value, constant, example_of, load_global
from bcmend.tracing.effects import change_counts
from bcmend.tracing.effects.operator_runs import storage_of, storages_of
from bcmend.tracing.search.calls import CURRENT
from bcmend.tracing.sites import capture_mode


def may_become_leaf(tensor: TensorValue) -> bool:
    """Return whether a tensor is an input of the graph which has only been read so far."""
    node, example = tensor.as_proxy().node, example_of(tensor)
    if tensor.source is None or node.op != "placeholder" or change_counts.changes(example):
        return False
    return not any(map(_is_opaque, node.users))


def _is_opaque(user: Node) -> bool:
    target = user.target
    return (
        isinstance(target, compat.HigherOrderOperator) and target is not torch.ops.higher_order.cond
    )


def views_of(tensor: TensorValue) -> list[Node]:
    """Return the views of an input; in eager execution they require gradients when it does."""
    memory = storage_of(example_of(tensor))
    waiting, found = [tensor.as_proxy().node], list[Node]()
    while waiting:
        for user in waiting.pop().users:
            if user.target != "detach" and user not in found and memory in storages_of(user):
                found.append(user)
                waiting.append(user)
    return found


def _detach_for(tx: compat.Tracer, tensor: TensorValue) -> None:
    """Have what was computed of an input be computed of its detached form."""
    node = tensor.as_proxy().node
    users = list(node.users)
    if not users:
        return
    first = next(each for each in tx.output.graph.nodes if each.op != "placeholder")
    with tx.output.graph.inserting_before(first):
        proxy = tx.output.root_tracer.create_proxy(
            "call_method", "detach", (tensor.as_proxy(),), {}
        )
        compat.wrap_fx_proxy(tx.output.root_tx, proxy)
    for each in users:
        each.replace_input_with(node, proxy.node)


def require_gradients(tx: compat.Tracer, tensor: TensorValue) -> None:
    """Have an input require gradients in front of the graph, and in what follows of the trace."""
    _detach_for(tx, tensor)
    codegen = compat.PyCodegen(tx.output.root_tx)
    codegen.add_push_null(lambda: load_global(codegen, _raise_flag))
    codegen(tensor.source)
    codegen.call_function(1, False)
    codegen.clear_tos()
    codegen.append_output(compat.create_instruction(emit.pop_top.op))
    tx.output.pregraph_bytecode.extend(codegen.get_instructions())
    change_counts.note(tensor)  # output that shows it shows the flag as well
    example_of(tensor).requires_grad_()
    tensor.requires_grad = True
    _LEAVES.of(tx.output).append(tensor.as_proxy().node)


@handlers.attribute_read("flags of inputs that may become leaves", place=2)
def _flag(read: Callable[[Any], Any], tx: compat.Tracer, owner: Any, default: Value | None) -> Any:
    """Have ``requires_grad`` be what it was when it was read, and not be read behind the graph."""
    found = read(owner)
    if type(found) is not compat.ConstantVariable:
        return found
    value = found.as_python_constant()
    if not (value is None or isinstance(value, bool)):
        return found
    model = owner.realize()
    if not isinstance(model, compat.TensorVariable):
        return found
    withdraw = _OLD_VIEWS.of(tx.output).get(model.as_proxy().node)
    if withdraw is not None:
        withdraw()
    is_flag = isinstance(value, bool) and found.source is not None
    return constant(value) if is_flag and capture_mode.in_mended_code(tx) else found


#: What withdraws a change, by the views of which a flag would be another one behind it.
_OLD_VIEWS: Final[Slot[dict[Node, Callable[[], NoReturn]]]] = Slot(dict, rolls_back=True)


def keep_flags_unread(
    tx: compat.Tracer, views: Iterable[Node], withdraw: Callable[[], NoReturn]
) -> None:
    """Have a change withdrawn where code asks a view that was taken before for its flags."""
    _OLD_VIEWS.of(tx.output).update(dict.fromkeys(views, withdraw))


#: Inputs that are to require gradients in front of the graph.
_LEAVES: Final[Slot[list[Node]]] = Slot(list, rolls_back=True)


@hooks.around(
    compat.OutputGraph, methods.CALL_BACK_END, "inputs that become leaves", gate=None, place=5
)
def _compile(inner: Any, output: compat.OutputGraph, module: GraphModule, *more: Any) -> Any:
    """Have a back end find inputs as the graph will find them."""
    given = [node.meta["grapharg"].example for node in _LEAVES.of(output)]
    changed = [each for each in given if isinstance(each, Tensor) and not each.requires_grad]
    try:
        for each in changed:
            each.requires_grad_()
        return inner(output, module, *more)
    finally:
        for each in changed:
            each.requires_grad_(False)


def is_kept(tx: compat.Tracer, tensor: TensorValue) -> bool:
    """Return whether an input is found again by later calls, which then it is no news to.

    So it is for what a module holds, and for global variables. A call in plain Python changes these
    once, and the graph that is compiled later is for all others.
    """
    source: Any = tensor.source
    while isinstance(source, compat.ChainedSource):
        source = source.base
        if isinstance(tx.output.resolve_source_value(source), torch.nn.Module):
            return True
    return isinstance(source, compat.GlobalSource)


def is_raised(tx: compat.Tracer, tensor: TensorValue) -> bool:
    """Return whether an input requires gradients only since the call has it do so."""
    return tensor.as_proxy().node in _LEAVES.of(tx.output)


def _raise_flag(tensor: Tensor) -> None:
    tensor.requires_grad_()
    CURRENT.leaves = (*CURRENT.leaves, weakref.ref(tensor))


def take_back() -> None:
    """Have the tensors require no gradients, as before the frame."""
    for each in CURRENT.leaves:
        tensor = each()
        if tensor is not None and tensor.is_leaf:
            tensor.requires_grad_(False)
    CURRENT.leaves = ()


plain_python.have_dynamo_skip(_raise_flag, take_back)
