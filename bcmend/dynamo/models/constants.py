"""Constants that cannot be told apart."""

from __future__ import annotations

from bcmend.dynamo import compat


def is_same(one: compat.VariableTracker, other: compat.VariableTracker) -> bool:
    """Return whether two constants cannot be told apart."""
    left, right = one.as_python_constant(), other.as_python_constant()
    return left is right or (
        type(left) is type(right) and left == right and repr(left) == repr(right)
    )


def are_same(one: compat.VariableTracker, other: compat.VariableTracker) -> bool:
    """Return whether two values are constants that cannot be told apart."""
    are_constants = all(isinstance(each, compat.ConstantVariable) for each in (one, other))
    return are_constants and is_same(one, other)
