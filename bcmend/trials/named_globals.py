"""The globals that belong to an object: data of its module that its code names.

Functions and classes of the same module are followed. What a global holds is looked up when it is
asked for, since it may be bound anew. Code is read as it was before it was patched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import torch

from bcmend.bytecode.names_used import code_objects
from bcmend.patching.table import TABLE

_NO_DATA: Final = (FunctionType, BuiltinFunctionType, ModuleType, type)


@dataclass(frozen=True, slots=True)
class NamedGlobals:
    """Globals by their full names, each with the namespace that has it and its name there."""

    places: Mapping[str, tuple[dict[str, Any], str]]

    def read(self) -> dict[str, Any]:
        """Return the globals that hold data now, by their full names."""
        found = {
            key: namespace[name]
            for key, (namespace, name) in self.places.items()
            if name in namespace
        }
        return {key: value for key, value in found.items() if not isinstance(value, _NO_DATA)}


def named_globals(obj: Any) -> NamedGlobals:
    """Return the globals of a function, a class, or a module with its submodules."""
    roots = [obj]
    if isinstance(obj, torch.nn.Module):
        roots = list(dict.fromkeys(type(each) for each in obj.modules()))
    seen: set[int] = set()
    return NamedGlobals(
        {
            f"{namespace['__name__']}.{name}": (namespace, name)
            for root in roots
            for namespace, name in _named(root, seen)
        }
    )


def _named(value: Any, seen: set[int]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each global that the code of a function or a class names, with its namespace."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, type):
        for each in vars(value).values():
            if isinstance(each, (staticmethod, classmethod, FunctionType)):
                yield from _named(getattr(each, "__func__", each), seen)
    elif isinstance(value, FunctionType) and str(value.__module__).partition(".")[0] != "torch":
        namespace = value.__globals__
        names = {name for code in code_objects(TABLE.as_written(value)) for name in code.co_names}
        for name in sorted(names & namespace.keys()):
            held = namespace[name]
            if not isinstance(held, _NO_DATA) and not name.startswith("__"):
                yield namespace, name
            elif isinstance(held, (FunctionType, type)) and held.__module__ == value.__module__:
                yield from _named(held, seen)
