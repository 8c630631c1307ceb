"""The places that a branch may change, and what is known where its arms meet: data alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue
from bcmend.tracing.merging.merge import Merger
from bcmend.tracing.sites.site_table import LiveSite


class LocationKind(Enum):
    """What a location is of its owner."""

    ATTRIBUTE = auto()  # the one called ``key``; cells and global variables have one
    ITEM = auto()  # the one at position or key ``key``
    CONTENTS = auto()  # all that a container holds
    LOG = auto()  # records that change a container; of no owner, the records of the call


@dataclass(frozen=True, slots=True)
class Location:
    """A place of the main trace that a branch may change; ``store`` is Dynamo's kind of store."""

    kind: LocationKind
    owner: Any
    key: Any = None
    store: Any = None


@dataclass(frozen=True, slots=True)
class Join:
    """The place of a trace where the arms of a branch meet. ``form`` is that of the branch."""

    tx: compat.Tracer
    site: LiveSite
    form: int
    predicate: TensorValue
    merger: Merger
