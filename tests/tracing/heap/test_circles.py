"""Containers that hold themselves, in branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call


def _made_in_an_arm(x: Tensor) -> Any:
    held: Any = None
    if x.sum() > 0:
        held = [x]
        held.append(held)
    return held is None or held[1] is held


def _appended_in_an_arm(x: Tensor) -> Any:
    held: list[Any] = [x]
    if x.sum() > 0:
        held.append(held)
    else:
        held.append([held])
    more = held[1] + [1] if x.sum() > -5 else held[1]
    return len(more), held[1] is held


def _of_a_dictionary(x: Tensor) -> Any:
    table: dict[str, Any] = {}
    if x.sum() > 0:
        table["me"] = table
        table["t"] = (table, x)
    else:
        table["me"] = None
        table["t"] = ({}, x)
    return len(table), table["t"][1]


def _two_in_each_other(x: Tensor) -> Any:
    one: list[Any] = []
    other: list[Any] = [one]
    one.append(other)
    if x.sum() > 0:
        one, other = other, one
    one.append(1)
    return len(one), len(other), one[0] is other


def _carried_by_a_loop(x: Tensor) -> Any:
    held: list[Any] = [0]
    held.append(held)
    while x.sum() < 4:
        x = x + 1
        held[0] = held[0] + 1
    return x * 2, held[0], held[1] is held


def _behind_a_loop(x: Tensor) -> Any:
    held: list[Any] = []
    held.append(held)
    found = None
    for at in range(3):
        if x[at] > 0:
            found = (x * at, held)
            break
    return None if found is None else (found[0], found[1][0] is held)


def _grown_by_a_loop(x: Tensor) -> Any:
    held: list[Any] = [x]
    held.append(held)
    for at in range(12):
        if x[at % 3] > 0:
            held.append(x * at)
    return len(held), held[1] is held, held[-1] is held


_TABLE: dict[str, Any] = {}


def _put_into_what_is_before(x: Tensor) -> Any:
    held: list[Any] = []
    if x.sum() < 1:
        _TABLE["p"] = held
    for at in range(2):
        if x[at] > 0:
            continue
        held.insert(0, (0, _TABLE["p"]))
    return len(held), all(each[1] is _TABLE["p"] for each in held), _TABLE["p"] is held


PROGRAMS: list[Callable[[Tensor], Any]] = [
    _made_in_an_arm,
    _appended_in_an_arm,
    _of_a_dictionary,
    _two_in_each_other,
    _carried_by_a_loop,
    _behind_a_loop,
    _grown_by_a_loop,
]


def _calls() -> list[Call]:
    return [
        call(torch.tensor(each)) for each in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1, -2, 0.5])
    ]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_circle_stays_one(program: Callable[[Tensor], Any]) -> None:
    assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_a_circle_by_way_of_what_is_before() -> None:
    def results(called: Callable[[Tensor], Any]) -> list[Any]:
        _TABLE["p"] = [1]
        return [called(*each.arguments) for each in _calls()]

    expected = results(_put_into_what_is_before)
    compiled = torch.compile(bcmend.patch(_put_into_what_is_before), backend="eager")
    assert results(compiled) == expected
