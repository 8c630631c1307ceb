"""Inputs of a graph that a call has require gradients: ``positions.requires_grad_()``.

Torch takes that for a change which it cannot trace. Where nothing was computed of the input before,
it is made in front of the graph, for which the input then is one that requires gradients. Guards
are asked before that, so that each call that finds the input as it was comes to the same graph.

A call that is made again in plain Python finds it as it was too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat, hooks, plain_python
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, example_of, load_global
from bcmend.tracing.effects import change_counts


def is_untouched(tensor: TensorValue) -> bool:
    """Return whether a tensor is an input of the graph that nothing was computed of so far."""
    node = tensor.as_proxy().node
    return tensor.source is not None and node.op == "placeholder" and not node.users


def require_gradients(tx: compat.Tracer, tensor: TensorValue) -> None:
    """Have an untouched input require gradients in front of the graph, and for the trace."""
    codegen = compat.PyCodegen(tx.output.root_tx)
    codegen.add_push_null(lambda: load_global(codegen, _raise_flag))
    codegen(tensor.source)
    codegen.call_function(1, False)
    codegen.clear_tos()
    codegen.append_output(compat.create_instruction("POP_TOP"))
    tx.output.pregraph_bytecode.extend(codegen.get_instructions())
    change_counts.raise_count(example_of(tensor))  # output that shows it shows the flag as well
    example_of(tensor).requires_grad_()
    tensor.requires_grad = True
    _LEAVES.of(tx.output).append(tensor.as_proxy().node)


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


class _Raised(threading.local):
    """The tensors that the frame entered last has had require gradients."""

    tensors: Sequence[weakref.ref[Tensor]] = ()


_RAISED = _Raised()


def _raise_flag(tensor: Tensor) -> None:
    tensor.requires_grad_()
    _RAISED.tensors = (*_RAISED.tensors, weakref.ref(tensor))


def forget() -> None:
    """Forget the tensors: the frame that is entered next may have none."""
    _RAISED.tensors = ()


def take_back() -> None:
    """Have the tensors require no gradients, as before the frame."""
    for each in _RAISED.tensors:
        tensor = each()
        if tensor is not None and tensor.is_leaf:
            tensor.requires_grad_(False)
    forget()


plain_python.have_dynamo_skip(_raise_flag, forget, take_back)
