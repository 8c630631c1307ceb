"""Functions and classes that random programs call; only those that are named become part of one."""

from __future__ import annotations

import re
from typing import Final

from tests.fuzz.prelude_calls import CALLS
from tests.fuzz.prelude_contexts import CONTEXTS
from tests.fuzz.prelude_functions import FUNCTIONS
from tests.fuzz.prelude_objects import OBJECTS

_PARTS: Final = (*OBJECTS, *FUNCTIONS, *CALLS, *CONTEXTS)

_DEFINED: Final = re.compile(r"^(?:(?:def|class) )?([A-Za-z]\w*)(?= =|[(:])", re.MULTILINE)

NAMES: Final = {name: part for part in _PARTS for name in _DEFINED.findall(part)}


def needed_by(text: str) -> str:
    """Return the definitions of what a text names."""
    found = [
        part
        for part in _PARTS
        if any(re.search(rf"(?<![\w.]){name}\b(?! =)", text) for name in _DEFINED.findall(part))
    ]
    return "\n".join(found)
