"""The answers of the patcher while nothing is patched, and the one that replaces it."""

from __future__ import annotations

from typing import Any

import pytest

from bcmend.patching.retrace import Retracer
from bcmend.tracing.sites.session import SESSION, Patcher, Session


def _function() -> None:
    pass


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("mend_where_stopped", ([],)), ("split_where_read", ([], None)), ("mask_loop", ([],))],
)
def test_nothing_is_mended_while_nothing_is_patched(name: str, arguments: tuple[Any, ...]) -> None:
    assert getattr(Patcher(), name)(*arguments) is False


def test_an_attribute_counts_as_named_while_nothing_is_known_of_the_code() -> None:
    assert Patcher().is_named_elsewhere("weight", _function.__code__)


def test_code_is_as_it_was_written_while_nothing_is_patched() -> None:
    assert Patcher().as_written(_function) is _function.__code__


def test_the_part_that_patches_answers_for_the_session_of_this_process() -> None:
    assert isinstance(SESSION.patcher, Retracer)


def test_sessions_share_no_tables() -> None:
    one, other = Session(), Session()
    assert type(one.patcher) is Patcher
    assert one.sites is not other.sites
    assert one.bodies is not other.bodies


def test_the_retracer_answers_every_question() -> None:
    questions = {name for name in vars(Patcher) if not name.startswith("_")}
    assert questions <= vars(Retracer).keys()
