"""The callers of a frame being traced: inlined functions, and the frames of a module call."""

from __future__ import annotations

from types import CodeType, SimpleNamespace
from typing import Any

from bcmend.delivery.callers import CallerFrame
from bcmend.names import BUFFER, FUNCTION
from bcmend.tracing.output import caller_frames


def _forward() -> None:
    pass


def _caller() -> None:
    pass


def _with_argument(name: str) -> CodeType:
    code = (lambda x: x).__code__
    return code.replace(co_varnames=(name,))


def _frame(code: CodeType, line: int, parent: Any = None, modules: tuple[str, ...] = ()) -> Any:
    positions = SimpleNamespace(lineno=line)
    return SimpleNamespace(
        f_code=code,
        f_globals=globals(),
        parent=parent,
        lineno=line,
        current_instruction=SimpleNamespace(positions=positions),
        nn_module_stack=dict.fromkeys(modules),
    )


def test_regions_and_bodies_are_parts_of_the_function_that_calls_them() -> None:
    assert caller_frames.is_a_part(_with_argument(FUNCTION))
    assert caller_frames.is_a_part(_with_argument(BUFFER))
    assert not caller_frames.is_a_part(_with_argument("x"))


def test_a_local_of_such_a_name_is_no_argument() -> None:
    code = _with_argument("x")
    assert not caller_frames.is_a_part(
        code.replace(co_varnames=("x", FUNCTION), co_nlocals=code.co_nlocals + 1)
    )


def test_a_frame_calls_a_module_if_it_has_entered_one_that_its_parent_has_not() -> None:
    outer = _frame(_caller.__code__, 1, modules=("model",))
    assert caller_frames.calls_a_module(outer)
    assert not caller_frames.calls_a_module(_frame(_forward.__code__, 1, outer, ("model",)))
    assert caller_frames.calls_a_module(_frame(_forward.__code__, 1, outer, ("model", "layer")))


def test_the_callers_are_those_of_the_program_innermost_first() -> None:
    root = _frame(_caller.__code__, 10)
    middle = _frame(_forward.__code__, 20, root)
    inner = _frame(_forward.__code__, 30, middle)
    expected = [
        CallerFrame(_forward.__code__, globals(), 20),
        CallerFrame(_caller.__code__, globals(), 10),
    ]
    assert list(caller_frames._inlined(inner)) == expected


def test_a_part_is_not_shown_beside_the_function_that_it_is_of() -> None:
    root = _frame(_caller.__code__, 10)
    region = _frame(_with_argument(FUNCTION), 20, root)
    assert list(caller_frames._inlined(region)) == []


def test_between_a_module_and_its_forward_are_the_frames_of_torch() -> None:
    root = _frame(_caller.__code__, 10, modules=("model",))
    found = list(caller_frames._inlined(_frame(_forward.__code__, 20, root, ("model",))))
    names = [each.code.co_name for each in found]
    assert names == ["_call_impl", "_wrapped_call_impl", "_caller"]


def test_a_frame_of_torch_that_dynamo_traces_is_shown_once() -> None:
    wrapped, _ = caller_frames.CALLING_A_MODULE
    root = _frame(_caller.__code__, 10, modules=("model",))
    found = list(caller_frames._inlined(_frame(wrapped, 20, root, ("model",))))
    assert [each.code.co_name for each in found] == ["_caller"]


def test_the_place_of_a_module_call_is_where_torch_makes_it() -> None:
    for code, at in caller_frames.calls_of_a_module():
        lines = [line for _, _, line in code.co_lines() if line is not None]
        assert at.lineno in lines
