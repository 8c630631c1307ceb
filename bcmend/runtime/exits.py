"""Merge what says by which way a block was left, and variables that are dead on one of the ways.

Reads two live-outs of a branch by the names that ``rewrite.exits`` gave them; returns a plan for
the merged one. A flag that is True after one arm and False after the other is the condition of the
branch itself. A variable that one arm leaves dead has the value of the other.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables import ConstantVariable, TensorVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.names import DEAD
from bcmend.runtime import lower
from bcmend.runtime.merge import Build, CannotMerge, Merger

__all__ = ["merge_exit"]


def merge_exit(
    tx: Any,
    predicate: TensorVariable,
    merger: Merger,
    one: VariableTracker,
    other: VariableTracker,
    *,
    is_flag: bool,
) -> Build | None:
    """Plan a live-out of which the sides have nothing in common; ``None`` if it is another one."""
    if _is_dead(other):
        return merger.adopt(one, then_side=True)
    if _is_dead(one):
        return merger.adopt(other, then_side=False)
    return _merge_flags(tx, predicate, merger, one, other) if is_flag else None


def _is_dead(value: VariableTracker) -> bool:
    return isinstance(value, ConstantVariable) and value.value == DEAD


def _merge_flags(
    tx: Any,
    predicate: TensorVariable,
    merger: Merger,
    one: VariableTracker,
    other: VariableTracker,
) -> Build | None:
    if isinstance(one, TensorVariable) and isinstance(other, TensorVariable):
        return None
    if isinstance(one, ConstantVariable) and isinstance(other, ConstantVariable):
        return _of_constants(tx, predicate, one.value, other.value)
    if isinstance(one, TensorVariable) and isinstance(other, ConstantVariable):
        plan = merger.adopt(one, then_side=True)
        return lambda merged: _of_one(tx, predicate, plan(merged), other.value, taken=True)
    if isinstance(one, ConstantVariable) and isinstance(other, TensorVariable):
        plan = merger.adopt(other, then_side=False)
        return lambda merged: _of_one(tx, predicate, plan(merged), one.value, taken=False)
    raise CannotMerge("how a block is left cannot be told")


def _of_constants(tx: Any, predicate: TensorVariable, one: bool, other: bool) -> Build | None:
    if one is other:
        return None
    return lambda merged: predicate if one else lower.negated(tx, predicate)


def _of_one(
    tx: Any, predicate: TensorVariable, flag: Any, constant: bool, *, taken: bool
) -> VariableTracker:
    """Return the flag that is ``flag`` on one side and ``constant`` on the other."""
    here = predicate if taken else lower.negated(tx, predicate)
    if not constant:
        return lower.both(tx, here, flag)
    elsewhere = lower.negated(tx, predicate) if taken else predicate
    return lower.either(tx, elsewhere, flag)
