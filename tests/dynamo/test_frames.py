"""The frames that Dynamo is tracing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import frames
from bcmend.names import BUFFER, PREFIX


def _outermost() -> None: ...
def _outer() -> None: ...
def _inner() -> None: ...
def _generator() -> None: ...


def _frame(function: Any, parent: Any = None, **symbolic_locals: Any) -> Any:
    return SimpleNamespace(f_code=function.__code__, parent=parent, symbolic_locals=symbolic_locals)


@pytest.fixture
def traced() -> list[Any]:
    """Return the frames of a generator made in the outermost frame and resumed in an inner one."""
    outermost = _frame(_outermost, x=1, **{f"{PREFIX}hidden": 2})
    outer = _frame(_outer, outermost, y=3)
    inner = _frame(_inner, outer, z=4)
    generator = _frame(_generator, outermost)
    output = SimpleNamespace(_current_tx=[outermost, inner, generator], root_tx=outermost)
    for each in (outermost, outer, inner, generator):
        each.output = output
    return [generator, inner, outer, outermost]


def test_a_frame_and_those_around_it(traced: list[Any]) -> None:
    generator, inner, outer, outermost = traced
    assert list(frames.outwards(inner)) == [inner, outer, outermost]
    assert list(frames.outwards(generator)) == [generator, outermost]


def test_every_frame_that_waits_comes_once(traced: list[Any]) -> None:
    generator, inner, outer, outermost = traced
    assert list(frames.being_traced(generator)) == [generator, outermost, inner, outer]


def test_names_of_bcmend_hold_nothing_of_the_program(traced: list[Any]) -> None:
    assert sorted(frames.named(traced[0])) == [1, 3, 4]


def test_code_counts_until_all_who_added_it_have_removed_it(traced: list[Any]) -> None:
    generator = traced[0]
    codes = [_outer.__code__]
    assert frames.mark_over(generator) is None
    frames.add_code(codes, "one")
    frames.add_code(codes, "other")
    try:
        assert frames.mark_over(generator) == "one"
        frames.remove_code(codes, "one")
        assert frames.mark_over(generator) == "other"
    finally:
        frames.remove_code(codes, "other")
    assert frames.mark_over(generator) is None and _outer.__code__ not in frames._OURS


def test_a_frame_inside_of_patched_code_is_covered(traced: list[Any]) -> None:
    generator, inner, _, outermost = traced
    frames.add_code([_outer.__code__], "mark")
    try:
        assert frames.covers(inner)
        assert frames.covers(generator), "it is resumed inside of a patched frame"
        outermost.output._current_tx = []
        assert not frames.covers(outermost)
    finally:
        frames.remove_code([_outer.__code__], "mark")


def test_arguments_of_all_kinds() -> None:
    def program(one, /, two, *rest, three=1, **others):
        local = one
        return local

    assert frames.arguments_of(program.__code__) == ("one", "two", "three", "rest", "others")
    assert frames.arguments_of(_inner.__code__) == ()


@pytest.mark.parametrize("one_graph", [True, False])
@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("has_buffer", [True, False])
def test_what_ends_at_a_boundary(one_graph: bool, breaks: bool, has_buffer: bool) -> None:
    names = (BUFFER,) if has_buffer else ()
    root = SimpleNamespace(f_code=SimpleNamespace(co_varnames=names))
    tx: Any = SimpleNamespace(
        one_graph=one_graph,
        error_on_graph_break=not breaks,
        output=SimpleNamespace(root_tx=root),
    )
    assert frames.is_captured_whole(tx) is (one_graph or not breaks)
    assert frames.ends_at_a_boundary(tx) is (has_buffer and (one_graph or not breaks))


def test_a_value_lives_as_long_as_the_cleanups_of_the_compiled_code() -> None:
    tx: Any = SimpleNamespace(output=SimpleNamespace(cleanups=[]))
    value = object()
    frames.keep_with(tx, value)
    (cleanup,) = tx.output.cleanups
    assert value in cleanup.args
    cleanup()


def test_code_that_dynamo_has_not_made_is_its_own() -> None:
    assert frames.resumed(_inner.__code__) is _inner.__code__
    assert frames.with_lines(_inner.__code__) is _inner.__code__
