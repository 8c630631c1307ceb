"""Exceptions: what they hold, where they come from, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from bcmend.liveness.outcome import LOGGER
from bcmend.liveness.program import program

Function = Callable[..., Any]


class Own(ValueError):
    """An exception with arguments and a text of its own."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name}: {super().__str__()}"


class Plain(KeyError):
    """An exception that calls the constructor of its base by name."""

    def __init__(self, name: str) -> None:
        KeyError.__init__(self, name)


@program("InstructionTranslatorBase.exception_handler", "operators[bcmend_guard]")
def one_with_a_cause() -> Function:
    def program(x: Tensor) -> Any:
        try:
            if x.sum() < 0:
                raise ValueError("below", 1)
        except ValueError as error:
            raise RuntimeError("outer") from error
        try:
            {}["missing"]
        except KeyError:
            if x[0] > 3:
                raise TypeError("in a handler")
        return x + 1

    return program


@program(
    "BuiltinVariable.call_str",
    "BuiltinVariable.call_method:__init__",
    "SuperVariable.call_method:__init__",
    "SuperVariable.call_method:__str__",
)
def texts_of_own() -> Function:
    def program(x: Tensor) -> Any:
        found = []
        for error in (Own("name", 2), Plain("key"), ValueError("one", "two")):
            try:
                raise error
            except (ValueError, KeyError) as caught:
                found.append(str(caught))
        return (x + 1 if x.sum() > 0 else x - 1), found

    return program


@program("exceptions on their way through frames")
def what_is_read() -> Function:
    def program(x: Tensor) -> Any:
        found: list[Any] = []
        try:
            raise ValueError("one", 2)
        except ValueError as error:
            found += [repr(error), error.args, str(error), f"{error}"]
        try:
            raise Own("own", 3)
        except Own as error:
            found += [error.args, error.name]
        return (x + 1 if x.sum() > 0 else x - 1), found

    return program


@program(fullgraph=False)
def one_that_a_side_changes() -> Function:
    def program(x: Tensor) -> Any:
        error = ValueError("one")
        if x.sum() > 0:
            error.args = ("two", 2)
        else:
            error.__cause__ = KeyError("cause")
            error.__context__ = TypeError("context")
        return x + 1, error.args, error.__cause__, error.__context__

    return program


@program("InstructionTranslatorBase.exception_handler")
def one_that_is_logged() -> Function:
    def program(x: Tensor) -> Any:
        try:
            raise ValueError("above")
        except ValueError as error:
            LOGGER.exception("caught %s of %s", error, x.sum())
        return x + 1

    return program


@program()
def own_that_leaves() -> Function:
    def program(x: Tensor) -> Any:
        if x.sum() < 0:
            raise Own("below", x.shape[0])
        return x + 1

    return program
