"""Functions that were there before a call, of which Dynamo does not know where they are from."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final

from bcmend.dynamo.models import objects
from bcmend.knowledge.qualified_names import plain, resolved
from bcmend.knowledge.static_lookup import ancestors, namespace

#: The variable in which methods with ``super()`` have their class.
_OWN_CLASS: Final = frozenset(["__class__"])


def has_unknown_cells(model: Any, args: Sequence[Any]) -> bool:
    """Return whether Dynamo does not know where the outer variables of a function are from.

    So it is with methods, given their object or class first, of an object that the call makes.
    """
    function = model.fn
    return (
        model.source is None
        and type(function) is FunctionType
        and not _OWN_CLASS.issuperset(function.__code__.co_freevars)
        and _was_there_before(function, args)
    )


def _was_there_before(function: FunctionType, args: Sequence[Any]) -> bool:
    """Return whether a function is known to be none that the call has made.

    It is then an attribute of a module, or of the class of its first argument.
    """
    if resolved(f"{function.__module__}.{function.__qualname__}") is function:
        return True
    kind = objects.class_from_outside(args[0].realize()) if args else None
    kinds = () if kind is None else ancestors(kind)  # a class may have a truth of its own
    members = (each for base in kinds for each in namespace(base).values())
    return any(function in _functions_of(each) for each in members)


def _functions_of(member: object) -> tuple[object, ...]:
    if isinstance(member, property):
        return member.fget, member.fset, member.fdel
    found = plain(member)
    return (found,) if isinstance(found, FunctionType) else ()
