"""Objects that run code when they die are not made on the side that is not taken."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor

import bcmend

X = torch.ones(2)
DIED: Final[list[str]] = []


class Finalized:
    """Notes its death."""

    name = "unnamed"

    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        DIED.append(self.name)


class Derived(Finalized):
    """Has the finalizer from its class."""


class Plain:
    """Runs no code when it dies."""

    def __init__(self, name: str) -> None:
        self.name = name


class Holder:
    """Keeps what a call leaves."""

    def __init__(self) -> None:
        self.kept: Any = []


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _on_both_sides(kind: Any) -> Callable[..., Any]:
    def program(holder: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            holder.kept = kind("one")
        else:
            holder.kept = kind("other")
        return x + 1

    return program


def _on_one_side(kind: Any) -> Callable[..., Any]:
    def program(holder: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            holder.kept = kind("one")
        return x + 1

    return program


def _in_a_list(kind: Any) -> Callable[..., Any]:
    def program(holder: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            holder.kept.append(kind("one"))
        return x + 1

    return program


def _returned(kind: Any) -> Callable[..., Any]:
    def program(holder: Any, x: Tensor) -> Any:
        return kind("one") if x.sum() > 0 else kind("other")

    return program


PROGRAMS = (_on_both_sides, _on_one_side, _in_a_list, _returned)


def _deaths(called: Callable[..., Any], x: Tensor) -> list[str]:
    """Return the names of the objects that die with what one call leaves."""
    holder = Holder()
    gc.collect()
    DIED.clear()
    result = called(holder, x)
    during = list(DIED)
    del result, holder
    return [*during, "|", *DIED]


@pytest.mark.parametrize("kind", [Finalized, Derived])
@pytest.mark.parametrize("make", PROGRAMS)
def test_no_object_dies_that_eager_execution_does_not_make(
    make: Callable[[Any], Callable[..., Any]], kind: type
) -> None:
    program = make(kind)
    expected = [_deaths(program, x) for x in (X, -X)]
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    for x in (X, -X):
        _deaths(compiled, x)  # what is kept of a trace dies later
    assert [_deaths(compiled, x) for x in (X, -X)] == expected


@pytest.mark.parametrize("make", PROGRAMS)
def test_other_objects_are_made_in_one_graph(make: Callable[[Any], Callable[..., Any]]) -> None:
    compiled = torch.compile(bcmend.patch(make(Plain)), backend="eager", fullgraph=True)
    for x in (X, -X):
        compiled(Holder(), x)
