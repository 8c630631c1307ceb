"""``pack_padded_sequence``, layers that are given what it returns, and ``pad_packed_sequence``.

Dynamo does not trace the first and the last, and no layer whose numbers of rows depend on data.
Here both functions are traced as Python that calls operators of bcmend's own; a layer becomes one
operator too. Of a packed sequence that is made in the graph it is known that its first step has
all clips, since no clip may be empty.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from bcmend import meta_keys
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import translators
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    function_of,
    global_of,
    items_in,
)
from bcmend.tracing.recurrent import operators
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to


def _packed(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    if isinstance(lengths, Tensor):
        lengths = lengths.to(dtype=torch.int64)
    else:
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    places = None
    if not enforce_sorted:
        lengths, places = torch.sort(lengths, descending=True)
        places = places.to(input.device)
        input = input.index_select(0 if batch_first else 1, places)
    steps, total = lengths.max().item(), lengths.sum().item()
    data, batch_sizes = operators.PACK(input, lengths, batch_first, steps, total)
    return PackedSequence(data, batch_sizes, places, None)


def _unpacked(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    data, batch_sizes, _, places = sequence
    clips, steps = int(batch_sizes[0]), batch_sizes.size(0)
    padded, lengths = operators.UNPACK(
        data, batch_sizes, batch_first, padding_value, total_length, clips, steps
    )
    if places is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, places), lengths[places.cpu()]


_OF_PACKED: Final = inspect.signature(_packed)
_OF_UNPACKED: Final = inspect.signature(_unpacked)


@answers_to("packed")
def _pack(call: ReplacedCall) -> Answer:
    """Answer ``pack_padded_sequence(input, lengths, batch_first, enforce_sorted)``."""
    given = _bound(_OF_PACKED, call)
    if given is None or not _is_asked_for(call.tx):
        return PASS
    clips, is_batch_first, is_sorted = (
        given[name] for name in ("input", "batch_first", "enforce_sorted")
    )
    are_known = is_batch_first.is_python_constant() and is_sorted.is_python_constant()
    if type(clips) is not TensorValue or example_of(clips).dim() < 2 or not are_known:
        return PASS
    dimension = 0 if is_batch_first.as_python_constant() else 1
    count = clips.call_method(call.tx, "size", [constant(dimension)], {})
    if count.is_python_constant() and count.as_python_constant() == 0:
        return PASS  # an error of its own
    found = _traced(call, _packed)
    _, batch_sizes, *_ = found.items
    batch_sizes.as_proxy().node.meta[meta_keys.FIRST_ITEM] = count
    packed: Answer = found
    return packed


@answers_to("unpacked")
def _unpack(call: ReplacedCall) -> Answer:
    """Answer ``pad_packed_sequence(sequence, batch_first, padding_value, total_length)``."""
    given = _bound(_OF_UNPACKED, call)
    if given is None or not _is_asked_for(call.tx):
        return PASS
    value = given["padding_value"]
    if given["sequence"].python_type() is not PackedSequence or not value.is_python_constant():
        return PASS
    unpacked: Answer = _traced(call, _unpacked)
    return unpacked


@answers_to("packed layer")
def _layer(call: ReplacedCall) -> Answer:
    """Answer ``torch.lstm`` and its kin, called with a packed sequence; Dynamo has the others."""
    if len(call.args) != 9 or call.kwargs or not _is_asked_for(call.tx):
        return PASS
    data, batch_sizes, state, weights, *options = (each.realize() for each in call.args)
    if not all(type(each) is TensorValue for each in (data, batch_sizes)):
        return PASS  # without a packed sequence the second is the state of an LSTM, or a list
    if not _is_list_of_sizes(batch_sizes) or not all(each.is_python_constant() for each in options):
        return PASS
    has_biases, layers, dropout, is_trained, is_bidirectional = (
        each.as_python_constant() for each in options
    )
    if is_trained and layers > 1 and dropout:
        return PASS  # it draws random numbers
    states = items_in(state) or [state]
    of_layer = has_biases, layers, is_trained, is_bidirectional, torch.is_grad_enabled()
    given = (data, batch_sizes, compat.ListVariable(states), weights)
    name = call.row.name.rpartition(".")[2]
    arguments = [constant(name), *given, *map(constant, of_layer)]
    results: Any = function_of(call.tx, operators.LAYER).call_function(call.tx, arguments, {})
    return compat.TupleVariable(list(results.items))


def _is_list_of_sizes(value: Value) -> bool:
    """Return whether a tensor is what packed sequences have for the sizes of their steps."""
    assert isinstance(value, TensorValue)
    example = example_of(value)
    return example.dim() == 1 and example.dtype is torch.int64 and example.device.type == "cpu"


def _is_asked_for(tx: compat.Tracer) -> bool:
    """Return whether one graph is asked for, in which layers are traced at all."""
    return bool(tx.one_graph) and capture_mode.in_mended_code(tx)


def _bound(signature: inspect.Signature, call: ReplacedCall) -> dict[str, Value] | None:
    """Return the arguments of a call by their names; ``None`` if it has others."""
    try:
        bound = signature.bind(*call.args, **call.kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    return {
        name: each.realize() if isinstance(each, Value) else constant(each)
        for name, each in bound.arguments.items()
    }


def _traced(call: ReplacedCall, function: Any) -> Any:
    """Trace Python in place of the function that is called."""
    tx = call.tx
    translators.have_inlined(tx, function.__code__, "Python in place of C")
    variable = compat.UserFunctionVariable(function, source=global_of(tx.output, function))
    return variable.call_function(tx, list(call.args), call.kwargs)
