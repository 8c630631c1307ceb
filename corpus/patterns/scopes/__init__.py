"""Where a branch stands: blocks, and functions and methods of all kinds."""

from corpus.patterns.scopes import blocks, calls, checkpoints, variables

__all__ = ["TOPICS", "blocks", "calls", "checkpoints", "variables"]

TOPICS = (blocks, checkpoints, calls, variables)
