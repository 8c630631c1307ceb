"""In which mode patched code is captured, told from the frames that Dynamo traces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.names import BUFFER
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import body_states, capture_mode


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a maker of a traced frame called by a root frame; each may have a buffer."""

    def made(*, inner: bool, root: bool, one_graph: bool, breaks_are_errors: bool = True) -> Any:
        code = (lambda: None).__code__.replace(co_name="root")
        outer = SimpleNamespace(symbolic_locals={BUFFER: object()} if root else {}, f_code=code)
        tx = SimpleNamespace(
            symbolic_locals={BUFFER: object()} if inner else {},
            one_graph=one_graph,
            error_on_graph_break=breaks_are_errors,
            output=SimpleNamespace(root_tx=outer),
        )
        monkeypatch.setattr(capture_mode.frames, "outwards", lambda _: iter([tx, outer]))
        return tx

    return made


def test_code_that_is_not_mended_is_left_to_dynamo(frames: Any) -> None:
    assert not capture_mode.in_mended_code(frames(inner=False, root=False, one_graph=True))


def test_one_graph_may_begin_outside_of_mended_code(frames: Any) -> None:
    tx = frames(inner=True, root=False, one_graph=True)
    assert capture_mode.in_mended_code(tx)
    assert not capture_mode.may_assert(tx)  # no boundary could make the call again


def test_the_body_of_a_boundary_is_captured_whole_if_breaks_are_errors(frames: Any) -> None:
    assert capture_mode.may_assert(frames(inner=True, root=True, one_graph=False))
    tx = frames(inner=True, root=True, one_graph=False, breaks_are_errors=False)
    assert not capture_mode.in_mended_code(tx)


def test_a_piece_behind_a_break_is_not_captured_whole(frames: Any) -> None:
    assert not capture_mode.in_mended_code(frames(inner=True, root=False, one_graph=False))


def test_a_body_that_leaves_its_numbers_counts_only_where_one_graph_was_asked_for(
    frames: Any,
) -> None:
    for one_graph in (True, False):
        tx = frames(inner=True, root=True, one_graph=one_graph)
        weaken(Finding(Claim.NUMBERS, body_states.state_of(tx.output.root_tx.f_code)))
        assert capture_mode.in_mended_code(tx) is one_graph
