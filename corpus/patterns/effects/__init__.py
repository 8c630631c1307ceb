"""Arms that change something which outlives them."""

from corpus.patterns.effects import aliases, attributes, containers, in_place

__all__ = ["TOPICS", "aliases", "attributes", "containers", "in_place"]

TOPICS = (aliases, in_place, containers, attributes)
