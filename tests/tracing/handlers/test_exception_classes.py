"""Texts of exceptions that a call raises and reads itself."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.handlers import Call as HandlerCall
from bcmend.dynamo.values import constant
from bcmend.tracing.handlers import exception_classes
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.in_trace import during_trace, trace


class _Joined(ValueError):
    def __str__(self) -> str:
        return "joined:" + "|".join(map(str, self.args))


class _Coded(Exception):
    def __init__(self, code: int, why: str) -> None:
        self.code = code
        super().__init__(why)

    def __str__(self) -> str:
        return f"[{self.code}] {super().__str__()}"


def _inputs() -> Sequence[Call]:
    return [call(torch.tensor([1.0, 2.0])), call(torch.tensor([-1.0, -2.0]))]


def _own(x: Tensor) -> Tensor:
    try:
        raise _Joined("a", 2)
    except _Joined as error:
        text = str(error)
    return x + 1 if text == "joined:a|2" else x * 2


def _of_its_base(x: Tensor) -> Tensor:
    try:
        raise _Coded(3, "why")
    except _Coded as error:
        text = str(error)
    return x + 1 if text == "[3] why" else x * 2


def _of_a_key(x: Tensor) -> Tensor:
    known: dict[str, int] = {}
    try:
        known["missing"]
    except KeyError as error:
        text = str(error)
    return x + 1 if text == "'missing'" else x * 2


@pytest.mark.parametrize("program", [_own, _of_its_base, _of_a_key])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_texts_are_those_of_the_class(program: object, fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _inputs, fullgraph=fullgraph)


def _with_other_arguments(x: Tensor) -> Any:
    try:
        if x.sum() > 0:
            raise _Counted("bad", 3)
        return x
    except _Counted as error:
        error.args = ("other",)
        error.code += 1
        return x - 1, str(error), error.args, error.code


class _Counted(Exception):
    """An exception with an attribute."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.code = 1


@pytest.mark.parametrize("fullgraph", [False, True])
def test_arguments_that_are_stored_to(fullgraph: bool) -> None:
    assert_equivalent(
        lambda: _with_other_arguments, _inputs, fullgraph=fullgraph, graphs=None, recompiles=None
    )


def _of_a_file(x: Tensor) -> Tensor:
    try:
        raise OSError(2, "no such file")
    except OSError as error:
        text = str(error)
    return x + 1 if text == "[Errno 2] no such file" else x * 2


def test_text_that_is_made_in_another_way() -> None:
    assert_equivalent(lambda: _of_a_file, _inputs, fullgraph=False, graphs=None, recompiles=None)
    with bcmend.patched(_of_a_file), pytest.raises(Unsupported):
        torch.compile(_of_a_file, backend="eager", fullgraph=True)(torch.ones(2))


def _of_the_class(x: Tensor) -> Tensor:
    return x + len(str(_Joined)) + len(str(ValueError))


def test_text_of_a_class_of_exceptions() -> None:
    assert_equivalent(lambda: _of_the_class, _inputs, fullgraph=False, graphs=None, recompiles=None)


# The handlers, called directly


def _text_of(tx: Any, kind: Any, *args: Any) -> Any:
    error = compat.ExceptionVariable(kind, list(map(constant, args)))
    return exception_classes._text(tx, kind.__str__, error)


@pytest.mark.parametrize(
    "error", [ValueError(), ValueError("a"), ValueError("a", 2), KeyError("a"), KeyError("a", 2)]
)
def test_text_of_an_exception_of_pythons(error: Exception) -> None:
    found = trace(lambda tx, x: _text_of(tx, type(error), *error.args), torch.ones(1))
    assert found == str(error)


def test_a_text_that_is_made_in_c_breaks_the_graph() -> None:
    def body(tx: Any, x: Any) -> None:
        with pytest.raises(compat.Unsupported, match="text of an exception"):
            _text_of(tx, UnicodeDecodeError, "a")

    during_trace(body, torch.ones(1))


@pytest.mark.parametrize("kind", [OSError, StopIteration, SystemExit, ValueError, KeyError])
def test_a_constructor_is_known_if_it_only_sets_the_arguments(kind: Any) -> None:
    only_sets = issubclass(kind, (ValueError, KeyError))  # no ``errno``, ``value`` or ``code``
    assert (kind.__init__ in exception_classes._CONSTRUCTORS) is only_sets


def test_a_constructor_of_something_else_is_not_modelled() -> None:
    made: Any = constant(1)
    assert not exception_classes._construct(None, ValueError.__init__, made, [])  # type: ignore[arg-type]
    assert not exception_classes._construct(None, OSError.__init__, made, [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [("__init__", [], {}), ("__init__", [constant(1)], {}), ("__repr__", [], {})]
)
def test_other_calls_of_a_type_are_passed_on(given: Any) -> None:
    owner = SimpleNamespace(fn=ValueError)
    call = HandlerCall(None, "call_method", owner, given, {})  # type: ignore[arg-type]
    assert exception_classes._call_of_type(call) is PASS


@pytest.mark.parametrize("given", [("__init__", [], {}), ("__str__", [], {}), ("name", [], {})])
def test_calls_of_super_without_an_exception_are_passed_on(given: Any) -> None:
    owner = SimpleNamespace(objvar=None)
    call = HandlerCall(None, "call_method", owner, given, {})  # type: ignore[arg-type]
    assert exception_classes._call_of_super(call) is PASS


def test_the_text_of_what_is_no_exception_is_left_to_dynamo() -> None:
    calls: list[Any] = []
    exception_classes._call_str(lambda *given: calls.append(given), 1, 2, constant(3))  # type: ignore[arg-type]
    assert [each[:2] for each in calls] == [(1, 2)]
