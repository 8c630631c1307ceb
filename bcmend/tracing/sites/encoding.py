"""Dynamo's models of the values that ``bcmend.delivery.codec`` decodes."""

from __future__ import annotations

from bcmend.delivery import codec
from bcmend.dynamo import compat
from bcmend.dynamo.values import constant


def encoded(kind: str, *fields: compat.VariableTracker) -> compat.VariableTracker:
    """Return the model of an encoded value."""
    return compat.TupleVariable([*map(constant, codec.encoded(kind)), *fields])


def is_encoded(value: compat.VariableTracker, kind: str) -> bool:
    """Return whether a value is the model of an encoded value of a kind."""
    if type(value) is not compat.TupleVariable:
        return False
    known = [each.value for each in value.items[:2] if isinstance(each, compat.ConstantVariable)]
    return known == [*codec.encoded(kind)]
