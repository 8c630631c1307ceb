"""``locals()`` and ``vars()`` of mended code, without the names that rewriting has added."""

from __future__ import annotations

from typing import Any, Final

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.values import Value
from bcmend.names import PREFIX

_PURPOSE: Final = "`locals()` and `vars()` of mended code"


def _without_own_names(found: Value) -> Value:
    if isinstance(found, compat.ConstDictVariable) and found.source is None:
        for key in [each for each in found.items if _is_own(each.vt)]:
            del found.items[key]
    return found


def _is_own(key: Value) -> bool:
    name = key.as_python_constant() if key.is_python_constant() else None
    return isinstance(name, str) and name.startswith(PREFIX)


@hooks.around(compat.BuiltinVariable, "call_locals", _PURPOSE)
def _call_locals(inner: Any, self: Value, tx: compat.Tracer, *args: Value) -> Value:
    return _without_own_names(inner(self, tx, *args))


@hooks.around(compat.BuiltinVariable, "call_vars", _PURPOSE)
def _call_vars(inner: Any, self: Value, tx: compat.Tracer, *args: Value) -> Value:
    found: Value = inner(self, tx, *args)
    return found if args else _without_own_names(found)
