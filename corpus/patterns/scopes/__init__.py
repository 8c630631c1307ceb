"""Where a branch stands: blocks, and functions and methods of all kinds."""

from corpus.patterns.scopes import blocks, calls, variables

__all__ = ["TOPICS", "blocks", "calls", "variables"]

TOPICS = (blocks, calls, variables)
