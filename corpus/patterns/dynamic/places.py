"""Reads and stores at places out of tensors: masks, indices, slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import COND, LOOP, SPLIT, WHERE, pattern, patterns_among
from tests.equivalence import Call, call

Program = Callable[..., Any]


def _vectors() -> list[Call]:
    """Some positive numbers, none, all, and one."""
    rows = ([1, -2, 3, -4, 2], [-1, -2, -3, -4, -5], [1, 2, 3, 1, 2], [0, 0, 0, 0, 1])
    return [call(torch.tensor(each, dtype=torch.float32)) for each in rows]


@pattern(_vectors)
def mask_that_is_assigned_to() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y[y > 2] = 1.5
        y[y < 0] *= 3.0
        return y

    return program


@pattern(_vectors)
def mask_whose_items_are_computed_anew() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        mask = x > 0
        y[mask] = y[mask] * 2 + 1
        return y

    return program


@pattern(_vectors, COND, training=False)
def place_within_two_conditions() -> Program:
    def program(x: Tensor) -> Tensor:
        places = torch.nonzero(x > 0)
        y = x * 2
        if len(places) > 1:
            y = y + 1
            if x.sum() > 5:
                y = y * places[1]
        return y

    return program


#: In order, empty, from the end, far out of range, behind one another.
_BOUNDS = ((0, 2), (1, 1), (-3, -1), (-9, 9), (3, 100), (2, 1))


def _matrix() -> Tensor:
    return torch.arange(24.0).reshape(4, 6) - 3


def _bounds() -> Sequence[Call]:
    return [call(_matrix(), *map(torch.tensor, each)) for each in _BOUNDS]


def _tokens() -> Sequence[Call]:
    """Rows of tokens of which those above 100 are marks; some have an order that is an error."""
    rows = (
        [[101, 5, 6, 103, 7, 102], [101, 5, 103, 3, 7, 102]],
        [[101, 5, 6, 3, 7, 102], [101, 102, 103, 102, 7, 101]],
        [[1, 5, 6, 3, 7, 2], [5, 5, 2, 3, 7, 2]],
        [[1, 101, 6, 101, 7, 2], [5, 5, 2, 3, 103, 2]],
        [[1, 5, 6, 3, 101, 2], [5, 101, 2, 3, 103, 2]],
    )
    return [call(torch.tensor(each)) for each in rows]


@pattern(_bounds)
def slice_up_to_a_number() -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        y = x * 2
        y[first:last] = -1
        return y

    return program


@pattern(_bounds, WHERE)
def slices_between_tensors_in_an_arm() -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[first:last, last - 2 :] = 5
            y[..., first] = 7
        return y

    return program


@pattern(_bounds, COND)
def every_other_place_of_a_slice() -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[1:, first:last:2] = -2
        return y

    return program


@pattern(_bounds, WHERE)
def row_and_column_out_of_tensors() -> Program:
    def program(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[row, column] = 0.5
        return y

    return program


@pattern(_bounds, COND)
def value_for_each_place_of_a_slice() -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[:, first:last] = x[:, :2]
        return y

    return program


@pattern(_bounds, WHERE, training=False)
def one_value_for_many_places() -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[first:last, :] = x[0]
            y[first:, -1:last] = x.sum()
        return y

    return program


@pattern(_bounds, training=False)
def part_of_an_argument() -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        x[first:last] = 3
        return x + 1

    return program


@pattern(_tokens, COND, SPLIT, WHERE, training=False)
def blocks_between_marks() -> Program:
    def program(tokens: Tensor) -> tuple[Tensor, Tensor]:
        count, length = tokens.shape
        places = torch.nonzero(tokens > 100)
        mask = torch.eye(length).bool().unsqueeze(0).repeat(count, 1, 1)
        positions = torch.zeros(count, length)
        before = 0
        for turn in range(places.shape[0]):
            row, column = places[turn]
            if (column == 0) or (column == length - 1):
                mask[row, column, column] = True
                positions[row, column] = 0
            else:
                mask[row, before + 1 : column + 1, before + 1 : column + 1] = True
                positions[row, before + 1 : column + 1] = torch.arange(0, column - before)
            before = column
        return mask, positions.long()

    return program


@pattern(_tokens, LOOP, training=False)
def places_that_are_counted() -> Program:
    def program(tokens: Tensor) -> Tensor:
        places = torch.nonzero(tokens > 100)
        order = torch.zeros(tokens.shape)
        for turn in range(len(places)):
            row, column = places[turn]
            order[row, column:] = turn + 1
        return order

    return program


@pattern(_tokens, COND, training=False)
def second_place_if_there_is_one() -> Program:
    def program(tokens: Tensor) -> Tensor:
        places = torch.nonzero(tokens > 100)
        result = tokens * 2
        if len(places) > 1:
            result = result + places[1].sum()
        return result

    return program


PATTERNS = patterns_among(list(vars().values()))
