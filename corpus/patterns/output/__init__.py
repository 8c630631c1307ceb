"""Programs that print, log, warn or write."""

from corpus.patterns.output import (
    arguments,
    blocks,
    loggers,
    moments,
    placement,
    sinks,
    texts,
    values,
)

__all__ = [
    "TOPICS",
    "arguments",
    "blocks",
    "loggers",
    "moments",
    "placement",
    "sinks",
    "texts",
    "values",
]

TOPICS = (arguments, blocks, texts, moments, placement, loggers, sinks, values)
