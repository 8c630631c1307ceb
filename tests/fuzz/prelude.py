"""Functions and classes that random programs call; only those that are named become part of one."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = (
    """
class Box:
    def __init__(self, value, count=0):
        self.value = value
        self.count = count
""",
    """
def note(x):
    print("note", x.sum().item())
""",
    """
def require(x, most=50.0):
    if x.max() > most:
        raise ValueError("too large", most)
    return x
""",
    """
def is_positive(x):
    return x.sum() > 0
""",
    """
def kept(x):
    if x.sum() > 0:
        return x * 2
    return None
""",
    """
def level(x):
    if x.sum() > 4:
        return 2
    if x.sum() > 0:
        return 1
    return 0
""",
    """
def signed(x):
    if x.min() < 0:
        return x.abs(), "negative"
    return x, "positive"
""",
    """
def scaled(x, *others, by=2.0, **options):
    for other in others:
        x = x + other
    if options.get("flip", False):
        x = x.flip(0)
    return x * by
""",
    """
def shift_(x):
    x.add_(1)
    return x
""",
    """
def store(table, key, x):
    if x.sum() > 0:
        table[key] = x
    return len(table)
""",
    """
def pieces(x):
    for row in x:
        if row > 0:
            yield row * 2
        else:
            yield row
""",
)

NAMES: Final = {re.search(r"(?:def|class) (\w+)", part)[1]: part for part in _PARTS}  # type: ignore[index]


def needed_by(text: str) -> str:
    """Return the definitions of what a text names."""
    found = [part for name, part in NAMES.items() if re.search(rf"\b{name}\(", text)]
    return "\n".join(found)
