"""The places of a trace that an arm may change, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class LocationKind(Enum):
    """What a location is of its owner."""

    ATTRIBUTE = auto()  # the one called ``key``; cells and global variables have one
    ITEM = auto()  # the one at position or key ``key``
    CONTENTS = auto()  # all that a container holds
    LOG = auto()  # records that change a container; of no owner, the records of the call


@dataclass(frozen=True, slots=True)
class Location:
    """A place of the trace around an arm. ``store`` is Dynamo's kind of store to an attribute."""

    kind: LocationKind
    owner: Any
    key: Any = None
    store: Any = field(default=None, compare=False)
