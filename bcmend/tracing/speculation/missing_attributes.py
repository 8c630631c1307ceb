"""Attributes that Dynamo models as read when the graph has run, and that are known before.

Those that ``nn.Buffer`` sets on a tensor of the call are: whether it is part of the state of a
module. So is which attributes an object of a builtin class does not have.

Dynamo models ``number.count`` or ``items.foo`` as an attribute that is read when the graph has run.
The ``AttributeError`` would be raised there, whichever side of a branch reads the attribute, and no
handler of the program would see it. In mended code it is raised where the attribute is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.values import TensorValue, Value, constant, example_of
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.refusal import Refusal

#: Py_TPFLAGS_IMMUTABLETYPE: of classes that get no attributes while a program runs.
_IMMUTABLE_TYPE: Final = 1 << 8


@handlers.attribute_read("attributes that objects do not have")
def _read(read: Callable[[Any], Any], tx: compat.Tracer, owner: Any, default: Value | None) -> Any:
    found = read(owner)
    if type(found) is not compat.GetAttrVariable or found.py_type is not None:
        return found
    if type(found.obj) is compat.GetAttrVariable and nesting_limits.is_in_an_arm(tx):
        raise Refusal("arm-untraceable", f"attribute {found.name} of one that is read later")
    if found.name in _OF_BUFFERS and (known := _set_on_a_buffer(found)) is not None:
        return constant(known)
    kind = _builtin_class(found.obj)
    if kind is None or hasattr(kind, found.name):
        return found
    if default is not None:
        return default
    text = f"'{_name_in_messages(kind)}' object has no attribute '{found.name}'"
    return compat.raise_observed_exception(AttributeError, tx, args=[text])


_OF_BUFFERS: Final = ("persistent", "_is_buffer")


def _set_on_a_buffer(read: compat.GetAttrVariable) -> bool | None:
    """Return an attribute that a buffer has from ``nn.Buffer``; ``None`` for any other one."""
    owner = read.obj.realize()
    if type(owner) is not TensorValue or owner.source is not None:
        return None
    example = example_of(owner)
    value = vars(example).get(read.name) if isinstance(example, torch.nn.Buffer) else None
    return value if type(value) is bool else None


def _builtin_class(value: Value) -> type | None:
    """Return the class of a value if it alone says which attributes the value has."""
    try:
        kind = value.realize().python_type()
    except NotImplementedError:
        return None
    is_immutable = bool(kind.__flags__ & _IMMUTABLE_TYPE)
    says_all = is_immutable and not kind.__dictoffset__ and not issubclass(kind, type)
    return kind if says_all else None


def _name_in_messages(kind: type) -> str:
    """Return the name of a builtin class as CPython's own messages have it."""
    is_builtin = kind.__module__ == "builtins"
    return kind.__name__ if is_builtin else f"{kind.__module__}.{kind.__name__}"
