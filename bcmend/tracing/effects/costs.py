"""What running an arm speculatively costs, compared with the price of a decision.

Under ``torch.where`` both arms run; under ``torch.cond`` only the taken one, once the predicate is
known. On an accelerator that means waiting until the queue of kernels is empty, and filling it
again: the price of a decision. On a CPU a decision is free. Only expensive operators are counted:
compilers fuse pointwise operators and reductions with the ``where``.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch.utils.flop_counter import flop_registry

from bcmend.dynamo import compat, shape_env
from bcmend.tracing.effects.operator_runs import OperatorCall
from bcmend.tracing.search import strict

#: Seconds that a decision takes on an accelerator.
DECISION: Final = 20e-6
#: Floating-point operations per second of an accelerator, roughly and half used.
ACCELERATOR_RATE: Final = 2e13
#: Bytes per second that it moves.
BANDWIDTH: Final = 1e12


def seconds_of(call: OperatorCall) -> float:
    """Estimate what one expensive operator costs; infinite on a CPU, and for unbacked sizes."""
    leaves = compat.tree_leaves((call.arguments, call.keywords, call.result))
    tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
    if all(each.device.type in ("cpu", "meta") for each in tensors):
        return math.inf
    moved = sum(bytes_of(each) for each in tensors)
    return max(flops_of(call) / ACCELERATOR_RATE, moved / BANDWIDTH)


def flops_of(call: OperatorCall) -> float:
    """Count floating-point operations as torch's own counter does; 0 without a formula."""
    count = flop_registry.get(call.operator.overloadpacket)
    if count is None:
        return 0.0
    try:
        found = count(*call.arguments, **call.keywords, out_val=call.result)
    except Exception as error:
        # The formula does not foresee this form of the operator: it takes other arguments, or
        # asserts other sizes. The operator then counts as dearer than any decision.
        strict.require_foreign(error, flops_of)
        return math.inf
    return _hinted(found)


def bytes_of(tensor: torch.Tensor) -> float:
    return _hinted(tensor.numel()) * tensor.element_size()


def _hinted(number: Any) -> float:
    """Return a size as it was at the call that is traced; infinity if it is unbacked."""
    hint = shape_env.hint_of(number)
    return math.inf if hint is None else float(hint)
