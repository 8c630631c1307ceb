"""Merge what says by which way a block was left, and variables that are dead on one of the ways.

A flag (named by ``rewrite.passes.shared_exits``) that is True after one arm and False after the
other is the condition of the branch itself. A variable that one arm leaves dead has the value of
the other.
"""

from __future__ import annotations

from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue, Value
from bcmend.names import DEAD
from bcmend.tracing.merging.merge import Join
from bcmend.tracing.numbers import predicates
from bcmend.tracing.sites.phi import Build, Merged
from bcmend.tracing.sites.refusal import Refusal


def merge_exit(join: Join, one: Value, other: Value, *, is_flag: bool) -> Build | None:
    """Plan a live-out of which the sides have nothing in common; ``None`` if it is another one."""
    if _is_dead(other):
        return join.merger.adopt(one, then_side=True)
    if _is_dead(one):
        return join.merger.adopt(other, then_side=False)
    return _merge_flags(join, one, other) if is_flag else None


def _is_dead(value: Value) -> bool:
    return isinstance(value, compat.ConstantVariable) and value.value == DEAD


def _merge_flags(join: Join, one: Value, other: Value) -> Build | None:
    tx, predicate = join.tx, join.predicate
    if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
        return None
    if isinstance(one, compat.ConstantVariable) and isinstance(other, compat.ConstantVariable):
        if one.value is other.value:
            return None
        return lambda merged: predicate if one.value else predicates.negated(tx, predicate)
    if isinstance(one, compat.TensorVariable) and isinstance(other, compat.ConstantVariable):
        return _plan_flag(join, one, bool(other.value), taken=True)
    if isinstance(one, compat.ConstantVariable) and isinstance(other, compat.TensorVariable):
        return _plan_flag(join, other, bool(one.value), taken=False)
    raise Refusal("arms-differ", "how a block is left cannot be told")


def _plan_flag(join: Join, flag: TensorValue, constant: bool, *, taken: bool) -> Build:
    """Plan the flag that is ``flag`` on the side ``taken`` and ``constant`` on the other."""
    tx, plan = join.tx, join.merger.adopt(flag, then_side=taken)
    joined = predicates.either if constant else predicates.both

    def build(merged: Merged) -> Value:
        inner: Any = plan(merged)
        is_negated = taken is constant
        condition = predicates.negated(tx, join.predicate) if is_negated else join.predicate
        return joined(tx, condition, inner)

    return build
