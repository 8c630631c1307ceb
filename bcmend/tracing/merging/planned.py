"""Plans of what a branch changes in the main trace, and what is known where its arms meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue, Value
from bcmend.tracing.merging.merge import Merger
from bcmend.tracing.sites.phi import Build
from bcmend.tracing.sites.site_table import LiveSite


@dataclass(frozen=True, slots=True)
class Join:
    """The place of a trace where the arms of a branch meet. ``form`` is that of the branch."""

    tx: compat.Tracer
    site: LiveSite
    form: int
    predicate: TensorValue
    merger: Merger


@dataclass(frozen=True, slots=True)
class Creation:
    """An entry of a table of names that one side creates: stored at the end, if it was taken."""

    # Until then no other code may look for it (``require_creatable`` makes sure).

    variable: Value
    name: str
    build: Build
    value: Value
    taken: bool
    earlier: tuple[str, ...] | None = None  # the keys before it; None for a member of a set


@dataclass(frozen=True, slots=True)
class Contents:
    """A container that both sides leave with the same contents."""

    variable: Value
    items: Any


@dataclass(frozen=True, slots=True)
class Change:
    """One place of the main trace that gets a merged value."""

    variable: Value
    key: Any
    build: Build
    sides: tuple[Value, Value]
    kind: Any = None  # Dynamo's kind of attribute store; None for an item of a container
