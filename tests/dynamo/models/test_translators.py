"""Frames being traced, and what compiles a frame."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import compat
from bcmend.dynamo.models import translators


def test_the_function_of_a_frame() -> None:
    def inlined() -> None:
        """Stand for a function of a program."""

    frame = SimpleNamespace(funcvar=compat.UserFunctionVariable(inlined))
    assert translators.function_of(frame) is inlined
    assert translators.function_of(SimpleNamespace()) is None


def test_the_locals_that_have_a_value() -> None:
    class NullVariable:
        pass

    frame = SimpleNamespace(symbolic_locals={"gone": NullVariable(), "here": object()})
    assert translators.bound_locals(frame) == {"here"}


def test_the_model_of_no_value_has_the_name_that_is_looked_for() -> None:
    assert translators._UNBOUND in {
        each.__name__ for each in compat.VariableTracker.__subclasses__()
    }


def test_the_frame_of_a_generator() -> None:
    block = SimpleNamespace(with_context=None)
    frame = SimpleNamespace(block_stack=[block])
    generator = SimpleNamespace(inline_tracer=frame)
    assert translators.frame_of_generator(generator) is frame
    assert translators.blocks_of(frame) == [block]
    assert not translators.is_in_a_context_of_the_program(frame)


@pytest.mark.parametrize("is_exhausted", [False, True])
def test_the_end_of_a_generator(is_exhausted: bool) -> None:
    old = SimpleNamespace(inline_tracer=SimpleNamespace(generator_exhausted=is_exhausted))
    new = SimpleNamespace(
        inline_tracer=SimpleNamespace(), _frame_state_finished=lambda: is_exhausted
    )
    assert translators.is_exhausted(old) is translators.is_exhausted(new) is is_exhausted


@pytest.mark.parametrize(
    ("state", "handler", "runs_nothing"),
    [
        ("created", "", True),
        ("finished", "", True),
        ("suspended", "", True),
        ("suspended", "CALL_INTRINSIC_1", True),
        ("suspended", "PUSH_EXC_INFO", False),
        ("in a block", "", False),
        ("in another generator", "", False),
    ],
)
def test_what_runs_when_a_generator_is_closed(state: str, handler: str, runs_nothing: bool) -> None:
    entry = SimpleNamespace(target=SimpleNamespace(opname=handler, arg=None)) if handler else None
    generator = SimpleNamespace(
        inline_tracer=SimpleNamespace(
            current_instruction=SimpleNamespace(exn_tab_entry=entry),
            block_stack=[None] if state == "in a block" else [],
        ),
        _frame_state_created=lambda: state == "created",
        _frame_state_finished=lambda: state == "finished",
        pygen_yf=lambda: "a generator" if state == "in another generator" else None,
    )
    assert translators.runs_nothing_when_closed(generator) is runs_nothing


def test_a_context_manager_of_the_program() -> None:
    kind = compat.GenericContextWrappingVariable
    block = SimpleNamespace(with_context=kind.__new__(kind))
    assert translators.is_in_a_context_of_the_program(SimpleNamespace(block_stack=[block]))


def test_a_block_of_a_context_manager_that_is_left() -> None:
    frame = SimpleNamespace(active_generic_context_managers=["outer", "inner"])
    translators.leave_context(frame)
    assert frame.active_generic_context_managers == ["outer"]


def test_the_context_manager_that_an_operand_leaves() -> None:
    assert translators.context_left_by(SimpleNamespace(ctx=1)) == 1
    assert translators.context_left_by(SimpleNamespace()) is None


def test_a_compiler_of_frames_has_the_one_behind_it() -> None:
    inner: Any = SimpleNamespace(_one_graph=True)
    outer = translators.FrameCompiler(inner)
    assert outer.compiler is inner
    assert translators.wants_one_graph(outer)
    assert not translators.wants_one_graph(translators.FrameCompiler(SimpleNamespace()))


def test_verdicts_on_frames_and_functions() -> None:
    found = translators.skipped("a test")
    assert found.skip_reason == "a test" and found.guarded_code is None
    assert not found.apply_to_code


def test_functions_may_be_inlined_in_one_trace() -> None:
    verdicts: dict[Any, Any] = {}
    context = SimpleNamespace(previously_inlined_functions=verdicts)
    tx: Any = SimpleNamespace(output=SimpleNamespace(tracing_context=context))
    code = test_verdicts_on_frames_and_functions.__code__
    translators.have_inlined(tx, code, "a test")
    assert not verdicts[code].skipped and verdicts[code].reason == "a test"
    translators.have_inlined(tx, code, "another")
    assert verdicts[code].reason == "a test"
