"""What a run shows is collected in order, and the process is left as it was."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
from transformers.utils import logging as transformers_logging

from corpus.models.observe import Line, collected_lines, observe


def test_log_records_and_warnings_are_one_list_in_order():
    logger = transformers_logging.get_logger("transformers.example")

    def call() -> str:
        logger.warning("first %d", 1)
        warnings.warn("second", FutureWarning, stacklevel=1)
        logger.error("third")
        return "returned"

    seen = observe(call, seed=0)

    assert seen.output == "returned"
    assert seen.lines == (
        Line("transformers.example", "WARNING", "first 1"),
        Line("FutureWarning", "WARNING", "second"),
        Line("transformers.example", "ERROR", "third"),
    )


def test_a_message_that_is_logged_once_is_collected_in_every_run():
    logger = transformers_logging.get_logger("transformers.example")

    def call() -> None:
        for _ in range(2):
            logger.warning_once("just once")

    runs = [observe(call, seed=0).lines for _ in range(2)]

    assert runs == [(Line("transformers.example", "WARNING", "just once"),)] * 2


def test_a_warning_about_compiling_is_left_out():
    with collected_lines() as lines:
        warnings.warn("Dynamo detected something", UserWarning, stacklevel=1)
    assert lines == []


def test_the_seed_decides_what_is_drawn():
    first, again, other = (observe(lambda: torch.rand(3), seed=seed).output for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_handlers_and_warnings_are_put_back_after_an_error():
    logger = logging.getLogger("transformers")
    before = (logger.handlers[:], warnings.showwarning)
    with pytest.raises(ZeroDivisionError):
        observe(lambda: 1 / 0, seed=0)
    assert (logger.handlers[:], warnings.showwarning) == before
