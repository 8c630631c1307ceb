"""What rewritten bytecode reaches through the global ``@bcmend``."""

from __future__ import annotations

from builtins import UnboundLocalError

from bcmend.runtime.boundary import run
from bcmend.runtime.own_frames import leave_out
from bcmend.runtime.primitives import (
    branch,
    data_dependent,
    guard,
    nothing,
    record,
    recording,
    split,
    turn_is_made,
    unbound,
    undecided,
)

__all__ = [
    "UnboundLocalError",
    "branch",
    "data_dependent",
    "guard",
    "leave_out",
    "nothing",
    "record",
    "recording",
    "run",
    "split",
    "turn_is_made",
    "unbound",
    "undecided",
]
