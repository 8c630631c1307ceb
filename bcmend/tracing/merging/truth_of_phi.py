"""The truth of a phi without a common form.

``return True`` on one side and a tensor on the other have no common form, but both have a truth.
Where the code goes on to test them, the truths are merged under the condition of the branch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, Value
from bcmend.tracing.merging.lazy_phi import GatedPhi, LazyPhi, UnreadPhi
from bcmend.tracing.numbers import predicates
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import weaken


def has_truth(value: Value) -> bool:
    """Return whether the truth of a value is a question of tensors alone."""
    # Raises ``Falsified`` if it is one once the frame is traced again with both sides stored.
    if not _may_have_truth(value):
        return False
    if unread := list(unread_in(value)):
        weaken(*(Finding(Claim.DROPPED, each.site, each.form) for each in unread[1:]))
        unread[0].store_sides()
    return True


def _may_have_truth(value: Value) -> bool:
    """Return whether the truth of a value is such a question with both sides of all phis stored."""
    if isinstance(value, (GatedPhi, UnreadPhi)):
        return all(map(_may_have_truth, value.sides))
    if isinstance(value, LazyPhi):
        return False
    is_number = isinstance(value, compat.SymNodeVariable) or value.is_python_constant()
    return is_number or predicates.is_single(value)


def unread_in(value: Value) -> Iterator[UnreadPhi]:
    """Yield the phis of which the sides are not at hand, those inside others first."""
    if isinstance(value, LazyPhi):
        for side in value.sides:
            yield from unread_in(side)
    if isinstance(value, UnreadPhi) and not value.is_at_hand:
        yield value


def truth_of(tx: compat.Tracer, value: Value) -> Value:
    """Return a 0-d boolean tensor for a phi that has a truth, and any other value as it is."""
    return _merged(tx, value) if isinstance(value, (GatedPhi, UnreadPhi)) else value


def _merged(tx: compat.Tracer, value: Value) -> TensorValue:
    if isinstance(value, (GatedPhi, UnreadPhi)) and value.predicate is not None:
        outcome = value.site.outcome
        outcome.lowering = value.site.chosen_later(outcome.lowering)
        predicate = predicates.as_predicate(tx, value.predicate)
        if (found := _of_the_side(tx, value, predicate)) is not None:
            return found
        one, other = (_merged(tx, side) for side in value.sides)
        return predicates.chosen(tx, predicate, one.as_proxy(), other.as_proxy())
    if not value.is_python_constant():
        return predicates.as_predicate(tx, value)
    truth = bool(value.as_python_constant())
    return fx_graph.function(tx, torch.full, (), truth, dtype=torch.bool)


def side_where(value: Value, truth: bool) -> tuple[Value, bool] | None:
    """Return the predicate of a phi that is true on one side alone, and its truth where that is.

    ``None`` for another value, or if it is not known at the side alone.
    """
    if not isinstance(value, (GatedPhi, UnreadPhi)) or value.predicate is None:
        return None
    if not all(isinstance(side, compat.ConstantVariable) for side in value.sides):
        return None
    one, other = (bool(side.as_python_constant()) for side in value.sides)
    return None if one is other else (value.predicate, one is truth)


def _of_the_side(tx: compat.Tracer, value: Value, predicate: TensorValue) -> TensorValue | None:
    """Return the truth of a phi that is true on one side alone."""
    found = side_where(value, True)
    if found is None:
        return None
    return predicate if found[1] else predicates.negated(tx, predicate)
