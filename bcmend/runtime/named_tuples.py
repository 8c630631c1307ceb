"""Tuples whose items have names, as Dynamo has them: of ``namedtuple``, and what torch returns.

Such a tuple cannot be changed, so one with other items is made anew. Those of classes whose objects
have attributes beside the items are left out: they are objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._dynamo.variables import TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.user_defined import NamedTupleVariable, StructSequenceVariable

__all__ = ["is_named_tuple", "items_in", "made_of"]


def is_named_tuple(value: VariableTracker) -> bool:
    """Whether a value is a tuple of named items, and nothing more."""
    if not isinstance(value, (NamedTupleVariable, StructSequenceVariable)):
        return False
    return not hasattr(value.value, "__dict__")


def items_in(value: VariableTracker) -> list[VariableTracker]:
    """Return the items of a named tuple."""
    known: Any = value
    return list(known.items)


def made_of(value: VariableTracker, items: Sequence[VariableTracker]) -> VariableTracker:
    """Return a named tuple like ``value`` with other items."""
    known: Any = value
    return type(known)(known.value, tuple_vt=TupleVariable(list(items)))  # type: ignore[no-any-return]
