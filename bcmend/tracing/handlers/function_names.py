"""Names of functions: those that a function has, and not those of its code.

Dynamo takes the name, the qualified name, the text of documentation and the module of a function
from its code and its globals. ``functools.wraps`` gives a function others than these, and so may
anybody. The code of a mended function has no text of documentation.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Final

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.values import Value

_NAMES: Final = frozenset(["__name__", "__qualname__", "__doc__", "__module__"])
_MODELS: Final = (compat.UserFunctionVariable, compat.UserMethodVariable)


@handlers.attribute_read("names of functions", place=5)
def _read(read: handlers.Read, tx: compat.Tracer, owner: Any, default: Value | None) -> Any:
    name, model = read.name, owner.realize()
    if name not in _NAMES or not isinstance(model, _MODELS):
        return read(owner)
    function = model.fn
    is_changed = tx.output.side_effects.has_pending_mutation_of_attr(model, name)
    if type(function) is not FunctionType or is_changed:
        return read(owner)
    found = getattr(function, name)
    if not isinstance(found, (str, type(None))):
        return read(owner)
    source = model.source and compat.AttrSource(model.source, name)
    return Value.build(tx, found, source)
