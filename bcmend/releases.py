"""The releases of torch that bcmend is tested with; importable on any release.

``BCMEND_UNTESTED_TORCH`` in the environment says what becomes of any other release: ``refuse``, as
without it, warns and changes nothing, ``warn`` warns and goes on, ``error`` raises the warning.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Final

import torch

from bcmend.errors import BcmendError

#: The first two numbers of each tested release.
TESTED: Final = ("2.13",)
_VARIABLE: Final = "BCMEND_UNTESTED_TORCH"
_WORDS: Final = ("refuse", "warn", "error")


def is_tested() -> bool:
    """Return whether the running torch is a tested release."""
    return ".".join(torch.__version__.split(".")[:2]) in TESTED


def is_used() -> bool:
    """Return whether bcmend works with the running torch, which may be no tested release."""
    return is_tested() or _chosen() == "warn"


def is_an_error() -> bool:
    """Return whether a release that is not tested is an error."""
    return not is_tested() and _chosen() == "error"


def _chosen() -> str:
    """Return what the environment chooses. Raises ``BcmendError`` for any other word."""
    word = os.environ.get(_VARIABLE) or _WORDS[0]
    if word not in _WORDS:
        raise BcmendError(f"{_VARIABLE} is {word!r}; set it to one of {', '.join(_WORDS)}")
    return word


@cache
def code_key() -> str:
    """Return a text that differs where the code of bcmend does, for keys of caches."""
    found = hashlib.sha256()
    folder = Path(__file__).parent
    for each in sorted(folder.rglob("*.py")):
        found.update(f"{each.relative_to(folder)}".encode() + each.read_bytes())
    return f"bcmend {found.hexdigest()}"


def sentence() -> str:
    """Return one sentence that names the running release and the tested ones."""
    tested = " and ".join(TESTED)
    known = f"torch {torch.__version__}; bcmend is tested with torch {tested}"
    if is_tested():
        return f"{known}."
    return f"{known}, and {'is used' if is_used() else 'changes nothing on any other release'}."
