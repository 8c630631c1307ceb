"""Programs that print, log, warn or write."""

from corpus.patterns.output import arguments, blocks, loggers, moments, placement, sinks, values

__all__ = ["TOPICS", "arguments", "blocks", "loggers", "moments", "placement", "sinks", "values"]

TOPICS = (arguments, blocks, moments, placement, loggers, sinks, values)
