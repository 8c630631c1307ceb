"""What a qualified name stands for, as far as it is imported; nothing is imported for it."""

from __future__ import annotations

import sys
from types import ModuleType

from bcmend.static_lookup import namespace

__all__ = ["is_qualified", "plain", "resolved"]


def is_qualified(name: str) -> bool:
    """Whether ``name`` has the form of a module and something in it, joined by dots."""
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


def _member(owner: object, name: str) -> object:
    if isinstance(owner, ModuleType):
        behind = vars(owner).get("m")  # what stands for a module of torch.backends keeps it so
        found = vars(owner).get(name)
        return _member(behind, name) if found is None and behind is not owner else found
    if isinstance(owner, type):
        return plain(namespace(owner).get(name))
    return None


def plain(member: object) -> object:
    """Return the function of a static or class method, and anything else as it is."""
    return member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
