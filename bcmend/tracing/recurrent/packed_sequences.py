"""``pack_padded_sequence`` and ``pad_packed_sequence``, which Dynamo does not trace.

Both are traced as Python that calls operators of bcmend's own. Of a packed sequence that is made in
the graph it is known that its first step has all clips, since no clip may be empty.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from bcmend import meta_keys
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.values import TensorValue, constant, example_of
from bcmend.tracing.recurrent import layers, operators
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, bound, traced


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
    given = bound(_OF_PACKED, call)
    if given is None or not layers.is_asked_for(call.tx):
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
    found = traced(call, _packed)
    _, batch_sizes, *_ = found.items
    setattr(example_of(batch_sizes), meta_keys.FIRST_ITEM, count)  # in arms it is the same one
    packed: Answer = found
    return packed


@answers_to("unpacked")
def _unpack(call: ReplacedCall) -> Answer:
    """Answer ``pad_packed_sequence(sequence, batch_first, padding_value, total_length)``."""
    given = bound(_OF_UNPACKED, call)
    if given is None or not layers.is_asked_for(call.tx):
        return PASS
    value = given["padding_value"]
    if given["sequence"].python_type() is not PackedSequence or not value.is_python_constant():
        return PASS
    unpacked: Answer = traced(call, _unpacked)
    return unpacked
