"""Objects with code of their own behind attributes are asked as often as in eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call


class Default:
    """Has a value for every attribute that it does not have, and keeps count of the questions."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append(name)
        return 2


class Counting(Default):
    """Another class of those, with a text."""

    def __repr__(self) -> str:
        return "Counting"


class Callback(Default):
    """Can be called, and has no name."""

    def __call__(self, x: Tensor) -> Tensor:
        return x + 1


def _signs() -> list[Any]:
    return [call(torch.ones(3)), call(-torch.ones(3)), call(torch.ones(3))]


def _created_in_an_arm(shown: Any, log: list[str]) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            shown.late = x * 2
        y = x + 1
        return y, list(log)

    return program


def _created_on_both_sides(shown: Any, log: list[str]) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            shown.late = x * 2
        else:
            shown.late = None
        return x + 1, list(log)

    return program


def _deleted_in_an_arm(shown: Any, log: list[str]) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        shown.late = x
        if x.sum() > 0:
            del shown.late
        return x + 1, list(log)

    return program


def _read_in_an_arm(shown: Any, log: list[str]) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        y = x * shown.first
        if x.sum() > 0:
            y = x * shown.second
        print("sum", y.sum())
        return y, list(log)

    return program


def _read_before_restarts(shown: Any, log: list[str]) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        y = x * shown.first
        print(y, shown)
        y.add_(1)
        if x.sum() > 0:
            y = torch.tensor(y.tolist())
        print(shown, y)
        return y, list(log)

    return program


def _called(shown: Any, log: list[str]) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        y = shown(x) if isinstance(shown, Callback) else x * 2
        if y.sum() > 0:
            y = y + 1
        print(shown.log is log, y)
        return y, list(log)

    return program


@pytest.mark.parametrize("kind", [Default, Counting, Callback])
@pytest.mark.parametrize(
    "make_program",
    [
        _created_in_an_arm,
        _created_on_both_sides,
        _deleted_in_an_arm,
        _read_in_an_arm,
        _read_before_restarts,
        _called,
    ],
)
def test_an_attribute_that_is_not_there_is_asked_for_as_often(kind: Any, make_program: Any) -> None:
    def make() -> Any:
        log: list[str] = []
        program = make_program(kind(log), log)
        program.log = log
        return program

    if make_program is _read_before_restarts and kind is not Counting:
        return  # shows an address
    assert_equivalent(make, _signs, fullgraph=False, graphs=None, recompiles=None)


class _Key:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __hash__(self) -> int:
        self.log.append("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other


def _asked_for_hashes(compiled: Callable[[Any], Any]) -> list[int]:
    def program(table: dict[Any, int], x: Tensor) -> Any:
        if x.sum() > 0:
            table["late"] = 1
        return x + len(table)

    log: list[str] = []
    table: dict[Any, int] = {_Key(log): 1}
    run, counts = compiled(program), []
    for sign in (1.0, -1.0, 1.0):
        log.clear()
        run(table, torch.full((2,), sign))
        counts.append(len(log))
    return counts


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_what_torch_asks_in_each_trace_is_asked_in_each_trace() -> None:
    eager = _asked_for_hashes(lambda program: program)
    stock = _asked_for_hashes(lambda program: torch.compile(program, backend="eager"))
    torch._dynamo.reset()
    mended = _asked_for_hashes(lambda each: torch.compile(bcmend.patch(each), backend="eager"))
    assert eager == [0, 0, 0]
    assert stock[0] > 0
    assert all(one <= other for one, other in zip(mended[1:], stock[1:], strict=True))
