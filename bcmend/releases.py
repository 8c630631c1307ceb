"""The releases of torch that bcmend is tested with; importable on any release."""

from __future__ import annotations

from typing import Final

import torch

#: The first two numbers of each tested release.
TESTED: Final = ("2.13",)


def is_tested() -> bool:
    """Return whether the running torch is a tested release."""
    return ".".join(torch.__version__.split(".")[:2]) in TESTED


def sentence() -> str:
    """Return one sentence that names the running release and the tested ones."""
    tested = " and ".join(TESTED)
    known = f"torch {torch.__version__}; bcmend is tested with torch {tested}"
    return f"{known}." if is_tested() else f"{known}, and changes nothing on any other release."
