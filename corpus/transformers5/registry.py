"""Every model of the corpus, in the order in which the table prints them."""

from __future__ import annotations

from typing import Final

from corpus.configured.case import Case
from corpus.transformers5.senses import SENSES
from corpus.transformers5.text import TEXT

CASES: Final[tuple[Case, ...]] = (*TEXT, *SENSES)
