"""Every model of the corpus, in the order in which the table prints them."""

from __future__ import annotations

from corpus.models.case import ModelCase
from corpus.models.decoder import DECODER_CASES
from corpus.models.encoder import ENCODER_CASES
from corpus.models.encoder_decoder import ENCODER_DECODER_CASES
from corpus.models.multimodal import MULTIMODAL_CASES

CASES: tuple[ModelCase, ...] = (
    *ENCODER_DECODER_CASES,
    *DECODER_CASES,
    *ENCODER_CASES,
    *MULTIMODAL_CASES,
)


def case_named(name: str) -> ModelCase:
    """The case called `name`; raises `KeyError` naming the ones there are."""
    for case in CASES:
        if case.name == name:
            return case
    raise KeyError(f"no model {name!r}; there are {', '.join(case.name for case in CASES)}")
