"""Every model of the list, in the order in which the table prints them."""

from __future__ import annotations

from typing import Final

from corpus.configured.case import Case
from corpus.models.case import ModelCase
from corpus.unharmed.decoders import DECODERS
from corpus.unharmed.images import IMAGES
from corpus.unharmed.mixed import MIXED
from corpus.unharmed.sounds import SOUNDS
from corpus.unharmed.text import TEXT


def _whole(case: Case) -> ModelCase:
    """The case as `corpus.models` measures it: one graph, stock and mended."""
    return ModelCase(case.name, lambda: (case.build(), case.inputs()), 0, 0)


CASES: Final[tuple[ModelCase, ...]] = tuple(
    _whole(case) for case in (*TEXT, *DECODERS, *IMAGES, *SOUNDS, *MIXED)
)
