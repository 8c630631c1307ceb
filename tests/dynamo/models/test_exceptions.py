"""Models of exceptions and of what a frame knows of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.models import exceptions
from bcmend.dynamo.values import constant

ONE, TWO = constant(1), constant(2)


def _raised() -> Any:
    return compat.ExceptionVariable(ValueError, [ONE])


def test_an_exception_has_a_class_and_arguments() -> None:
    error = _raised()
    assert exceptions.class_of(error) is ValueError
    assert exceptions.arguments_of(error) == [ONE]
    exceptions.set_arguments(error, [TWO])
    assert exceptions.arguments_of(error) == [TWO]
    context, cause = exceptions.related_to(error)
    assert context.is_constant_none() and cause.is_constant_none()


def test_the_constructor_of_a_class_of_the_program_is_a_store() -> None:
    stored: list[Any] = []
    effects: Any = SimpleNamespace(store_attr=lambda *given: stored.append(given))
    error: Any = SimpleNamespace(exc_vt=_raised())
    exceptions.set_arguments_of_object(effects, error, [TWO])
    assert error.exc_vt.args == [TWO]
    ((owner, name, value),) = stored
    assert owner is error and name == "args" and value.items == [TWO]


def test_the_exceptions_being_handled() -> None:
    stack = compat.symbolic_convert.ExceptionStack()
    tx: Any = SimpleNamespace(exn_vt_stack=stack)
    assert exceptions.handled_in(tx) == [] and exceptions.innermost_handled(tx) is None
    assert exceptions.raised_in(tx) is None
    first, second = _raised(), _raised()
    for each in (first, second):
        stack.set_current_exception(each)
        assert exceptions.raised_in(tx) is each
        stack.move_current_exception_to_stack()
    assert exceptions.handled_in(tx) == [first, second]
    assert exceptions.innermost_handled(tx) is second
    assert exceptions.handling_of(tx) is vars(stack)
