"""``torch.nn.Parameter`` of a tensor that the call has computed.

A graph can neither make a parameter nor compute gradients of one. So the parameter is made before
the graph runs, afresh at each call, and is an input of it; where the program makes it, the graph
fills it with the tensor. What initialises it afterwards changes that input in place. In eager
execution the parameter has the memory of the tensor, which may therefore have no other use behind
that place.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat, handlers, values
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.trace_state import Phase, at_the_end, at_the_end_of_a_graph
from bcmend.dynamo.values import Value, example_of
from bcmend.tracing.effects import sharing
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.substitutes import dispatch
from bcmend.tracing.substitutes.autograd_leaf import flag, is_plain
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal


@answers_to("parameter")
def _parameter(call: ReplacedCall) -> Answer:
    """Answer ``Parameter(data, requires_grad=True)``."""
    names = ("data", "requires_grad")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    given_data = given.pop("data", None)
    data: Any = None if given_data is None else given_data.realize()
    if not is_plain(data) or not given.keys() <= {"requires_grad"} or len(call.args) > len(names):
        return PASS
    if data.source is not None:
        _require_from_outside(data)
        return PASS
    if call.tx.export:
        raise unequal("an exported program has no Python in front of its graph")
    dispatch.require_always(call.tx, "made")
    requires_grad = "requires_grad" not in given or flag(given["requires_grad"])
    example = example_of(data)
    _require_memory_of_its_own(call, data)
    if requires_grad and not (example.is_floating_point() or example.is_complex()):
        raise unequal("it fails, since such numbers have no gradients")
    result = _made_before_the_graph(call.tx, example, requires_grad)
    _fill(call, result, data)
    return result


def _require_from_outside(data: Value) -> None:
    """Break the graph at a parameter of a parameter of the call, which share memory."""
    if isinstance(data.source, compat.SyntheticLocalSource):
        handlers.break_graph(
            "a parameter made of another one",
            str(data),
            "Both would be inputs of the graph, and have the same memory.",
        )


def _require_memory_of_its_own(call: ReplacedCall, data: compat.TensorVariable) -> None:
    example, node = example_of(data), data.as_proxy().node
    if node.op not in ("call_function", "call_method"):
        raise unequal("the tensor comes from outside the call")
    if not all(type(each) is int for each in (*example.shape, *example.stride())):
        raise unequal("its size is not known before the call")
    nodes = call.tx.output.graph.nodes
    if any(each.target is compat._enter_inference_mode for each in nodes):
        raise unequal("the call enters or leaves inference mode")
    if compat.peek_interpreter_stack() is not None:
        raise unequal("it is made under a transform of `torch.func`")
    is_whole = example.untyped_storage().nbytes() == example.numel() * example.itemsize
    if not (is_whole and compat.is_non_overlapping_and_dense_or_false(example)):
        raise unequal("the tensor is a part of another one")
    sharing.require_alone(call.tx, example)
    if sharing.related_to(call.tx, example):
        raise unequal("the tensor shares memory on one side of a branch")
    outside = (each for each in nodes if each.op in ("placeholder", "get_attr"))
    if any(map(_in_memory_of(example), outside)):
        raise unequal("the tensor shares memory with one from outside the call")


def _in_memory_of(example: torch.Tensor) -> Any:
    memory = storage_of(example)

    def shares(node: Node) -> bool:
        leaves = compat.tree_leaves(node.meta.get("example_value"))
        return any(isinstance(each, torch.Tensor) and storage_of(each) == memory for each in leaves)

    return shares


# The input


def _new(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
) -> torch.nn.Parameter:
    data = torch.empty_strided(size, stride, dtype=dtype, device=device)
    return torch.nn.Parameter(data, requires_grad)


def _made_before_the_graph(tx: compat.Tracer, example: torch.Tensor, requires_grad: bool) -> Value:
    """Return a new input of the graph, a parameter without contents.

    Follows ``OutputGraph.synthetic_graph_input`` (torch/_dynamo/output_graph.py), which takes only
    functions that a module has.
    """
    output = tx.output
    form = (tuple(example.size()), example.stride(), example.dtype, example.device)
    make = partial(_new, *form, requires_grad)
    name = output.new_var()
    codegen = compat.PyCodegen(output.root_tx)
    codegen.add_push_null(lambda: values.load_global(codegen, make))
    codegen.call_function(0, False)
    codegen.store(name)
    output.pregraph_bytecode.extend(codegen.get_instructions())
    source = compat.SyntheticLocalSource(name)
    result: Value = compat.VariableTracker.build(output.root_tx, make(), source).realize()

    def remove_guards(module: object) -> None:
        guards = output.tracing_context.guards_context.dynamo_guards
        guards.remove_guards_with_source(source)

    # It is not there yet when guards are checked, and looks the same at each call.
    at_the_end(output, Phase.EDIT, remove_guards)
    return result


# Its contents

_ARE_EMPTY: Final = (torch.empty, torch.empty_strided, torch.empty_like, torch.Tensor.new_empty)


def _fill(call: ReplacedCall, result: Value, data: compat.TensorVariable) -> None:
    """Have the graph copy ``data``, if it has contents, and check at its end that this is all."""
    tx, node = call.tx, data.as_proxy().node
    if node.users or node.target not in (*_ARE_EMPTY, "new_empty"):
        inside = result.call_method(tx, "detach", [], {})
        inside.call_method(tx, "copy_", [data.call_method(tx, "detach", [], {})], {})
    before = set(tx.output.graph.nodes)
    shares = _in_memory_of(example_of(data))

    def examine(module: object) -> None:
        nodes = tx.output.graph.nodes
        users = _users(each for each in nodes if shares(each))
        if not users <= before:
            dispatch.withdraw(call.site, "the tensor that it is made of is used elsewhere")

    at_the_end_of_a_graph(tx.output, Phase.CHECK, examine)


def _users(nodes: Iterable[Node]) -> set[Node]:
    return {user for node in nodes for user in node.users}
