"""Programs that raise because of the values of tensors."""

from corpus.patterns.checks import exceptions, handled, order, placement, statements

__all__ = ["TOPICS", "exceptions", "handled", "order", "placement", "statements"]

TOPICS = (handled, order, placement, statements, exceptions)
