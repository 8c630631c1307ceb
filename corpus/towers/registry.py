"""Every kind of code, in the order in which the table prints them."""

from __future__ import annotations

from typing import Final

from corpus.towers.kind import Kind
from corpus.towers.kinds import (
    attention,
    experts,
    kept,
    losses,
    masks,
    merging,
    positions,
    sounds,
    tokens,
    whole,
)

TOPICS: Final = (
    *(positions, attention, merging, masks, sounds, experts),
    *(tokens, kept, losses, whole),
)

KINDS: Final[tuple[Kind, ...]] = tuple(each for topic in TOPICS for each in topic.KINDS)
