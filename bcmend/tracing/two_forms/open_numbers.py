"""Numbers that the sides of branches leave, such as how many turns of a loop have found something.

A few are kept apart, as constants. Beyond that one number is taken out of a tensor, which selects
among them. What then has to know the number, such as the length of a slice, makes Dynamo trace the
frame again with all of them apart.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce
from typing import Any, Final

from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.values import TensorValue, Value, is_unbacked, kind_of_number
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.numbers import float_tensors, predicates, scalars
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import body_states
from bcmend.tracing.two_forms import sides
from bcmend.tracing.two_forms.sides import Open

#: So many numbers are kept apart.
APART_AT_MOST: Final = 4
#: So many are of a number with which nothing is computed. Where turns of a loop leave it as it is
#: on several ways, they multiply: of a state machine five turns take 1 s, and nine took 6 s.
LEFT_AT_MOST: Final = 8


def kind_of(value: Value) -> type | None:
    """Return ``int`` or ``float`` for a number, or for one that has several forms."""
    if isinstance(value, LazyPhi):
        kinds = {kind_of(side) for side in value.sides}
        return kinds.pop() if len(kinds) == 1 else None
    return int if scalars.is_integer_of_array(value) else kind_of_number(value)


def is_computed(value: Value) -> bool:
    """Return whether a number with several forms is one of the graph in any of them."""
    leaves = list(sides.leaves(value))
    return any(map(is_unbacked, leaves)) or any(map(scalars.is_integer_of_array, leaves))


def is_plain(value: Value) -> bool:
    """Return whether a number with several forms is better kept apart."""
    return len(list(sides.leaves(value))) <= APART_AT_MOST and not is_computed(value)


def has_many_forms(value: Value) -> bool:
    """Return whether a number has more forms than are kept apart where nobody computes with it."""
    return len(list(sides.leaves(value))) > LEFT_AT_MOST


def joined(tx: compat.Tracer, phi: Open) -> Value | None:
    """Return a number with several forms as one number; ``None`` if it is to stay apart."""
    kind = kind_of(phi)
    if kind is None:
        return None
    findings = list(dict.fromkeys(_findings(phi)))
    if not all(each.subject.holds(each.claim, each.of) for each in findings):
        return None
    # Floats have no limits that torch would use, and NaN cannot be one.
    between = reduce(operator.or_, map(limits, sides.leaves(phi))) if kind is int else None
    if between is not None and shape_env.may_overflow(between):
        return None
    number = scalars.take(tx, tensor_of(tx, phi, kind))
    if number is not None:
        state = body_states.state_of(tx.output.root_tx.f_code)
        state.noted_open.extend(findings)
        if between is not None:
            shape_env.limit(number, between)
    return number


def _findings(value: Value) -> Iterator[Finding]:
    if isinstance(value, LazyPhi):
        yield Finding(Claim.COMPUTED_WITH, value.site, value.form)
        for side in value.sides:
            yield from _findings(side)


def tensor_of(tx: compat.Tracer, value: Value, kind: type) -> TensorValue:
    """Return a 0-d tensor of a number, an ``int`` or a ``float``, in whatever form it is."""
    if sides.is_open(value):
        one, other = (tensor_of(tx, side, kind).as_proxy() for side in value.sides)
        predicate: Any = value.predicate
        return predicates.chosen(tx, predicate, one, other)
    if scalars.is_integer_of_array(value):
        return scalars.as_tensor(tx, value)  # type: ignore[return-value]
    return float_tensors.of_number(tx, value, kind)


def limits(value: Any) -> Any:
    """Return between which numbers an integer is."""
    if scalars.is_integer_of_array(value):
        return compat.ValueRanges(-(2**63), 2**63 - 1)
    return shape_env.limits_of(value)
