"""A site whose mending goes wrong half-way is withdrawn, and the frame is traced again."""

from __future__ import annotations

import pytest

from bcmend.dynamo import compat, frames
from bcmend.tracing.entry import error_barrier
from bcmend.tracing.entry.error_barrier import withdrawn_if_it_fails
from bcmend.tracing.search import log, strict
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites.body_states import Rewritten
from bcmend.tracing.sites.refusal import HalfWritten, Refusal
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation.arm_failures import BothRaise, Raised

CODE = (lambda: None).__code__


def _site() -> LiveSite:
    return LiveSite("tests.barrier", "branch", CODE)


def test_a_block_that_succeeds_leaves_the_site() -> None:
    site = _site()
    with withdrawn_if_it_fails(site):
        pass
    assert site.active


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (HalfWritten("a part stands in the graph\nmore"), "a part stands in the graph"),
        (Refusal("arms-differ", "of a list"), "of a list"),
        (ValueError("of a back end"), "ValueError: of a back end"),
        (ValueError(), "ValueError: "),
    ],
)
def test_a_failure_withdraws_the_site_and_restarts_the_trace(error: Exception, detail: str) -> None:
    site = _site()
    with pytest.raises(Falsified) as caught, withdrawn_if_it_fails(site):
        raise error
    assert caught.value.__cause__ is error
    assert (site.withdrawn, site.detail) == ("not-captured", detail)


@pytest.mark.parametrize(
    "error",
    [
        Falsified(),
        compat.SkipFrame("for a test"),
        BothRaise(Raised.LIKELY, "KeyError"),
        Rewritten(),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_has_a_place_to_go_passes(error: BaseException) -> None:
    site = _site()
    with pytest.raises(type(error)) as caught, withdrawn_if_it_fails(site):
        raise error
    assert caught.value is error
    assert site.active


def test_an_error_inside_bcmend_is_raised_in_strict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    site = _site()
    with pytest.raises(strict.InternalError), withdrawn_if_it_fails(site):
        site.is_like(None)  # type: ignore[arg-type]
    assert site.active


def test_code_that_is_left_alone_again_once_it_was_taken_up_is_traced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strict, "IS_ON", False)
    root = CODE.replace(co_name="root", co_qualname="root")
    for _ in range(2):
        with pytest.raises(Falsified), log.tracing(root):
            error_barrier._restart_without(root, ValueError("a fault"))
        assert frames.is_left_alone(root)
        frames.take_up_again()
    log.forget([root])
