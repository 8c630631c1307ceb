"""An output statement whose argument is a variable that has no value on one side of a branch.

Eager execution raises where the statement stands, and a handler around it may be waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call


def _argument() -> Callable[..., Any]:
    def program(x: Tensor) -> Any:
        if x.sum() > 99:
            c = 1
        try:
            print(c)
        except UnboundLocalError as error:
            return x, type(error).__name__
        return x, "printed"

    return program


def _in_a_text() -> Callable[..., Any]:
    def program(x: Tensor) -> Any:
        if x.sum() > 99:
            c = 1
        try:
            print("c is", f"{c!r:>3}")
        except UnboundLocalError as error:
            return x, type(error).__name__
        return x, "printed"

    return program


def _behind_what_fails() -> Callable[..., Any]:
    def program(x: Tensor) -> Any:
        if x.sum() > 99:
            c = 1
        try:
            print(f"{x.sum().item():d}", c)
        except UnboundLocalError as error:
            return x, type(error).__name__
        except ValueError as error:  # eager execution comes to the format first
            return x + 1, type(error).__name__
        return x, "printed"

    return program


def _calls() -> list[Any]:
    return [call(torch.ones(2)), call(torch.full((2,), 100.0)), call(torch.ones(2))]


@pytest.mark.parametrize("make", [_argument, _in_a_text, _behind_what_fails])
def test_it_raises_where_it_stands(make: Callable[[], Any]) -> None:
    assert_equivalent(make, _calls, fullgraph=False, graphs=None, recompiles=None)


def _read_in_a_try() -> Callable[..., Any]:
    def program(x: Tensor) -> Any:
        if x.sum() > 99:
            c = x * 2
        try:
            y = c + 1
        except UnboundLocalError as error:
            return x, str(error)
        return y, "bound"

    return program


@pytest.mark.parametrize("order", [(1, 100, 1), (1, 1), (100, 1, 100), (1, 100)])
def test_a_handler_sees_that_a_variable_is_unbound(order: tuple[int, ...]) -> None:
    def calls() -> list[Any]:
        return [call(torch.full((2,), float(each))) for each in order]

    assert_equivalent(_read_in_a_try, calls)


def test_an_argument_that_was_deleted_is_not_there_where_the_graph_breaks() -> None:
    def program(x: Tensor, table: list[Tensor]) -> Any:
        if x.sum() > 0:
            x = x * 2
        del table
        return x, table  # noqa: F821

    assert_equivalent(
        lambda: program, lambda: [call(torch.ones(3), [])], fullgraph=False, graphs=None
    )
