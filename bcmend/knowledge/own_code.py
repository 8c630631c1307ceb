"""Where the code of bcmend itself is, and what it is as a part of keys of caches."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent
#: What the files of the package begin with.
FILES_BEGIN: Final = f"{PACKAGE}{os.sep}"


@functools.cache
def code_key() -> str:
    """Return a text that differs where the code of bcmend does, for keys of caches."""
    found = hashlib.sha256()
    for each in sorted(PACKAGE.rglob("*.py")):
        found.update(f"{each.relative_to(PACKAGE)}".encode() + each.read_bytes())
    return f"bcmend {found.hexdigest()}"
