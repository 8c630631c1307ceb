"""The truth of a phi without a common form.

``return True`` on one side and a tensor on the other have no common form, but both have a truth.
Where the code goes on to test them, the truths are merged under the condition of the branch.
"""

from __future__ import annotations

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.tracing.merging.lazy_phi import GatedPhi, LazyPhi, UnreadPhi
from bcmend.tracing.numbers import predicates


def has_truth(value: Value) -> bool:
    """Return whether the truth of a value is a question of tensors alone."""
    # Raises ``Falsified`` if it is one once the frame is traced again with both sides stored.
    if isinstance(value, GatedPhi):
        return all(map(has_truth, value.sides))
    if isinstance(value, UnreadPhi) and all(has_truth(side) for side in value.sides):
        value.store_sides()
    if isinstance(value, LazyPhi):
        return False
    if type(value) is compat.TensorVariable:
        return example_of(value).numel() == 1
    return isinstance(value, compat.SymNodeVariable) or value.is_python_constant()


def is_decided_by_the_side(value: LazyPhi) -> bool:
    """Return whether no tensor but the condition of the branch decides the truth of a value."""
    return bool(value.sides) and all(
        is_decided_by_the_side(side) if isinstance(side, LazyPhi) else side.is_python_constant()
        for side in value.sides
    )


def truth_of(tx: compat.Tracer, value: Value) -> Value:
    """Return a 0-d boolean tensor for a gated phi, and any other value as it is."""
    return _merged(tx, value) if isinstance(value, GatedPhi) else value


def _merged(tx: compat.Tracer, value: Value) -> TensorValue:
    if isinstance(value, GatedPhi):
        predicate = predicates.as_predicate(tx, value.predicate)
        one, other = (_merged(tx, side) for side in value.sides)
        return predicates.chosen(tx, predicate, one.as_proxy(), other.as_proxy())
    if not value.is_python_constant():
        return predicates.as_predicate(tx, value)
    truth = bool(value.as_python_constant())
    return fx_graph.function(tx, torch.full, (), truth, dtype=torch.bool)
