"""The truth of a value that is one thing after one arm of a branch and another after the other.

``return True`` on one side and a tensor on the other have no common form, but both have a truth.
Where the code goes on to test what the branch left behind, that is all it needs: the truths of both
sides are merged under the condition of the branch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable

from bcmend.runtime import lower
from bcmend.runtime.merge import example_of
from bcmend.runtime.unmerged import Choice, Returned, Unmerged

__all__ = ["has_truth", "is_decided_by_the_side", "truth_of"]


def has_truth(value: VariableTracker) -> bool:
    """Whether the truth of a value is a question of tensors alone.

    Raises:
        SiteChanged: it is, once the frame is traced again with both sides kept.
    """
    if isinstance(value, Choice):
        return has_truth(value.one) and has_truth(value.other)
    if isinstance(value, Returned) and all(has_truth(side) for side in value.sides):
        value.keep_sides()
    if isinstance(value, Unmerged):
        return False
    if type(value) is TensorVariable:
        return example_of(value).numel() == 1
    return isinstance(value, SymNodeVariable) or value.is_python_constant()


def is_decided_by_the_side(value: Unmerged) -> bool:
    """Whether no tensor but the condition of the branch decides the truth of a value."""
    sides = value.sides if isinstance(value, (Choice, Returned)) else ()
    return bool(sides) and all(
        is_decided_by_the_side(side) if isinstance(side, Unmerged) else side.is_python_constant()
        for side in sides
    )


def truth_of(tx: Any, value: VariableTracker) -> VariableTracker:
    """Return a 0-d boolean tensor for a choice, and any other value as it is."""
    return _merged(tx, value) if isinstance(value, Choice) else value


def _merged(tx: Any, value: VariableTracker) -> TensorVariable:
    if isinstance(value, Choice):
        predicate = lower.as_predicate(tx, value.predicate)
        one, other = (_merged(tx, side) for side in (value.one, value.other))
        return lower.chosen(tx, predicate, one.as_proxy(), other.as_proxy())
    if not value.is_python_constant():
        return lower.as_predicate(tx, value)
    truth = bool(value.as_python_constant())
    proxy = tx.output.create_proxy("call_function", torch.full, ((), truth), {"dtype": torch.bool})
    result = wrap_fx_proxy(tx, proxy)
    assert isinstance(result, TensorVariable)
    return result
