"""What bcmend keeps for the length of one trace, on Dynamo's ``OutputGraph``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["kept"]

T = TypeVar("T")


def kept(output: Any, name: str, make: Callable[[], T]) -> T:
    """Return what the trace of ``output`` keeps under ``name``; made when first asked for."""
    name = f"_bcmend_{name}"
    if not hasattr(output, name):
        setattr(output, name, make())
    found: T = getattr(output, name)
    return found
