"""What rewritten bytecode reaches through the global ``@bcmend``."""

from __future__ import annotations

from bcmend.runtime.boundary import run
from bcmend.runtime.primitives import branch, data_dependent, guard, record, recording, unbound

__all__ = ["branch", "data_dependent", "guard", "record", "recording", "run", "unbound"]
