"""Where a branch stands: blocks, and functions and methods of all kinds."""

from corpus.patterns.scopes import blocks, calls

__all__ = ["TOPICS", "blocks", "calls"]

TOPICS = (blocks, calls)
