"""How a branch and its condition are written."""

from corpus.patterns.branches import expressions, statements, tests

__all__ = ["TOPICS", "expressions", "statements", "tests"]

TOPICS = (expressions, tests, statements)
