"""Proxies of dictionaries are read where the call has changed other dictionaries only."""

from __future__ import annotations

import inspect
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator, MutableMapping
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend

X = torch.arange(4.0)


def _scaled(x: Tensor, scale: float = 3.0) -> Tensor:
    return x * scale


SIGNATURE = inspect.signature(_scaled)
PLAIN: dict[str, float] = {}
ORDERED: OrderedDict[str, float] = OrderedDict()
OTHER: UserDict[str, float] = UserDict()
SHOWN: dict[str, Any] = {
    "plain": MappingProxyType(PLAIN),
    "ordered": MappingProxyType(ORDERED),
}
OF_ANOTHER_CLASS = MappingProxyType(OTHER)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    for table in (PLAIN, ORDERED, OTHER):
        table.clear()
        table["scale"] = 2.0
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _with_a_signature(x: Tensor, notes: dict[str, Any]) -> Tensor:
    notes["sum"] = x.sum()
    bound = SIGNATURE.bind(x)
    bound.apply_defaults()
    y = _scaled(*bound.args)
    return y + 1 if y.sum() > 0 else y - 1


def _with_a_proxy(x: Tensor, notes: dict[str, Any], kind: str = "plain") -> Tensor:
    notes["sum"] = x.sum()
    y = x * SHOWN[kind]["scale"]
    return y + len(SHOWN[kind]) if y.sum() > 0 else y - 1


def _ordered(x: Tensor, notes: dict[str, Any]) -> Tensor:
    return _with_a_proxy(x, notes, "ordered")


def _outcome(called: Callable[..., Tensor], x: Tensor) -> list[Any]:
    notes: dict[str, Any] = {}
    given = x.clone().requires_grad_()
    result = called(given, notes)
    (gradient,) = torch.autograd.grad(result.square().sum(), given)
    return [result.tolist(), gradient.tolist(), list(notes), notes["sum"].item()]


@pytest.mark.parametrize("program", [_with_a_signature, _with_a_proxy, _ordered])
def test_a_proxy_is_read_behind_a_change_of_another_dictionary(
    program: Callable[..., Tensor],
) -> None:
    expected = [_outcome(program, each) for each in (X, -X)]
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    assert [_outcome(compiled, each) for each in (X, -X)] == expected
    PLAIN["scale"] = ORDERED["scale"] = 5.0  # between calls
    PLAIN["more"] = ORDERED["more"] = 1.0
    expected = [_outcome(program, each) for each in (X, -X)]
    assert [_outcome(compiled, each) for each in (X, -X)] == expected


def _changing(table: MutableMapping[str, float], shown: Any) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        table["scale"] = len(x) * 1.0
        return x * shown["scale"] * (2 if x.sum() > 0 else 3)

    return program


@pytest.mark.parametrize(
    ("table", "shown"),
    [(PLAIN, SHOWN["plain"]), (ORDERED, SHOWN["ordered"]), (OTHER, OF_ANOTHER_CLASS)],
    ids=["plain", "ordered", "another class"],
)
def test_a_proxy_of_what_the_call_has_changed_shows_the_change(
    table: MutableMapping[str, float], shown: Any
) -> None:
    program = _changing(table, shown)
    expected = [program(each) for each in (X, -X)]
    table["scale"] = 2.0
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    assert all(map(torch.equal, [compiled(each) for each in (X, -X)], expected))


def test_a_proxy_that_the_call_makes_shows_what_it_changes() -> None:
    def program(x: Tensor) -> Tensor:
        table = {"scale": x.mean()}
        shown = MappingProxyType(table)
        PLAIN["scale"] = 4.0
        table["scale"] = x.sum()
        return x * shown["scale"] if x.sum() > 0 else x - shown["scale"]

    expected = [program(each) for each in (X, -X)]
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    assert all(map(torch.equal, [compiled(each) for each in (X, -X)], expected))
