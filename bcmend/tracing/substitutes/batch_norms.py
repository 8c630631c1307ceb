"""``batch_norm`` whose momentum is a number out of a tensor: layers with ``momentum=None``.

No operator of torch takes such a momentum. The layer is normalized with copies of its statistics,
which do not matter to the result in training, and an operator of bcmend's own, which takes the
momentum as a tensor, gives the new ones.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.dynamo import compat, fx_graph, operators
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.values import TensorValue, is_unbacked
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.numbers import float_tensors
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, bound, require_one_graph

_BATCH_NORM: Final = torch.nn.functional.batch_norm
_SIGNATURE: Final = inspect.signature(_BATCH_NORM)


def _run(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return the running mean and variance after ``batch_norm``, by the kernel that it runs."""
    mean, variance = mean.clone(), variance.clone()
    by_cudnn = torch.backends.cudnn.enabled
    kept = mean, variance, True, momentum.item(), eps, by_cudnn
    torch.batch_norm(x, weight, bias, *kept)
    return mean, variance


def _fake(x: Tensor, mean: Tensor, variance: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(mean), torch.empty_like(variance)


STATISTICS: Final = operators.define(
    "running_statistics(Tensor x, Tensor mean, Tensor variance, Tensor? weight, Tensor? bias,"
    " Tensor momentum, float eps) -> (Tensor, Tensor)",
    _run,
    _fake,
    has_effect=False,
    skips_autograd=True,
)
effects.declare(STATISTICS, EffectFacts(is_total=True, is_expensive=True))


@answers_to("batch norm")
def _batch_norm(call: ReplacedCall) -> Answer:
    """Normalize by the batch, and write the new statistics to the tensors of the layer."""
    tx = call.tx
    given = bound(_SIGNATURE, call)
    if given is None:
        return PASS
    x, mean, variance, weight, bias, training, momentum, eps = given.values()
    tensors = x, mean, variance
    if not is_unbacked(momentum) or not all(type(each) is TensorValue for each in tensors):
        return PASS
    if not training.is_python_constant() or not training.as_python_constant():
        return PASS
    require_one_graph(tx)
    layer = weight, bias
    known = [fx_graph.method(tx, "detach", each) for each in tensors]
    unread = (fx_graph.method(tx, "clone", each) for each in known[1:])
    result = fx_graph.function(tx, _BATCH_NORM, x, *unread, *layer, True, 0.0, eps)
    factor = float_tensors.as_operand(tx, momentum.as_proxy())
    inputs = tuple(each.as_proxy() for each in (*known, *layer, factor, eps))
    proxy = tx.output.create_proxy("call_function", STATISTICS, inputs, {})
    results: Any = compat.wrap_fx_proxy(tx, proxy)
    for each, new in zip((mean, variance), results.items, strict=True):
        each.call_method(tx, "copy_", [new], {})
    return result
