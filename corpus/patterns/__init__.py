"""Small programs, one for each form that a site can take, with what has to become of each."""

from corpus.patterns.pattern import Pattern, found_outcome
from corpus.patterns.registry import PATTERNS, pattern_named

__all__ = ["PATTERNS", "Pattern", "found_outcome", "pattern_named"]
