"""What rewritten bytecode reaches through the global ``@bcmend``."""

from __future__ import annotations

from bcmend.runtime.boundary import run
from bcmend.runtime.primitives import (
    branch,
    data_dependent,
    guard,
    nothing,
    record,
    recording,
    split,
    unbound,
    undecided,
)

__all__ = [
    "branch",
    "data_dependent",
    "guard",
    "nothing",
    "record",
    "recording",
    "run",
    "split",
    "unbound",
    "undecided",
]
