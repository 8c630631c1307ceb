"""Constants that cannot be told apart."""

from __future__ import annotations

from typing import Any

from bcmend.dynamo import compat


def are_one(left: Any, right: Any) -> bool:
    """Return whether nobody can tell two objects that are never changed from one another."""
    return left is right or (
        type(left) is type(right) and bool(left == right) and repr(left) == repr(right)
    )


def is_same(one: compat.VariableTracker, other: compat.VariableTracker) -> bool:
    """Return whether two constants cannot be told apart."""
    return are_one(one.as_python_constant(), other.as_python_constant())


def are_same(one: compat.VariableTracker, other: compat.VariableTracker) -> bool:
    """Return whether two values are constants that cannot be told apart."""
    are_constants = all(isinstance(each, compat.ConstantVariable) for each in (one, other))
    return are_constants and is_same(one, other)
