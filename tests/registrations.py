"""What a program registers with bcmend, taken back after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TABLES = ("bcmend.knowledge.output_callables", "bcmend.knowledge.replaced_calls")


@contextmanager
def registrations_undone() -> Iterator[None]:
    """Take back on leaving what has been registered since; earlier registrations stay."""
    before = {
        name: sys.modules[name].REGISTERED.targets() for name in _TABLES if name in sys.modules
    }
    try:
        yield
    finally:
        for name in _TABLES:
            table = sys.modules.get(name)
            for target in table.REGISTERED.targets() if table else ():
                if not any(target is each for each in before.get(name, ())):
                    table.REGISTERED.remove(target)
