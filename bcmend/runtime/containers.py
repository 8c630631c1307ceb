"""Containers that are copied item by item, as Dynamo has them.

Those are lists, tuples, dictionaries, and tuples whose items have names: of ``namedtuple``, and
what torch returns. What has attributes beside its items is an object, and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._dynamo.variables import ConstDictVariable, ListVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.user_defined import NamedTupleVariable, StructSequenceVariable

__all__ = ["is_named_tuple", "items_in", "made_of"]


def is_named_tuple(value: VariableTracker) -> bool:
    """Whether a value is a tuple of named items, and nothing more."""
    if not isinstance(value, (NamedTupleVariable, StructSequenceVariable)):
        return False
    return not hasattr(value.value, "__dict__")


def items_in(value: Any) -> list[VariableTracker] | None:
    """Return what a container holds, of a dictionary the values; ``None`` if it is no such one."""
    if type(value) in (ListVariable, TupleVariable) or is_named_tuple(value):
        return list(value.items)
    return list(value.items.values()) if type(value) is ConstDictVariable else None


def made_of(value: Any, items: Sequence[VariableTracker]) -> VariableTracker:
    """Return a new container like ``value`` with other items."""
    if type(value) is ListVariable:
        return ListVariable(list(items), mutation_type=ValueMutationNew())
    if type(value) is ConstDictVariable:
        pairs = dict(zip(value.items, items, strict=True))
        return ConstDictVariable(pairs, value.user_cls, mutation_type=ValueMutationNew())
    plain = TupleVariable(list(items))
    if type(value) is TupleVariable:
        return plain
    named: VariableTracker = type(value)(value.value, tuple_vt=plain)
    return named
