"""Hooks of modules that return something on one side of a branch and ``None`` on the other.

What calls a module goes on with what a hook returns, or without if that is ``None``. It is code of
torch, which is not rewritten. Where it compares with ``None``, the result of the hook becomes what
torch goes on with on either side.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, Final

import torch

from bcmend.bytecode.names_used import code_objects
from bcmend.dynamo import compat
from bcmend.dynamo.values import Value
from bcmend.tracing.two_forms import sides

#: Of the code that calls a module: variables with the result of a hook, and with what it replaces.
_REPLACED: Final = {"hook_result": "result", "args_result": "args"}
_CALLS: Final[frozenset[CodeType]] = frozenset(code_objects(torch.nn.Module._call_impl.__code__))


def settled(tx: Any, phi: Value) -> bool:
    """Have a hook return what torch goes on with; return whether that was possible."""
    name = next((each for each, value in tx.symbolic_locals.items() if value is phi), None)
    if tx.f_code not in _CALLS or name not in _REPLACED or not sides.is_open(phi):
        return False
    before = _value(tx, _REPLACED[name])
    one, other = (before if _is_none(side) else side for side in phi.sides)
    if before is None or not any(map(_is_none, phi.sides)):
        return False
    if isinstance(before, compat.TupleVariable) and type(one) is not type(other):
        return False  # torch makes a tuple of it
    merged = sides.computed(tx, phi, phi.predicate, [one, other], (lambda: one, lambda: other))
    if merged is None:
        return False
    tx.symbolic_locals[name] = merged
    return True


def _value(tx: Any, name: str) -> Any:
    found = tx.symbolic_locals.get(name)
    if isinstance(found, compat.CellVariable):
        return tx.output.side_effects.load_cell(found)
    return found


def _is_none(value: Value) -> bool:
    return isinstance(value, compat.ConstantVariable) and value.value is None
