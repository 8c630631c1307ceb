"""Merge what is live after a branch: in one form, as phis, or by the way a block was left.

A flag (named by ``rewrite.passes.shared_exits``) that is True after one arm and False after the
other is the condition of the branch itself. A variable that one arm leaves dead has the value of
the other. What has no common form becomes a phi.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.names import DEAD, PREFIX, RESULT
from bcmend.tracing.effects import sharing
from bcmend.tracing.merging.lazy_phi import GatedPhi, LazyPhi, UnreadPhi, may_be_unbound
from bcmend.tracing.merging.merge import Join
from bcmend.tracing.numbers import predicates
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.phi import Build, Merged, note_left_apart
from bcmend.tracing.sites.refusal import Refusal


def merge_live_outs(join: Join, sides: tuple[Value, Value]) -> Build:
    """Plan the live-outs, a tuple. Raises ``Refusal`` where the site has to merge them all."""
    one, other = sides
    if not (type(one) is type(other) is compat.TupleVariable):
        return _merged(join, 0, one, other)
    parts = [
        _merge_live_out(join, position, left.realize(), right.realize())
        for position, (left, right) in enumerate(zip(one.items, other.items, strict=True))
    ]
    return lambda merged: compat.TupleVariable([part(merged) for part in parts])


def _merge_live_out(join: Join, position: int, one: Value, other: Value) -> Build:
    site, form, merger = join.site, join.form, join.merger
    found = merge_exit(join, one, other, is_flag=position in site.form(form).flags)
    if found is not None:
        return found
    if not site.holds(Claim.READ_APART, form):
        return _merged(join, position, one, other)
    refusal: Refusal | None = None
    if not any(isinstance(side, LazyPhi) for side in (one, other)):
        merged = merger.attempt(lambda: merger.merge(one, other))
        if not isinstance(merged, Refusal):
            return merged
        refusal = merged
    plans = [merger.adopt(one, then_side=True), merger.adopt(other, then_side=False)]
    return lambda merged: phi_of(join, [plan(merged) for plan in plans], refusal)


def _merged(join: Join, position: int, one: Value, other: Value) -> Build:
    """Plan one value. Raises ``Refusal``, which says of what variable, where there is none."""
    try:
        return join.merger.merge(one, other)
    except Refusal as refusal:
        outputs = join.site.form(join.form).outputs
        words = _words_for(outputs[position]) if position < len(outputs) else ""
        raise Refusal(refusal.slug, f"{words}{refusal}") from refusal


def _words_for(output: str) -> str:
    """Return what a reader calls a live-out, with a colon."""
    if output == RESULT:
        return "the value that is returned: "
    return "a part of an expression: " if output.startswith(PREFIX) else f"`{output}`: "


def phi_of(join: Join, sides: Sequence[Value], refusal: Refusal | None) -> LazyPhi:
    """Return what stands for two values that have no common form."""
    phi, unbound = (join.site, join.form, join.tx.output, sides), any(map(may_be_unbound, sides))
    more: dict[str, Any] = {"predicate": join.predicate, "refusal": refusal}
    note_left_apart(join.tx.output, Finding(Claim.READ_APART, *phi[:2]), join.predicate)
    is_dropped = join.site.holds(Claim.DROPPED, join.form)
    if unbound or (is_dropped and not nesting_limits.is_returned(join.tx)):
        return UnreadPhi(*phi, unbound=unbound, **more)
    return GatedPhi(*phi, **more)


def has_choice(result: Value) -> bool:
    """Return whether a choice is among live-outs."""
    return isinstance(result, compat.TupleVariable) and any(
        isinstance(each, GatedPhi) for each in result.items
    )


# The way by which a block was left


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
        found = joined(tx, condition, inner)
        finding = Finding(Claim.NEW, join.site, join.form)
        sharing.add_result(tx, example_of(found), [example_of(flag)], finding)
        return found

    return build
