"""Callables by qualified name, as far as they are imported, and by identity.

Nothing is imported for a name.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import MethodType, ModuleType
from typing import Final, Generic, TypeVar

from bcmend.knowledge.static_lookup import namespace

Row = TypeVar("Row")
_ABSENT: Final = object()


def is_qualified(name: str) -> bool:
    """Return whether ``name`` has the form of a module and something in it, joined by dots."""
    parts = name.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def resolved(name: str) -> object:
    """Return what a qualified name stands for now; ``None`` if that is not known."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:count]))
        if module is not None:
            found: object = module
            for part in parts[count:]:
                found = _member(found, part)
            return found
    return None


def missing_in(name: str) -> str:
    """Return the imported module or class that lacks what a qualified name names next.

    Empty where it names something, or may later: what is not imported yet, or gets its names as
    they are asked for.
    """
    parts = name.split(".")
    modules = (
        count for count in range(len(parts) - 1, 0, -1) if _path(parts, count) in sys.modules
    )
    if not (count := next(modules, 0)):
        return ""
    owner: object = sys.modules[_path(parts, count)]
    for at in range(count, len(parts)):
        if not isinstance(owner, (ModuleType, type)) or _has_names_later(owner):
            return ""
        found = inspect.getattr_static(owner, parts[at], _ABSENT)
        if found is _ABSENT:
            is_module = (
                at == count and hasattr(owner, "__path__") and find_spec(_path(parts, at + 1))
            )
            return "" if is_module else _path(parts, at)
        owner = found
    return ""


def no_such(name: str, owner: str) -> str:
    """Return what to say of a name where ``missing_in`` has found an owner."""
    return (
        f"there is no {name!r}: {owner!r} is imported and has nothing of that name; correct it, or "
        "pass the callable itself"
    )


def _path(parts: Sequence[str], count: int) -> str:
    return ".".join(parts[:count])


def _has_names_later(owner: ModuleType | type) -> bool:
    """Return whether an object may get names: it is being imported, or makes them when asked."""
    if isinstance(owner, type):
        return type(owner) is not type
    is_own_kind = type(owner) is not ModuleType or "__getattr__" in vars(owner)
    is_begun = owner.__name__ == "__main__" or getattr(owner.__spec__, "_initializing", False)
    return is_own_kind or is_begun


def _member(owner: object, name: str) -> object:
    if isinstance(owner, ModuleType):
        behind = vars(owner).get("m")  # what stands for a module of torch.backends keeps it so
        found = vars(owner).get(name)
        return _member(behind, name) if found is None and behind is not owner else found
    if isinstance(owner, type):
        return plain(namespace(owner).get(name))
    return None


def name_of(target: object) -> str:
    """Return a name to show for a callable, or the qualified name itself."""
    if isinstance(target, str):
        return target
    return str(getattr(target, "__qualname__", type(target).__qualname__))


def plain(member: object) -> object:
    """Return the function of a static or class method, and anything else as it is."""
    return member.__func__ if isinstance(member, (staticmethod, classmethod)) else member


class Registered(Generic[Row]):
    """What the user has registered of callables: by qualified name, and by object."""

    def __init__(self) -> None:
        self.by_name: dict[str, Row] = {}
        self._by_object: dict[int, tuple[object, Row]] = {}

    def add(self, target: object, row: Row) -> None:
        """Register a name or a callable; again replaces."""
        if isinstance(target, str):
            self.by_name[target] = row
        else:
            self._by_object[identity(target)] = target, row

    def remove(self, target: object) -> None:
        """Forget a name or a callable; nothing happens if it is not known."""
        if isinstance(target, str):
            self.by_name.pop(target, None)
        else:
            self._by_object.pop(identity(target), None)

    def targets(self) -> list[object]:
        """Return what is registered at present: names and objects."""
        return [*self.by_name, *(each for each, _ in self._by_object.values())]

    def last_names(self) -> set[str]:
        """Return the names by which code may know what is registered."""
        names = {name.rpartition(".")[2] for name in self.by_name}
        return names | {str(getattr(each, "__name__", "")) for each, _ in self._by_object.values()}

    def of_object(self, target: object) -> Row | None:
        """Return what is registered of a callable itself."""
        found = self._by_object.get(identity(target))
        return None if found is None else found[1]

    def of_method(self, owner: object, function: object) -> Row | None:
        """Return what is registered of the method of one object."""
        found = self._by_object.get(_of_bound(owner, function))
        return None if found is None else found[1]


def identity(target: object) -> int:
    """Return what stands for an object; a bound method is another object at every look."""
    if isinstance(target, MethodType):
        return _of_bound(target.__self__, target.__func__)
    return id(target)


def _of_bound(owner: object, function: object) -> int:
    return hash((id(owner), id(function)))
