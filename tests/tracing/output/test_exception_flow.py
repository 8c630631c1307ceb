"""What a trace knows of an exception on its way through frames."""

from __future__ import annotations

from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from torch._dynamo.exc import ObservedException, raise_observed_exception
from torch._dynamo.variables import ConstantVariable, ExceptionVariable
from torch._dynamo.variables.functions import UserFunctionVariable

from bcmend.names import FUNCTION
from bcmend.tracing.output import exception_flow
from bcmend.tracing.output.exception_flow import ExceptionFacts


def _function() -> None:
    pass


def _raising() -> ObservedException:
    """Return a signal that was raised by a frame of this file."""
    try:
        raise ObservedException("signal")
    except ObservedException as signal:
        return signal


def _error(kind: type[BaseException] = ValueError, *args: object) -> ExceptionVariable:
    return ExceptionVariable(kind, tuple(map(ConstantVariable.create, args)), {})


def _frame(opname: str, arg: int | None = 1, *, code: CodeType | None = None, line: int = 7) -> Any:
    positions = SimpleNamespace(lineno=line, end_lineno=line, col_offset=1, end_col_offset=2)
    return SimpleNamespace(
        current_instruction=SimpleNamespace(opname=opname, arg=arg, positions=positions),
        f_code=code or _function.__code__,
        f_globals=globals(),
        exn_vt_stack=[],
        parent=None,
        output=SimpleNamespace(),
    )


KNOWN = ExceptionFacts((), is_exact=True, has_known_text=True)


def _lines(known: ExceptionFacts) -> list[int]:
    return [entry.place[0] for entry in known.entries]


def test_a_raise_of_the_program_is_known_with_its_place() -> None:
    known = exception_flow._with_frame(_frame("RAISE_VARARGS"), _error(), _raising(), None)
    assert (_lines(known), known.is_exact, known.has_known_text) == ([7], True, True)


def test_each_frame_adds_an_entry_in_front() -> None:
    caller, callee = _frame("CALL", line=3), _frame("RAISE_VARARGS", line=7)
    callee.parent = caller
    error, signal = _error(), _raising()
    first = exception_flow._with_frame(callee, error, signal, None)
    left = ExceptionFacts(first.entries, first.is_exact, first.has_known_text, left=callee)
    known = exception_flow._with_frame(caller, error, signal, left)
    assert (_lines(known), known.is_exact) == ([3, 7], True)


def test_an_entry_is_not_exact_where_the_frame_did_not_call_the_one_behind_it() -> None:
    stranger = _frame("RAISE_VARARGS")
    left = ExceptionFacts((), is_exact=True, has_known_text=True, left=stranger)
    known = exception_flow._with_frame(_frame("CALL"), _error(), _raising(), left)
    assert not known.is_exact and known.has_known_text


@pytest.mark.parametrize(("opname", "arg"), [("RERAISE", 0), ("RAISE_VARARGS", 0)])
def test_to_raise_again_what_is_handled_adds_no_entry(opname: str, arg: int) -> None:
    known = exception_flow._with_frame(_frame(opname, arg), _error(), _raising(), KNOWN)
    assert known == KNOWN


def test_what_is_raised_again_unknown_stays_unknown() -> None:
    known = exception_flow._with_frame(_frame("RERAISE"), _error(), _raising(), None)
    assert (known.is_exact, known.has_known_text) == (False, False)


def test_a_region_adds_no_entry_of_its_own() -> None:
    code = (lambda x: x).__code__.replace(co_varnames=(FUNCTION,))
    region = _frame("RAISE_VARARGS", code=code)
    left = ExceptionFacts((), is_exact=True, has_known_text=True, left=region)
    known = exception_flow._with_frame(_frame("CALL"), _error(), _raising(), left)
    assert known == KNOWN


def _asks() -> bool:
    import torch

    return torch.compiler.is_compiling()


def test_code_that_asks_whether_it_is_compiled_has_another_way_in_eager_execution() -> None:
    assert exception_flow._is_as_in_eager_execution(_function.__code__)
    assert not exception_flow._is_as_in_eager_execution(_asks.__code__)
    assert not exception_flow._is_as_in_eager_execution(raise_observed_exception.__code__)


def test_the_code_of_a_call_is_that_of_the_function_behind_a_partial() -> None:
    plain = UserFunctionVariable(_function)
    assert exception_flow._code_of(plain) is _function.__code__
    given = SimpleNamespace(func=plain)  # as the model of functools.partial has it
    assert exception_flow._code_of(given) is _function.__code__


def test_something_without_code_has_none() -> None:
    assert exception_flow._code_of(ConstantVariable.create(3)) is None


def test_an_os_error_picks_its_class_by_its_arguments() -> None:
    assert exception_flow._is_of_model(_error(OSError, 2, "no file"), _raising())
    assert not exception_flow._is_of_model(_error(OSError, "text"), _raising())
    assert not exception_flow._is_of_model(_error(ValueError, 2, "text"), _raising())


def test_a_subscript_of_a_dictionary_gives_the_key_as_the_argument() -> None:
    tx = _frame("BINARY_SUBSCR")
    assert exception_flow._is_of_python(tx, _error(KeyError, "a"), _raising())
    assert not exception_flow._is_of_python(tx, _error(KeyError), _raising())
    assert not exception_flow._is_of_python(_frame("CALL"), _error(KeyError, "a"), _raising())


def test_reading_a_text_that_is_not_known_is_noted() -> None:
    tx, error = _frame("CALL"), _error()
    exception_flow.note_reading(tx, error)
    assert not exception_flow.has_doubtful_text(tx)  # the trace has not raised it
    exception_flow._table(tx)[error] = ExceptionFacts((), is_exact=True, has_known_text=False)
    exception_flow.note_reading(tx, error)
    assert exception_flow.has_doubtful_text(tx)


def test_a_method_of_the_class_gives_a_text_of_its_own() -> None:
    class Own(ValueError):
        def __repr__(self) -> str:
            return "own"

    tx = _frame("CALL")
    exception_flow.note_reading(tx, _error(ValueError), ["__repr__"])
    assert not exception_flow.has_doubtful_text(tx)
    exception_flow.note_reading(tx, _error(Own), ["__repr__"])
    assert exception_flow.has_doubtful_text(tx)
