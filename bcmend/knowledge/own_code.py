"""The code of bcmend itself, as it is a part of keys of caches."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parent.parent


@functools.cache
def code_key() -> str:
    """Return a text that differs where the code of bcmend does, for keys of caches."""
    found = hashlib.sha256()
    for each in sorted(_PACKAGE.rglob("*.py")):
        found.update(f"{each.relative_to(_PACKAGE)}".encode() + each.read_bytes())
    return f"bcmend {found.hexdigest()}"
