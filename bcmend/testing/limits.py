"""What a number of graph breaks is that a test may have; imports no torch."""

from __future__ import annotations

from bcmend.errors import CallError


def require_limit(limit: object) -> None:
    """Raise ``CallError`` for what is no number of graph breaks."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise CallError(f"graph_breaks(max=...) takes a number of breaks, 0 or more, got {limit!r}")
