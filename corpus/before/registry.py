"""Every case, in the order in which tables print them."""

from __future__ import annotations

from typing import Final

from corpus.before.case import Case
from corpus.before.cases import experts, images, masks, modalities, molecules, overflow, sounds

TOPICS: Final = (masks, modalities, experts, molecules, overflow, images, sounds)

CASES: Final[tuple[Case, ...]] = tuple(each for topic in TOPICS for each in topic.CASES)
