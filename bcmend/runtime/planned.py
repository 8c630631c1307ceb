"""What a branch is going to change in the main trace, as plans.

``apply_changes`` of ``changes`` carries them out; ``opened`` and ``attributes`` have further kinds,
which carry themselves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime.merge import Build

__all__ = ["Change", "Contents", "Creation"]


@dataclass(frozen=True, slots=True)
class Creation:
    """An attribute that one side creates: stored at the end of the call, if that side was taken.

    Until then no other code may look for it (``_require_creatable`` makes sure).
    """

    variable: VariableTracker
    name: str
    build: Build
    value: VariableTracker
    taken: bool
    place: str = "attribute"  # or "item" of a dictionary, or "member" of a set
    earlier: tuple[str, ...] = ()  # the keys in front of an item


@dataclass(frozen=True, slots=True)
class Contents:
    """A container that both sides leave with the same contents."""

    variable: VariableTracker
    items: Any


@dataclass(frozen=True, slots=True)
class Change:
    """One place of the main trace that gets a merged value."""

    variable: VariableTracker
    key: Any
    build: Build
    sides: tuple[VariableTracker, VariableTracker]
    kind: Any = None  # Dynamo's kind of attribute store; None for an item of a container
