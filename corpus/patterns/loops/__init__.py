"""Loops whose iterations depend on tensors."""

from corpus.patterns.loops import bodies, exits, open

__all__ = ["TOPICS", "bodies", "exits", "open"]

TOPICS = (open, exits, bodies)
