"""``RNN``, ``GRU`` and ``LSTM`` where the user asked for one graph.

Dynamo breaks the graph there, since unrolling long sequences takes a compiler its time. Under
``fullgraph=True`` that is an error; in mended code the layers are traced instead. One that is given
a packed sequence is an operator of bcmend's own, as is one in an arm through which gradients flow:
the backward that ``torch.cond`` makes of torch's operators there gives empty gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    function_of,
    items_in,
)
from bcmend.tracing.lowering.arm_graphs import requires_grad
from bcmend.tracing.recurrent import operators
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to


@hooks.around(
    compat.VariableBuilder,
    methods.WRAP_MODULE,
    "recurrent layers under fullgraph",
    gate=hooks.of_builder,
)
def _wrap_module(inner: Any, self: Any, value: torch.nn.Module) -> Any:
    if isinstance(value, torch.nn.RNNBase) and _is_traced(self.tx, value):
        with compat.dynamo_config.patch(allow_rnn=True):
            return inner(self, value)
    return inner(self, value)


def _is_traced(tx: compat.Tracer, layer: torch.nn.RNNBase) -> bool:
    """Return whether a layer is put into the graph.

    Not with dropout, since its random operators cannot be seen in the graph. Nor under autocast:
    AOTAutograd decomposes the layer in other dtypes than those of the kernel.
    """
    has_dropout = layer.training and layer.num_layers > 1 and layer.dropout != 0
    refused = has_dropout or compat._is_any_autocast_enabled()
    return is_asked_for(tx) and not refused


def is_asked_for(tx: compat.Tracer) -> bool:
    """Return whether one graph is asked for, in which layers are traced at all."""
    return bool(tx.one_graph) and capture_mode.in_mended_code(tx)


@answers_to("recurrent layer")
def _layer(call: ReplacedCall) -> Answer:
    """Answer ``torch.lstm`` and its kin where the graph cannot have torch's own operator."""
    tx = call.tx
    if len(call.args) != 9 or call.kwargs or not is_asked_for(tx):
        return PASS
    if compat._is_any_autocast_enabled():
        return PASS  # it casts what torch's operator is given
    given = [each.realize() for each in call.args]
    is_packed = _is_of_steps(given[1])
    data, batch_sizes = given[0], given[1] if is_packed else constant(None)
    state, weights, *options = given[2:] if is_packed else given[1:]
    if not all(each.is_python_constant() for each in options):
        return PASS
    has_biases, layers, dropout, is_trained, is_bidirectional, *rest = (
        each.as_python_constant() for each in options
    )
    if is_trained and layers > 1 and dropout:
        return PASS  # it draws random numbers
    states, tensors = items_in(state) or [state], items_in(weights) or []
    is_in_an_arm = tx.output.current_tracer.parent is not None
    if not is_packed and not (is_in_an_arm and _has_gradients([data, *states, *tensors])):
        return PASS
    of_layer = has_biases, layers, is_trained, is_bidirectional, *(rest or [False])
    of_operator = [*map(constant, of_layer), constant(torch.is_grad_enabled())]
    sequences = [data, batch_sizes, compat.ListVariable(states), weights]
    name = constant(call.row.name.rpartition(".")[2])
    function = function_of(tx, operators.LAYER)
    results: Any = function.call_function(tx, [name, *sequences, *of_operator], {})
    return compat.TupleVariable(list(results.items))


def _is_of_steps(value: Value) -> bool:
    """Return whether a tensor is what packed sequences have for the sizes of their steps."""
    if type(value) is not TensorValue:
        return False
    example = example_of(value)
    return example.dim() == 1 and example.dtype is torch.int64 and example.device.type == "cpu"


def _has_gradients(values: Sequence[Value]) -> bool:
    """Return whether autograd records what is computed of some tensors."""
    proxies = (each.realize().as_proxy() for each in values)
    return torch.is_grad_enabled() and any(map(requires_grad, proxies))
