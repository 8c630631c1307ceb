"""Arms that leave unlike values, no value, or fail."""

from corpus.patterns.arms import absent, failing, unlike

__all__ = ["TOPICS", "absent", "failing", "unlike"]

TOPICS = (failing, absent, unlike)
