"""Branches whose arms fail, differ, or stand in a construct that makes them harder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    GUARD,
    NO_MERGE,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    refused,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(rows, GUARD)
def view_to_a_bad_shape() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 100:
            y = x.view(3, 3)
        else:
            y = x * 2
        return y

    return program


def _indices() -> list[Call]:
    table = torch.arange(12.0).reshape(4, 3)
    return [call(table.clone(), torch.tensor(each)) for each in ([0, 3], [1, 2], [0, 7])]


@pattern(_indices, COND, zero_gradients=True)
def index_that_would_be_out_of_range() -> Program:
    def program(table: Tensor, index: Tensor) -> Tensor:
        if index.max() < table.shape[0]:
            y = table[index] * 2
        else:
            y = torch.zeros(2, 3)
        return y

    return program


@pattern(signs, GUARD)
def subscript_of_none_in_an_arm() -> Program:
    def program(x: Tensor, items: list[Tensor] | None = None) -> Tensor:
        if x.sum() < 0:
            y = items[0]
        else:
            y = x * 2
        return y

    return program


def _integers() -> list[Call]:
    one = torch.tensor([4, 6, 8])
    divisors = ([1, 2, 3], [2, 0, 1], [4, 4, 4])
    return [call(one.clone(), torch.tensor(each)) for each in divisors]


@pattern(_integers, COND, training=False)
def integer_division_by_zero() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if (y != 0).all():
            z = x // y
        else:
            z = x * 0
        return z

    return program


@pattern(
    signs,
    refused("multi-element-condition"),
    graphs=None,
    because=(
        "Eager execution raises at the jump (the truth of several elements is ambiguous), and"
        " so does the jump that is left."
    ),
)
def condition_of_several_elements() -> Program:
    def program(x: Tensor) -> Tensor:
        if torch.gt(x, 0):
            return x * 2
        return x - 1

    return program


@pattern(signs, SPLIT)
def numbers_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            scale = 2
        else:
            scale = 3
        return x * scale

    return program


@pattern(signs, SPLIT)
def none_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        mask = None
        if x.sum() > 0:
            mask = x > 1
        y = x * 2
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        return y

    return program


@pattern(signs, CHOICE)
def none_returned_by_one_arm() -> Program:
    def program(x: Tensor) -> Tensor | None:
        if x.sum() > 0:
            return x * 2
        return None

    return program


@pattern(signs, CHOICE)
def dtypes_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return (x - 1).double()

    return program


@pattern(rows, CHOICE)
def shapes_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x.sum(0)

    return program


@pattern(rows, CHOICE)
def strides_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        square = x @ x.t()
        if x.sum() > 0:
            return square * 2
        return square.t()

    return program


@pattern(signs, CHOICE)
def containers_that_differ() -> Program:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        if x.sum() > 0:
            return (x * 2,)
        return x - 1, x

    return program


@pattern(signs, CHOICE)
def flag_set_by_a_branch() -> Program:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        if x.sum() > 0:
            return x * 2, True
        return x - 1, False

    return program


@pattern(
    signs,
    refused("arm-untraceable"),
    graphs=None,
    because="The arm asks for a graph break itself; no graph holds it.",
)
def arm_that_breaks_the_graph() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
            torch._dynamo.graph_break()
            y = y + 1
        else:
            y = x - 1
        return y * 2

    return program


@pattern(signs, WHERE)
def branch_inside_try() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                y = x * 2
            else:
                y = x - 1
        except ValueError:
            y = x
        finally:
            x = x + 1
        return y + x

    return program


@pattern(signs, WHERE)
def branch_inside_with() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            if x.sum() > 0:
                shift = x * 2
            else:
                shift = x - 1
        return x + shift

    return program


@pattern(signs, WHERE)
def branch_around_with() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            with torch.no_grad():
                shift = x * 2
            y = x + shift
        else:
            y = x - 1
        return y

    return program


@pattern(signs, WHERE)
def branch_around_try() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            try:
                y = {"a": x}["b"]
            except KeyError:
                y = x * 2
        else:
            y = x - 1
        return y

    return program


@pattern(signs, WHERE)
def branch_in_a_context_manager_of_its_own() -> Program:
    @contextmanager
    def noted(names: list[str]) -> Iterator[None]:
        names.append("in")
        yield
        names.append("out")

    def program(x: Tensor) -> tuple[Tensor, list[str]]:
        names: list[str] = []
        with noted(names):
            if x.sum() > 0:
                y = x * 2
            else:
                y = x - 1
        return y, names

    return program


@pattern(signs, WHERE, zero_gradients=True)
def return_from_inside_with() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            if x.sum() > 0:
                return x * 2
        return x - 1

    return program


@pattern(signs, GUARD)
def variable_bound_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        return y + 1

    return program


@pattern(
    signs,
    refused("frame-introspection"),
    graphs=None,
    because="`locals()` reads the frame that it is called in, and an arm runs in another.",
)
def locals_inside_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * locals()["x"]
        else:
            y = x - 1
        return y

    return program


@pattern(signs, NO_MERGE)
def filtered_comprehension() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        return [y for y in (x, x + 2, x - 3) if y.sum() > 0]

    return program


@pattern(signs, WHERE)
def variable_deleted_in_both_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        helper = x + 1
        if x.sum() > 0:
            y = helper * 2
            del helper
        else:
            y = helper - 1
            del helper
        return y

    return program


@pattern(signs, WHERE)
def unpacking_and_augmented_assignment() -> Program:
    def program(x: Tensor) -> Tensor:
        a, *rest = x * 2, x + 1, x + 2
        if x.sum() > 0:
            a, b = rest
            a = a - b * 2
        else:
            b = a + rest[0]
        return a + b

    return program


PATTERNS = patterns_among(list(vars().values()))
