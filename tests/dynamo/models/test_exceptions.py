"""Models of exceptions and of what a frame knows of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import compat, snapshots
from bcmend.dynamo.models import exceptions
from bcmend.dynamo.values import constant

ONE, TWO = constant(1), constant(2)


def _raised() -> Any:
    return compat.ExceptionVariable(ValueError, [ONE])


def test_an_exception_has_a_class_and_arguments() -> None:
    error = _raised()
    assert exceptions.class_of(error) is ValueError
    assert exceptions.arguments_of(error) == [ONE]
    before = error.args
    exceptions.set_merged_arguments(error, [TWO])
    assert snapshots.is_same(before, error.args) and not snapshots.is_same([TWO, TWO], error.args)
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
    # Its name in torch 2.13, and the one after that.
    names = ("set_current_exception", "set_raised_exception")
    set_raised = next(getattr(stack, name) for name in names if hasattr(stack, name))
    for each in (first, second):
        set_raised(each)
        assert exceptions.raised_in(tx) is each
        stack.move_current_exception_to_stack()
    assert exceptions.handled_in(tx) == [first, second]
    assert exceptions.innermost_handled(tx) is second
    put_back = exceptions.remember_handling(tx)
    stack.pop()
    stack.append(first)
    set_raised(first)
    put_back()
    assert exceptions.handled_in(tx) == [first, second] and exceptions.raised_in(tx) is None
    put_back = exceptions.remember_handling(tx)
    stack.pop()
    put_back()
    assert exceptions.handled_in(tx) == [first, second], "once more"


def test_a_generator_may_handle_exceptions_of_its_own() -> None:
    held = [_raised()]
    own = SimpleNamespace(items=held)
    assert exceptions.held_by_generator(SimpleNamespace(gi_exc_state=own)) is held
    assert exceptions.held_by_generator(SimpleNamespace()) == []


@pytest.mark.parametrize(
    "kind", [compat.ExceptionVariable, compat.UserDefinedExceptionObjectVariable]
)
def test_reading_an_attribute_of_each_kind_of_exception_is_noticed(kind: type) -> None:
    assert any(issubclass(kind, reader) for reader, _ in exceptions.READERS)
