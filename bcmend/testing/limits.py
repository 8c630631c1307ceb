"""What numbers are that a test may give; imports no torch."""

from __future__ import annotations

from bcmend.errors import CallError


def require_count(what: str, count: object) -> None:
    """Raise ``CallError`` for what is no positive number of things to be tried."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise CallError(f"{what} takes a positive number, got {count!r}")


def require_limit(limit: object) -> None:
    """Raise ``CallError`` for what is no number of graph breaks."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise CallError(f"graph_breaks(max=...) takes a number of breaks, 0 or more, got {limit!r}")
