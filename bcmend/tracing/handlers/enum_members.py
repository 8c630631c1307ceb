"""Methods of members of enumerations that are texts or whole numbers: `mode.lower()`.

Dynamo guards a member by identity, and calls no method that its class has of ``str`` or ``int``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MethodDescriptorType
from typing import Any, Final

from bcmend.bytecode import behavior, opcodes
from bcmend.bytecode.decode import operation
from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, constant

#: What makes the text or the number that a member is, without the code of its class.
_KNOWN: Final[Mapping[type, Callable[[Any], Any]]] = {str: str.__str__, int: int.__int__}
_MISSING: Final = object()


@hooks.around(
    compat.UserDefinedObjectVariable,
    methods.GENERIC_GETATTR,
    "methods of members of enumerations",
    place=1,
)
def _read_attribute(inner: Any, self: Any, tx: compat.Tracer, name: str) -> Value:
    """Read a method that is called at once; what it belongs to is then not seen."""
    member = self.value
    if isinstance(member, enum.Enum) and _loads_a_method(tx):
        for kind, known in _KNOWN.items():
            if isinstance(member, kind) and _is_inherited(member, kind, name):
                owned = [constant(known(member)), constant(name)]
                return Value.build(tx, getattr).call_function(tx, owned, {})  # type: ignore[no-any-return]
    found: Value = inner(self, tx, name)
    return found


def _loads_a_method(tx: compat.Tracer) -> bool:
    """Return whether the present instruction is one that loads a method and calls it next.

    In mended code a load may be split: what it has pushed beside the method is then pushed next,
    and put under it where that is its place. Without, the NULL belongs to another call.
    """
    instruction, position = tx.current_instruction, tx.instruction_pointer
    assert position is not None  # it is traced
    is_load = operation(instruction) in opcodes.ATTRIBUTE_LOADS
    if is_load and operation(tx.instructions[position]) in opcodes.NULLS:
        is_under = operation(tx.instructions[position + 1]) in opcodes.SWAPS
        return is_under or not behavior.NULL_BEFORE_CALLABLE
    if behavior.HAS_LOAD_METHOD:
        return operation(instruction) in opcodes.METHOD_LOADS
    return is_load and (instruction.arg or 0) % 2 == 1


def _is_inherited(member: enum.Enum, kind: type, name: str) -> bool:
    """Return whether an attribute of a member is a method that ``kind`` itself defines."""
    method = vars(kind).get(name)
    of_class = (vars(each).get(name, _MISSING) for each in type(member).__mro__)
    return (
        isinstance(method, MethodDescriptorType)
        and not name.startswith("_")
        and name not in vars(member)
        and type(member).__getattribute__ in (kind.__getattribute__, object.__getattribute__)
        and next(each for each in of_class if each is not _MISSING) is method
    )
