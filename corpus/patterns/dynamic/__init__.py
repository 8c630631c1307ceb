"""Sizes and places that only the data determine."""

from corpus.patterns.dynamic import items, places, sizes

__all__ = ["TOPICS", "items", "places", "sizes"]

TOPICS = (items, places, sizes)
