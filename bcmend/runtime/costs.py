"""What running an arm for nothing costs, beside what it costs to decide.

Under ``torch.where`` both arms run; under ``torch.cond`` the taken one alone, once the predicate is
known. On a CPU it is known when it is needed. On an accelerator, knowing it means waiting until the
queue of kernels has run dry, and filling it again: that is the price of a decision, and ``cond`` is
worth it only where the work saved costs more. Each result is written once by ``where`` and copied
once by ``cond``, which cancels out.

Half of what the arms of a branch cost is wasted by ``where``, if nothing is known of the condition.
Only operators of the table ``DEAR`` are counted in that: pointwise operators and reductions are
fused with the ``where`` itself by the compilers that ``torch.compile`` is used with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

__all__ = ["ACCELERATOR_RATE", "BANDWIDTH", "DECISION", "bytes_of", "flops_of", "seconds_of"]

#: Seconds that a decision takes on an accelerator.
DECISION: Final = 20e-6
#: Floating-point operations that an accelerator makes in a second, roughly and half used.
ACCELERATOR_RATE: Final = 2e13
#: Bytes that it moves in a second.
BANDWIDTH: Final = 1e12


def seconds_of(
    operator: torch._ops.OpOverload, arguments: tuple[Any, ...], keywords: Any, result: Any
) -> float:
    """Estimate what one dear operator costs beside the price of a decision.

    Infinite on a CPU, where a decision is free, and where a size is not known while tracing.
    """
    tensors = list(_tensors((arguments, keywords, result)))
    if not any(_is_accelerator(each.device) for each in tensors):
        return math.inf
    work = flops_of(operator, arguments, keywords, result)
    moved = sum(bytes_of(each) for each in tensors)
    return max(work / ACCELERATOR_RATE, moved / BANDWIDTH)


def flops_of(
    operator: torch._ops.OpOverload, arguments: tuple[Any, ...], keywords: Any, result: Any
) -> float:
    """Count floating-point operations as torch's own counter does; 0 if it does not know."""
    count = flop_registry.get(operator.overloadpacket)
    if count is None:
        return 0.0
    try:
        return _hinted(count(*arguments, **keywords, out_val=result))
    except Exception:  # a form of the operator that the formula does not foresee
        return math.inf


def bytes_of(tensor: torch.Tensor) -> float:
    return _hinted(tensor.numel()) * tensor.element_size()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(values) if isinstance(each, torch.Tensor))


def _is_accelerator(device: torch.device) -> bool:
    return device.type not in ("cpu", "meta")


def _hinted(number: Any) -> float:
    """Return a size as it was at the call that is traced; infinity if only the data tell."""
    if isinstance(number, (int, float)):
        return float(number)
    node = number.node
    hint = node.hint if node.has_hint() else None
    return math.inf if hint is None else float(hint)
