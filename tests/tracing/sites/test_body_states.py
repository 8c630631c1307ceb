"""What is tried, and in which order, when a mended body does not compile."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import compat
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import body_states, site_table
from bcmend.tracing.sites.body_states import BodyState, Rewritten, Stop
from bcmend.tracing.sites.live_state import TRUTHS_AT_MOST, TURNS_AT_MOST
from bcmend.tracing.sites.session import SESSION, Patcher
from bcmend.tracing.sites.site_table import LiveSite

CODE = (lambda: None).__code__


class _Patcher(Patcher):
    """Mends whatever it is asked to, if it ``can``, and notes where."""

    def __init__(self, *, can: bool) -> None:
        self.can = can
        self.asked: list[Sequence[Stop]] = []

    def mend_where_stopped(self, stops: Sequence[Stop]) -> bool:
        self.asked.append(stops)
        return self.can

    def split_where_read(self, stops: Sequence[Stop], site: LiveSite | None) -> bool:
        return self.mend_where_stopped(stops)

    def mask_loop(self, stops: Sequence[Stop]) -> bool:
        return self.mend_where_stopped(stops)


@pytest.fixture
def patcher(monkeypatch: pytest.MonkeyPatch) -> _Patcher:
    made = _Patcher(can=True)
    monkeypatch.setattr(SESSION, "patcher", made)
    return made


def _code() -> CodeType:
    return CODE.replace(co_name="body")


def _tracer(code: CodeType, **attributes: Any) -> Any:
    """Return a frame with ``code``, which no other has called."""
    instruction = SimpleNamespace(opname="LOAD_FAST", arg=0, positions=(3, 3, 1, 2))
    tx = SimpleNamespace(f_code=code, current_instruction=instruction, parent=None, **attributes)
    tx.f_globals = {}
    tx.output = SimpleNamespace(root_tx=tx)
    return tx


@pytest.fixture(autouse=True)
def _no_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_states.frames, "outwards", lambda tx: iter([tx]))


# States


def test_a_body_is_captured_whole_until_that_has_failed_and_other_code_never() -> None:
    body, piece, unknown = _code(), _code(), _code()
    assert not body_states.state_of(body, is_body=True).may_break
    assert body_states.state_of(piece).may_break
    assert [body_states.may_break(code) for code in (body, piece, unknown)] == [False, True, True]


def test_states_go_by_identity_for_equal_code_of_two_modules_is_not_the_same() -> None:
    one, other = _code(), _code()
    assert one == other
    assert body_states.state_of(one) is body_states.state_of(one)
    assert body_states.state_of(one) is not body_states.state_of(other)


def test_numbers_are_left_only_once_and_only_if_some_were_taken() -> None:
    state = BodyState("body", True)
    assert not state.leave_numbers()
    assert state.holds(Claim.NUMBERS)
    state.takes_numbers = True
    assert state.leave_numbers()
    assert not state.holds(Claim.NUMBERS)
    assert not state.leave_numbers()
    assert not state.holds(Claim.NUMBERS)


def test_the_next_try_calls_the_newer_code_with_all_that_the_body_has() -> None:
    def outer(captured: int) -> Any:
        def body(x: int = 2) -> int:
            return x + captured

        return body

    body = outer(5)
    assert BodyState("body", True).replacement(body) is body
    newer = body.__code__.replace(co_name="newer")
    made = BodyState("body", True, newer=newer).replacement(body)
    assert isinstance(made, FunctionType)
    assert made.__code__ is newer
    assert made() == 7


# Tries


def test_conditions_in_front_are_counted_on_where_a_body_is_written_anew() -> None:
    state = BodyState("body", True, is_asked_for=True)
    for number in range(TRUTHS_AT_MOST):
        state.noted_truths.append((f"truth {number}", f"site {number}"))
        assert state.have_truth()
        newer = BodyState("body", True, is_asked_for=True)
        newer.take_numbers_of(state)
        state = newer
    state.noted_truths.append(("one more", "another site"))
    assert not state.have_truth()
    assert len(state.slices) == TRUTHS_AT_MOST
    state.noted_truths.append(("another turn", "site 0"))
    assert state.have_truth()
    assert state.slices[-1] == "another turn"


def test_few_conditions_are_computed_in_front_unless_one_graph_is_asked_for() -> None:
    state = BodyState("body", True)
    for turn in range(TRUTHS_AT_MOST - 1):
        state.noted_truths.append((f"turn {turn}", "site"))
        assert state.have_truth()
    assert state.may_try("site")
    state.tried.append(("one more", "site"))
    state.noted_truths.append(("another", "site"))
    assert not state.may_try("site") and not state.have_truth()
    state.is_asked_for = True
    assert state.may_try("site") and state.have_truth()


def test_what_a_trace_has_gone_by_is_computed_in_front_all_at_once() -> None:
    state = BodyState("body", True, is_asked_for=True)
    assert not state.have_tried()
    for turn in range(TURNS_AT_MOST):
        assert state.may_try("site")
        state.tried.append((f"turn {turn}", "site"))
    assert not state.may_try("site")
    assert state.may_try("another site")
    with pytest.raises(Rewritten):
        body_states.have_tried(state)
    assert len(state.slices) == TURNS_AT_MOST
    assert not state.may_try("site")
    body_states.have_tried(state)  # nothing is new


def test_no_trace_of_a_body_that_may_break_goes_by_what_it_is_given() -> None:
    state = BodyState("body", True)
    body_states.let_break(state, "")
    assert not state.may_try("site")


def _try(state: BodyState, error: Any) -> body_states.Next:
    return body_states.next_try(state, state.generation, error)


def test_a_graph_break_that_cannot_be_mended_may_break_from_then_on(patcher: _Patcher) -> None:
    state = BodyState("body", True)
    assert _try(state, compat.Unsupported("stop")) is body_states.Next.AGAIN
    assert not state.may_break
    patcher.can = False
    assert _try(state, compat.Unsupported("stop")) is body_states.Next.AGAIN
    assert state.may_break


def test_code_that_has_changed_is_tried_again_without_more_changes(patcher: _Patcher) -> None:
    state = BodyState("body", True, takes_numbers=True)
    assert _try(state, Rewritten()) is body_states.Next.AGAIN
    assert _try(state, Rewritten()) is body_states.Next.AGAIN
    assert patcher.asked == []
    assert (state.may_break, state.takes_numbers) == (False, True)


def test_another_failure_costs_first_the_numbers_then_the_sites_then_the_graph(
    patcher: _Patcher,
) -> None:
    state, error = BodyState("body", True, takes_numbers=True), IndexError("in the back end")
    site = LiveSite("tests.recent", "branch", CODE)
    site_table.clear_recent()
    site.mended("where")
    assert _try(state, error) is body_states.Next.AGAIN
    assert not state.holds(Claim.NUMBERS)
    assert (site.active, state.may_break) == (True, False)
    assert _try(state, error) is body_states.Next.AGAIN
    assert (site.withdrawn, site.detail) == ("not-captured", "IndexError: in the back end")
    assert not state.may_break
    assert _try(state, error) is body_states.Next.AGAIN
    assert state.may_break
    assert patcher.asked == []


def test_another_thread_that_met_the_same_failure_changes_nothing(patcher: _Patcher) -> None:
    state = BodyState("body", True, generation=4)
    stop = compat.Unsupported("stop")
    assert body_states.next_try(state, 3, stop) is body_states.Next.AGAIN
    assert (state.findings, state.generation, patcher.asked) == ({}, 4, [])


def test_a_call_that_sets_something_up_runs_plainly_once_between_two_captures(
    patcher: _Patcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    patcher.can = False
    monkeypatch.setattr(body_states, "_sets_up", lambda stops: True)
    state, stop = BodyState("body", True), compat.Unsupported("stop")
    assert _try(state, stop) is body_states.Next.PLAINLY
    body_states.note_captured(state)
    assert _try(state, stop) is body_states.Next.PLAINLY
    assert not state.may_break
    assert _try(state, stop) is body_states.Next.AGAIN
    assert state.may_break


def test_code_that_asks_whether_it_is_compiled_is_told_no_once_nothing_is_set_up(
    patcher: _Patcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    patcher.can = False
    monkeypatch.setattr(body_states, "_sets_up", lambda stops: True)
    state, stop = BodyState("body", True), compat.Unsupported("stop")
    state.asks_whether_compiled = True
    assert _try(state, stop) is body_states.Next.PLAINLY
    assert Claim.COMPILED_PATH not in {claim for claim, *_ in state.findings}
    assert _try(state, stop) is body_states.Next.AGAIN
    assert Claim.COMPILED_PATH in {claim for claim, *_ in state.findings}
    assert not state.may_break


# Changes while code is being traced


@pytest.mark.parametrize(
    "ask", [body_states.mask_loop, lambda tx: body_states.split_where_read(tx, None)]
)
def test_code_that_was_rewritten_is_traced_anew(patcher: _Patcher, ask: Any) -> None:
    code = _code()
    body_states.state_of(code, is_body=True)
    with pytest.raises(Rewritten):
        ask(_tracer(code))
    ((stop,),) = patcher.asked
    assert stop == Stop(None, code, (3, 3, 1, 2), "LOAD_FAST")
    patcher.can = False
    ask(_tracer(code))


def test_code_that_may_break_is_not_rewritten_while_it_is_traced(patcher: _Patcher) -> None:
    code = _code()
    body_states.state_of(code)
    body_states.mask_loop(_tracer(code, one_graph=False))
    assert patcher.asked == []


def test_the_function_of_a_frame_is_named_where_it_is_known(patcher: _Patcher) -> None:
    code = _code()
    body_states.state_of(code, is_body=True)
    variable = SimpleNamespace(fn=test_code_that_was_rewritten_is_traced_anew)
    with pytest.raises(Rewritten):
        body_states.mask_loop(_tracer(code, funcvar=variable))
    assert patcher.asked[0][0].function is variable.fn


@pytest.mark.parametrize(
    ("one_graph", "breaks_are_errors", "is_body", "is_mended"),
    [
        (True, False, True, True),
        (False, True, True, True),
        (False, False, True, False),
        (True, False, False, False),
    ],
)
def test_what_an_arm_stopped_at_is_mended_where_a_boundary_waits(
    patcher: _Patcher, one_graph: bool, breaks_are_errors: bool, is_body: bool, is_mended: bool
) -> None:
    code, error = _code(), compat.Unsupported("stop")
    body_states.state_of(code, is_body=is_body)
    tx = _tracer(code, one_graph=one_graph, error_on_graph_break=breaks_are_errors)
    if is_mended:
        with pytest.raises(Rewritten) as caught:
            body_states.mend_inside(tx, error)
        assert caught.value.__cause__ is error
    else:
        body_states.mend_inside(tx, error)
    assert len(patcher.asked) == is_mended


def test_no_exception_of_dynamos_own_is_taken_for_the_wish_to_trace_anew() -> None:
    assert not issubclass(Rewritten, Exception)


# Messages


def test_a_summary_has_the_first_two_lines_that_are_not_empty() -> None:
    error = ValueError("\n  backend failed\n\n  because of this \nand more\n")
    assert body_states.summary(error) == "ValueError: backend failed because of this"
    assert body_states.summary(KeyError()) == "KeyError: "
