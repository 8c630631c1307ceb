"""Operators of packed sequences and recurrent layers: packing, layers, unpacking.

How many rows a packed sequence has, and of how many steps, is decided by the lengths of its clips.
Here both are numbers that the operators are handed, and each calls the kernel that torch calls: the
results are the same bits, and so are the errors. The backward of a layer runs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from bcmend.dynamo import operators
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts

#: The functions that layers call, by the names that the operator has for them.
LAYERS: Final[Mapping[str, Callable[..., Any]]] = {
    "lstm": torch.lstm,
    "gru": torch.gru,
    "rnn_tanh": torch.rnn_tanh,
    "rnn_relu": torch.rnn_relu,
}


_NO_SECOND_BACKWARD: Final = operators.no_backward(
    "a packed sequence, and of a recurrent layer in a branch,"
)


def _define(
    signature: str,
    run: Any,
    fake: Any,
    keep: Any = operators.keep_nothing,
    backward: Any = _NO_SECOND_BACKWARD,
) -> Any:
    operator = operators.define(
        signature,
        run,
        fake,
        has_effect=False,
        autograd=(keep, backward),
    )
    effects.declare(operator, EffectFacts(is_expensive=True))
    return operator


# Packing and unpacking

#: Of the backward of either: what was kept is what the gradient is packed or unpacked by.
_BACKWARD: Final = "(Tensor gradient, SymInt[] size, Tensor kept, bool batch_first) -> Tensor"


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    """Keep the size of the tensor that is packed or unpacked, and the integers that result."""
    given, _, ctx.batch_first, *rest = inputs
    ctx.size, ctx.others = given.shape, (None,) * (2 + len(rest))
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _gradient_by(operator: Any) -> Callable[..., tuple[Any, ...]]:
    def backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
        if gradient is None:
            return None, *ctx.others
        return operator(gradient, list(ctx.size), *ctx.saved_tensors, ctx.batch_first), *ctx.others

    return backward


def _fake_backward(gradient: Tensor, size: Sequence[int], *others: Any) -> Tensor:
    return gradient.new_empty(size)


def _pack(
    clips: Tensor, lengths: Tensor, batch_first: bool, *numbers: int
) -> tuple[Tensor, Tensor]:
    packed: tuple[Tensor, Tensor] = torch._VF._pack_padded_sequence(clips, lengths, batch_first)
    return packed


def _fake_pack(
    clips: Tensor, lengths: Tensor, batch_first: bool, steps: int, total: int
) -> tuple[Tensor, Tensor]:
    return clips.new_empty((total, *clips.shape[2:])), lengths.new_empty((steps,))


def _pack_backward(
    gradient: Tensor, size: Sequence[int], batch_sizes: Tensor, batch_first: bool
) -> Tensor:
    backward = torch.ops.aten._pack_padded_sequence_backward
    found: Tensor = backward(gradient, list(size), batch_sizes, batch_first)
    return found.contiguous()


PACK: Final = _define(
    "pack(Tensor clips, Tensor lengths, bool batch_first, SymInt steps, SymInt total)"
    " -> (Tensor, Tensor)",
    _pack,
    _fake_pack,
    _keep,
    _gradient_by(_define(f"pack_backward{_BACKWARD}", _pack_backward, _fake_backward)),
)


def _unpack(
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: bool,
    value: float,
    total: int | None,
    *numbers: int,
) -> tuple[Tensor, Tensor]:
    sequence = PackedSequence(data, batch_sizes)
    padded, lengths = pad_packed_sequence(sequence, batch_first, value, total)
    return padded, lengths


def _fake_unpack(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, *others: Any
) -> tuple[Tensor, Tensor]:
    _, total, clips, steps = others
    padded = data.new_empty((steps if total is None else total, clips, *data.shape[1:]))
    lengths = batch_sizes.new_empty((clips,))
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _unpack_backward(
    gradient: Tensor, size: Sequence[int], lengths: Tensor, batch_first: bool
) -> Tensor:
    return _pack(gradient, lengths, batch_first)[0]


UNPACK: Final = _define(
    "unpack(Tensor data, Tensor batch_sizes, bool batch_first, Scalar value, SymInt? total,"
    " SymInt clips, SymInt steps) -> (Tensor, Tensor)",
    _unpack,
    _fake_unpack,
    _keep,
    _gradient_by(_define(f"unpack_backward{_BACKWARD}", _unpack_backward, _fake_backward)),
)


# Layers


def _layer(
    name: str,
    data: Tensor,
    batch_sizes: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    *options: Any,
) -> list[Tensor]:
    state = list(states) if name == "lstm" else states[0]
    has_biases, layers, is_trained, is_bidirectional, batch_first, records = options
    kernel, of_layer = LAYERS[name], (has_biases, layers, 0.0, is_trained, is_bidirectional)
    with torch.set_grad_enabled(records):  # it has other kernels where autograd records
        if batch_sizes is None:
            return list(kernel(data, state, list(weights), *of_layer, batch_first))
        return list(kernel(data, batch_sizes, state, list(weights), *of_layer))


def _fake_layer(
    name: str,
    data: Tensor,
    batch_sizes: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    *options: Any,
) -> list[Tensor]:
    *_, is_bidirectional, batch_first, _ = options
    width = states[0].shape[2] * (2 if is_bidirectional else 1)
    left = [each.new_empty(each.shape) for each in states]
    if batch_sizes is not None or not batch_first:
        return [data.new_empty((*data.shape[:-1], width)), *left]
    clips, steps, _ = data.shape
    return [data.new_empty((steps, clips, width)).transpose(0, 1), *left]


def _keep_layer(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.name, data, batch_sizes, states, weights, *ctx.options = inputs
    ctx.count = len(states)
    ctx.is_needed = [each.requires_grad for each in (data, *states, *weights)]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(data, batch_sizes, *states, *weights)


def _layer_gradients(ctx: Any, gradients: Sequence[Tensor | None]) -> tuple[Any, ...]:
    data, batch_sizes, *rest = ctx.saved_tensors
    states, weights = rest[: ctx.count], rest[ctx.count :]
    given = ctx.name, data, batch_sizes, states, weights, *ctx.options
    of_data, *of_rest = operators.gradients_where_needed(
        _LAYER_BACKWARD, gradients, ctx.is_needed, *given
    )
    of_states, of_weights = of_rest[: ctx.count], of_rest[ctx.count :]
    return None, of_data, None, of_states, of_weights, *(None,) * len(ctx.options)


def _layer_backward(
    gradients: Sequence[Tensor],
    places: Sequence[int],
    is_needed: Sequence[bool],
    name: str,
    data: Tensor,
    batch_sizes: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    *options: Any,
) -> list[Tensor]:
    def again(own: Sequence[Tensor]) -> Sequence[Tensor]:
        of_states, of_weights = own[1 : 1 + len(states)], own[1 + len(states) :]
        return _layer(name, own[0], batch_sizes, of_states, of_weights, *options)

    given = (data, *states, *weights)
    return operators.gradients_again(again, given, is_needed, places, gradients)


def _fake_layer_backward(
    gradients: Sequence[Tensor],
    places: Sequence[int],
    is_needed: Sequence[bool],
    name: str,
    data: Tensor,
    batch_sizes: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    *options: Any,
) -> list[Tensor]:
    return operators.like_needed((data, *states, *weights), is_needed)


_LAYER: Final = (
    "str name, Tensor data, Tensor? batch_sizes, Tensor[] states, Tensor[] weights,"
    " bool has_biases, int layers, bool is_trained, bool is_bidirectional, bool batch_first,"
    " bool records)"
    " -> Tensor[]"
)
_LAYER_BACKWARD: Final = _define(
    f"recurrent_layer_backward(Tensor[] gradients, int[] places, bool[] is_needed, {_LAYER}",
    _layer_backward,
    _fake_layer_backward,
)
LAYER: Final = _define(
    f"recurrent_layer({_LAYER}", _layer, _fake_layer, _keep_layer, _layer_gradients
)
