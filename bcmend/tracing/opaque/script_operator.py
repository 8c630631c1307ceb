"""An operator that runs a module which ``torch.jit.script`` has compiled.

It is handed the tensors of the call, then those of the module, and runs the graph of the module as
eager execution does: in the same mode of autograd, with the tensors that require gradients there.
The backward runs it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.dynamo import operators
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.opaque import operator
from bcmend.tracing.opaque.script_graphs import FUNCTIONS

_JIT: Final[Any] = torch.jit  # which does not say what of it is public


def tensors_in(result: Any) -> Iterator[Tensor]:
    """Yield the tensors of a result, in tuples, lists and dictionaries too."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for each in result:
            yield from tensors_in(each)
    elif isinstance(result, dict):
        for each in result.values():
            yield from tensors_in(each)


def leaves_for(tensors: Sequence[Tensor], is_recorded: Sequence[bool]) -> list[Tensor]:
    """Return tensors of the same memory without a history, of which some require gradients."""
    given = zip(tensors, is_recorded, strict=True)
    return [each.detach().requires_grad_(is_one) for each, is_one in given]


def _called(function: Any, form: str, tensors: Sequence[Tensor]) -> Any:
    parts, count = json.loads(form)
    values = operator.Values(tensors, (), (), ())
    return function(*map(values.argument, parts), *tensors[count:])


def called_on_fakes(key: str, form: str, tensors: Sequence[Tensor]) -> Any:
    """Return what a module gives for fake tensors: of sizes that vary, or of those of now."""
    function = FUNCTIONS[key].fake
    with operator.unlogged(), _JIT.optimized_execution(False):
        try:
            return _called(function, form, tensors)
        except operator.FAILURES:
            if all(type(size) is int for each in tensors for size in each.shape):
                raise
        return _called(function, form, [_of_now(each) for each in tensors])


def _of_now(tensor: Tensor) -> Tensor:
    sizes, strides = map(int, tensor.shape), map(int, tensor.stride())
    made = torch.empty_strided(
        tuple(sizes), tuple(strides), dtype=tensor.dtype, device=tensor.device
    )
    return made.requires_grad_(tensor.requires_grad)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _run(
    key: str,
    form: str,
    tensors: Sequence[Tensor],
    is_recorded: Sequence[bool],
    reaches: Sequence[bool],
    records: bool,
) -> list[Tensor]:
    own = leaves_for(tensors, is_recorded)
    with operators.autograd_inside(), torch.set_grad_enabled(records):
        results = [*tensors_in(_called(FUNCTIONS[key].forward, form, own))]
        taken = {_memory(each) for each in tensors}
        # TorchScript makes nothing of `x + 0`.
        return [
            each.detach().clone() if _memory(each) in taken else each.detach() for each in results
        ]


def _fake(key: str, form: str, tensors: Sequence[Tensor], *others: Any) -> list[Tensor]:
    with torch.no_grad():
        return [*tensors_in(called_on_fakes(key, form, tensors))]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.key, ctx.form, tensors, ctx.is_recorded, ctx.reaches, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, gradients: Sequence[Tensor | None]) -> tuple[Any, ...]:
    tensors, count = ctx.saved_tensors, len(ctx.saved_tensors)
    of_results = [ctx.reaches[at * count : (at + 1) * count] for at in range(len(gradients))]
    flows = [each for each, one in zip(of_results, gradients, strict=True) if one is not None]
    is_needed = [any(each) for each in zip(*flows, strict=True)] if flows else [False] * count
    found = operators.gradients_where_needed(
        _BACKWARD, gradients, is_needed, ctx.key, ctx.form, tensors, ctx.is_recorded
    )
    # Torch takes a list of flags for one value, and an empty one for a list.
    of_flags: list[Any] = [None if each else [] for each in (ctx.is_recorded, ctx.reaches)]
    return None, None, found, *of_flags, None


def _backward(
    gradients: Sequence[Tensor],
    places: Sequence[int],
    is_needed: Sequence[bool],
    key: str,
    form: str,
    tensors: Sequence[Tensor],
    is_recorded: Sequence[bool],
) -> list[Tensor]:
    own = leaves_for(tensors, is_recorded)
    with operators.autograd_inside():
        results = [*tensors_in(_called(FUNCTIONS[key].backward, form, own))]
        found = torch.autograd.grad(
            [results[place] for place in places],
            [each for each, is_one in zip(own, is_needed, strict=True) if is_one],
            list(gradients),
        )
    return [each.contiguous() for each in found]


def _fake_backward(
    gradients: Sequence[Tensor],
    places: Sequence[int],
    is_needed: Sequence[bool],
    key: str,
    form: str,
    tensors: Sequence[Tensor],
    is_recorded: Sequence[bool],
) -> list[Tensor]:
    return operators.like_needed(tensors, is_needed)


def _define(signature: str, run: Any, fake: Any, keep: Any, backward: Any) -> Any:
    made = operators.define(signature, run, fake, has_effect=False, autograd=(keep, backward))
    effects.declare(made, EffectFacts(is_expensive=True))
    return made


_CALL: Final = "str key, str form, Tensor[] tensors, bool[] is_recorded"
_BACKWARD: Final = _define(
    f"scripted_backward(Tensor[] gradients, int[] places, bool[] is_needed, {_CALL}) -> Tensor[]",
    _backward,
    _fake_backward,
    operators.keep_nothing,
    operators.no_backward("a module that torch.jit.script has compiled"),
)
SCRIPTED: Final = _define(
    f"scripted({_CALL}, bool[] reaches, bool records) -> Tensor[]", _run, _fake, _keep, _gradients
)
