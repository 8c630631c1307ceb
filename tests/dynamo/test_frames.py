"""The frames that Dynamo is tracing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.dynamo import frames
from bcmend.names import BUFFER, PREFIX
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Root


def _outermost() -> None: ...
def _outer() -> None: ...
def _inner() -> None: ...
def _generator() -> None: ...


def _frame(function: Any, parent: Any = None, **symbolic_locals: Any) -> Any:
    return SimpleNamespace(
        f_code=function.__code__,
        parent=parent,
        symbolic_locals=symbolic_locals,
        stack=[],
        block_stack=[],
    )


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
    edges = [edge for frame in frames.being_traced(traced[0]) for edge in roots._of_frame(frame)]
    held = [each.value for each in edges if each.root is Root.LOCAL and not each.is_of_bcmend]
    assert sorted(held) == [1, 3, 4]


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


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    """A function in two pieces for numbers above 9, in one below."""

    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        x = x + number
        if number > 9:
            torch._dynamo.graph_break()
        return x * 2

    torch._dynamo.reset()
    with torch._dynamo.config.patch(specialize_int=True, recompile_limit=2):
        yield torch.compile(program, backend="eager")
    torch._dynamo.reset()


def _compiled_times(call: Callable[..., Any], *numbers: int) -> int:
    counters = torch._dynamo.utils.counters
    before = counters["stats"]["unique_graphs"]
    for number in numbers:
        assert torch.equal(call(torch.ones(2), number), torch.full((2,), 2.0 * (number + 1)))
    return counters["stats"]["unique_graphs"] - before


def test_what_is_forgotten_is_compiled_anew_and_counts_for_nothing(
    compiled: Callable[..., Any],
) -> None:
    code = compiled._torchdynamo_orig_callable.__code__
    assert _compiled_times(compiled, 1, 2, 1, 2) == 2
    assert _compiled_times(compiled, 3) == 0  # the limit is reached
    for _ in range(3):
        frames.forget(code, "told to")
        assert _compiled_times(compiled, 1, 2, 1, 2) == 2


def test_what_was_captured_whole_stays(compiled: Callable[..., Any]) -> None:
    code = compiled._torchdynamo_orig_callable.__code__
    assert _compiled_times(compiled, 1, 10) == 3
    frames.forget(code, "told to", only_pieces=True)
    assert _compiled_times(compiled, 1) == 0
    assert _compiled_times(compiled, 10) == 1  # the second piece is there


def test_a_thread_may_be_at_guards_that_are_forgotten(compiled: Callable[..., Any]) -> None:
    code = compiled._torchdynamo_orig_callable.__code__
    _compiled_times(compiled, 1)
    (entry,) = frames.compat._debug_get_cache_entry_list(code)
    root, manager = entry.guard_manager.root, weakref.ref(entry.guard_manager)

    def forgets(_: object) -> bool:
        frames.forget(code, "told to")
        gc.collect()
        return True

    root.add_lambda_guard(forgets, ["forgets"], None)
    del root, entry
    assert _compiled_times(compiled, 1) == 1
    assert manager() is not None
