"""Code is mended further where a trace has stopped in it; the stops are made here by hand."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.bytecode.decode import unfused
from bcmend.patching import retrace
from bcmend.patching.installer import install, owned_by, remove
from bcmend.patching.reach import Reached
from bcmend.patching.retrace import Retracer
from bcmend.patching.table import TABLE, Patched
from bcmend.policy import DEFAULT
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import body_states, site_table
from bcmend.tracing.sites.body_states import Stop

RETRACER = Retracer()


def _places(claim: Claim, code: CodeType) -> set[int]:
    """Return the offsets in code of which a claim does not hold."""
    return {offset for identity, offset in TABLE.seen(claim) if identity == id(code)}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    remove()
    yield
    remove()


def _function(source: str, **scope: Any) -> FunctionType:
    scope.setdefault("__name__", "user.module")
    exec(f"def function(x, y=None):\n    {source}", scope)
    found: FunctionType = scope["function"]
    return found


def _stop(function: FunctionType, opname: str, code: CodeType | None = None, at: int = 0) -> Stop:
    """Return a stop in ``code`` at an instruction of ``function``, the ``at``-th of its name."""
    instructions = unfused(function.__code__)
    found = [each for each in instructions if each.opname.startswith(opname)]
    positions = found[at].positions
    assert positions is not None
    code = code or function.__code__
    return Stop(function, code, tuple(positions), found[at].opname)


def _patched(source: str = "return x + 1 if x.sum() > 0 else x - 1") -> tuple[Patched, Stop]:
    """Return a patched function, and a stop at the jump in its body."""
    function = _function(source)
    stop = _stop(function, "POP_JUMP")
    install([Reached(function, "")], DEFAULT, owner=1)
    patched = TABLE.of(function)
    assert patched is not None
    _KEPT.append(function)
    return patched, Stop(None, patched.mended.body, stop.position, stop.opname)


def _with_nothing_to_mend() -> Stop:
    """Return a stop in patched code at which nothing more can be mended."""
    patched, stop = _patched()
    return Stop(None, patched.mended.body, (99, 99, 0, 1), stop.opname)


_KEPT: list[FunctionType] = []


# Places


def test_the_jumps_at_a_stop_are_those_at_its_source_position() -> None:
    function = _function("if x: return 1\n    if y: return 2")
    first, second = (_stop(function, "POP_JUMP", at=each) for each in (0, 1))
    code = function.__code__
    (one,), (other,) = (retrace._jumps_at(code, each) for each in (first, second))
    assert one < other
    assert all("IF_FALSE" in dis.opname[code.co_code[each]] for each in (one, other))
    assert retrace._jumps_at(code, _stop(function, "RETURN")) == set()


def test_a_read_is_found_by_the_name_of_the_instruction() -> None:
    function = _function("return x[y]")
    stop = _stop(function, "BINARY_SUBSCR")
    (offset,) = retrace._reads_at(function.__code__, stop)
    code = unfused(function.__code__)
    assert next(each.opname for each in code if each.offset == offset) == "BINARY_SUBSCR"


def test_a_read_under_another_name_is_the_last_instruction_at_the_place() -> None:
    function = _function("return x[y]")
    stop = _stop(function, "BINARY_SUBSCR")
    other = Stop(function, function.__code__, stop.position, "SOMETHING_OF_DYNAMO")
    assert retrace._reads_at(function.__code__, other) == retrace._reads_at(function.__code__, stop)


def test_a_jump_on_none_is_found_by_the_comparison_that_dynamo_makes_of_it() -> None:
    function = _function("return 1 if x is None else 2")
    stop = _stop(function, "POP_JUMP")
    made = Stop(function, function.__code__, stop.position, "IS_OP")
    (offset,) = retrace._reads_at(function.__code__, made)
    assert dis.opname[function.__code__.co_code[offset]].startswith("POP_JUMP")


def test_nothing_is_read_at_another_place() -> None:
    function = _function("return x[y]")
    assert retrace._reads_at(function.__code__, Stop(None, function.__code__, (99, 99, 0, 1))) == (
        set()
    )


@pytest.mark.parametrize(
    ("source", "is_noted"), [("x(y)", True), ("return x(y)", True), ("y = x(y)", False)]
)
def test_only_a_call_whose_result_is_not_used_is_noted(source: str, is_noted: bool) -> None:
    function = _function(source)
    stop = _stop(function, "CALL")
    assert retrace._note_call(function.__code__, stop) is is_noted
    assert not retrace._note_call(function.__code__, stop)
    assert len(_places(Claim.WRITES_NOTHING, function.__code__)) == is_noted


def test_a_stop_at_no_call_notes_none() -> None:
    function = _function("x(y)")
    stop = _stop(function, "CALL")
    assert not retrace._note_call(
        function.__code__, Stop(function, function.__code__, stop.position, "LOAD_FAST")
    )


# Questions of a trace


def test_nothing_is_mended_unless_patched_code_is_on_the_stack() -> None:
    function = _function("return 1 if x else 2")
    stop = _stop(function, "POP_JUMP")
    assert not RETRACER.mend_where_stopped([stop])
    assert not RETRACER.split_where_read([stop], None)
    assert not RETRACER.mask_loop([stop])
    assert TABLE.of(function) is None


def test_a_function_that_was_not_found_is_mended_in_the_callers_name() -> None:
    patched, outer = _patched()
    patched.owners.add(2)
    function = _function("return x if x.sum() > 0 else -x")
    assert RETRACER.mend_where_stopped([_stop(function, "POP_JUMP"), outer])
    assert function in owned_by(1)
    assert function in owned_by(2)


def test_a_jump_that_did_not_look_like_one_on_a_tensor_is_mended_once_a_trace_stops_there() -> None:
    _, outer = _patched()
    function = _function("return 1 if len(x) > 3 else 2")
    code, stop = function.__code__, _stop(function, "POP_JUMP")
    assert install([Reached(function, "")], DEFAULT, owner=1) == 0
    assert RETRACER.mend_where_stopped([stop, outer])
    assert _places(Claim.DECIDED, code) == retrace._jumps_at(code, stop)
    assert owned_by(1)[-1] is function


def test_a_stop_where_there_is_nothing_to_mend_changes_nothing() -> None:
    _, outer = _patched()
    function = _function("return x + 1")
    assert not RETRACER.mend_where_stopped([_stop(function, "BINARY_OP"), outer])
    assert TABLE.of(function) is None


def test_code_that_no_policy_touches_is_not_mended() -> None:
    _, outer = _patched()
    function = _function("return x if x.sum() > 0 else -x", __name__="torch.nn.functional")
    assert not RETRACER.mend_where_stopped([_stop(function, "POP_JUMP")])
    RETRACER.mend_where_stopped([_stop(function, "POP_JUMP"), outer])
    assert TABLE.of(function) is None


def test_the_innermost_frame_comes_first() -> None:
    _, outer = _patched()
    inner, middle = (_function("return x if x.sum() > 0 else -x") for _ in range(2))
    stops = [_stop(inner, "POP_JUMP"), _stop(middle, "POP_JUMP"), outer]
    assert RETRACER.mend_where_stopped(stops)
    assert (TABLE.of(inner) is None, TABLE.of(middle) is None) == (False, True)


def test_a_coroutine_is_not_mended() -> None:
    scope: dict[str, Any] = {"__name__": "user.module"}
    exec("async def function(x):\n    return x if x.sum() > 0 else -x", scope)
    function = scope["function"]
    assert not RETRACER.mend_where_stopped([_stop(function, "POP_JUMP"), _with_nothing_to_mend()])
    assert TABLE.of(function) is None


def test_the_code_of_a_split_function_has_a_successor() -> None:
    patched, _ = _patched("y = 1 if x.sum() > 0 else None\n    return x + y")
    function, old = _KEPT[-1], patched.mended.body
    stop = _stop_of(patched, "BINARY_OP")
    assert RETRACER.split_where_read([stop], None)
    fresh = TABLE.of(function)
    assert fresh is not None
    assert fresh.mended.body is not old
    assert body_states.state_of(old, is_body=True).newer is fresh.mended.body
    assert function.__code__ is fresh.mended.shell
    # Frames that run the old code still belong to the function.
    assert old in fresh.written
    # The same place once more is no change.
    assert not RETRACER.split_where_read([stop], None)


def _stop_of(patched: Patched, opname: str) -> Stop:
    """Return a stop in the body of a patched function, at an instruction of its original."""
    made = FunctionType(patched.original, {}, closure=None)
    stop = _stop(made, opname)
    return Stop(None, patched.mended.body, stop.position, stop.opname)


def test_code_is_not_split_for_a_site_of_its_own_whose_wider_forms_are_untried() -> None:
    patched, _ = _patched("y = 1 if x.sum() > 0 else None\n    return x + y")
    site = site_table.find(patched.mended.sites[0][1].name)
    assert site is not None
    stop = _stop_of(patched, "BINARY_OP")
    assert not RETRACER.split_where_read([stop], site)
    assert not _places(Claim.WHOLE_CODE, patched.original)
    weaken(Finding(Claim.JOINED, site))
    assert RETRACER.split_where_read([stop], site)


def test_a_loop_is_rewritten_in_the_innermost_frame_alone() -> None:
    _, outer = _patched()
    loop = _function("for each in x: y = y + each\n    return y")
    stop = _stop(loop, "FOR_ITER")
    assert not RETRACER.mask_loop([outer, stop])
    assert RETRACER.mask_loop([stop, outer])
    assert not _places(Claim.ALL_TURNS, loop.__code__)  # that is the shell by now
    patched = TABLE.of(loop)
    assert patched is not None
    assert _places(Claim.ALL_TURNS, patched.original)


def test_the_loop_of_a_generator_is_left_as_it_is() -> None:
    _, outer = _patched()
    loop = _function("for each in x: yield each")
    assert not RETRACER.mask_loop([_stop(loop, "FOR_ITER"), outer])
    assert TABLE.of(loop) is None


# Other forms of a site


def test_a_branch_is_widened_once_its_arms_turned_out_to_differ() -> None:
    patched, stop = _patched("y = 1 if x.sum() > 0 else None\n    return x if y is None else -x")
    site = site_table.find(patched.mended.sites[0][1].name)
    assert site is not None
    assert retrace._to_be_widened(patched.mended, patched.original) == set()
    site.refuse("arms-differ")
    offsets = retrace._to_be_widened(patched.mended, patched.original)
    assert offsets == {patched.mended.sites[0][1].offset}
    before = retrace._forms(patched.mended)
    assert RETRACER.mend_where_stopped([stop])
    assert _places(Claim.NARROW, patched.original) == offsets
    fresh = TABLE.of(_KEPT[-1])
    assert fresh is not None
    assert retrace._forms(fresh.mended) > before


def test_a_branch_that_a_phi_of_was_read_goes_on_in_halves_only_once() -> None:
    patched, _ = _patched()
    site = site_table.find(patched.mended.sites[0][1].name)
    assert site is not None
    assert not retrace._go_on_in_halves(patched.mended, patched.original)
    weaken(Finding(Claim.READ_APART, site, 0))
    assert retrace._go_on_in_halves(patched.mended, patched.original)
    assert site.holds(Claim.READ_APART, 0) and not site.holds(Claim.JOINED)
    weaken(Finding(Claim.READ_APART, site, 0))
    assert not retrace._go_on_in_halves(patched.mended, patched.original)


def test_questions_about_code_are_answered_from_the_table() -> None:
    patched, _ = _patched()
    function = _KEPT[-1]
    assert RETRACER.as_written(function) is patched.original
    assert not RETRACER.is_named_elsewhere("sum", patched.original)
    other = _function("return x.sum()")
    install([Reached(function, ""), Reached(other, "")], DEFAULT, owner=1)
    assert RETRACER.is_named_elsewhere("sum", patched.original)


def test_what_only_a_generator_calls_is_not_looked_for() -> None:
    _, outer = _patched()
    helper = _function("return x if x.sum() > 0 else -x")
    function = _function("yield helper(x) if x.sum() > 0 else None", helper=helper)
    assert RETRACER.mend_where_stopped([_stop(function, "POP_JUMP"), outer])
    assert TABLE.of(function) is not None
    assert TABLE.of(helper) is None


def test_only_the_branches_of_the_code_itself_go_on_in_halves() -> None:
    patched, _ = _patched()
    site = site_table.find(patched.mended.sites[0][1].name)
    assert site is not None
    weaken(Finding(Claim.READ_APART, site, 0))
    assert not retrace._go_on_in_halves(patched.mended, _function("return x").__code__)
    assert site.all_found(Claim.READ_APART) == [0]
