"""Names of functions that output, results and arithmetic show are those of eager execution."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import assert_equivalent, call

X = torch.tensor([1.0, 2.0])


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


@_wrapped
def activation(x: Tensor) -> Tensor:
    """Return twice ``x``."""
    return x * 2


def undocumented(x: Tensor) -> Tensor:
    return x * 3


def renamed(x: Tensor) -> Tensor:
    return x * 4


renamed.__name__, renamed.__qualname__ = "other", "Other.name"
renamed.__doc__, renamed.__module__ = "Another text.", "elsewhere"


def _is_one_graph(show: Callable[[Any, Tensor], Any], *functions: Any) -> None:
    def program(x: Tensor, function: Any) -> Any:
        x = function(x) if x.sum() > 0 else x + 1
        return x, show(function, x)

    calls = [call(X * sign, each) for each in functions for sign in (1, -1)]
    assert_equivalent(lambda: program, lambda: calls, graphs=None, recompiles=None)


def _printed(function: Any, x: Tensor) -> None:
    print(function.__name__, function.__qualname__, function.__doc__, function.__module__, x)


def _formatted(function: Any, x: Tensor) -> None:
    print(f"{function.__name__!r}: {function.__doc__}", getattr(function, "__qualname__", "?"))


def _computed(function: Any, x: Tensor) -> Tensor:
    return x * len(function.__name__) + (function.__doc__ is None)


def _looked_up(function: Any, x: Tensor) -> Any:
    return x * {"activation": 2, "undocumented": 3, "other": 4}[function.__name__]


@pytest.mark.parametrize("show", [_printed, _formatted, _computed, _looked_up])
def test_a_function_has_the_names_that_it_was_given(show: Any) -> None:
    _is_one_graph(show, activation, undocumented, renamed)


class Block(nn.Module):
    @_wrapped
    def inner(self, x: Tensor) -> Tensor:
        """Return four times ``x``."""
        return x * 4

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x) if x.sum() > 0 else x + 1
        print(self.inner.__name__, self.inner.__qualname__)
        print(self.inner.__doc__, self.inner.__module__)
        return x


def test_a_method_has_the_names_that_it_was_given() -> None:
    assert_equivalent(Block, lambda: [call(X), call(-X)], fullgraph=True)


class Renaming(nn.Module):
    """Each call shows the name that the one before has set outside of what is compiled."""

    def __init__(self) -> None:
        super().__init__()

        def inner(x: Tensor) -> Tensor:
            return x * 2

        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.inner(x)
        print(self.inner.__name__, self.inner.__doc__)
        return x


def test_a_function_that_is_renamed_between_calls(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(program: Renaming, call: Callable[..., Any]) -> list[str]:
        for name in ("first", "second"):
            program.inner.__name__, program.inner.__doc__ = name, f"The {name}."
            call(X), call(-X)
        return capsys.readouterr().out.splitlines()

    eager, patched = Renaming(), Renaming()
    expected = shown(eager, eager)
    compiled = torch.compile(bcmend.patch(patched), backend="eager", fullgraph=True)
    assert shown(patched, compiled) == expected
    assert expected == ["first The first."] * 2 + ["second The second."] * 2


def test_a_name_that_the_call_has_set_is_that_name() -> None:
    def program(x: Tensor) -> Any:
        def inner(x: Tensor) -> Tensor:
            return x + 1

        inner.__name__ = "given"
        x = inner(x) if x.sum() > 0 else x - 1
        print(inner.__name__)
        return x

    calls = [call(X), call(-X)]
    assert_equivalent(lambda: program, lambda: calls, fullgraph=False, graphs=None, recompiles=None)
