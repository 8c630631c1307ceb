"""Sizes and places that only the data determine."""

from corpus.patterns.dynamic import places, sizes

__all__ = ["TOPICS", "places", "sizes"]

TOPICS = (places, sizes)
