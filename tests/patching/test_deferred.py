"""Functions of large tables are mended once Dynamo stops in them, and as well as all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.patching.table import TABLE
from tests.equivalence import Call, assert_equivalent, call

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _branches(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def _prints(x: Tensor) -> Tensor:
    print("sum", x.sum().item())
    return x * 2


def _raises(x: Tensor) -> Tensor:
    if x.sum() < 0:
        raise ValueError("negative")
    return x * 2


# Not written here, where pytest would rewrite the assertion.
_SCOPE: dict[str, Any] = {"__name__": __name__}
exec("def asserts(x):\n    assert x.sum() > 0\n    return x * 2", _SCOPE)
_asserts: Program = _SCOPE["asserts"]


def _calls_what_asserts(x: Tensor) -> Tensor:
    result: Tensor = _asserts(x) + 1
    return result


def _selects(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def _ends(x: Tensor) -> Tensor:
    return x + 1


KINDS = (_branches, _prints, _raises, _asserts, _calls_what_asserts, _selects)


def _program(chosen: Program) -> Program:
    """Return a function that calls one of twelve in a table."""
    table: dict[int, Program] = {n: _fresh(_ends) for n in range(11)} | {11: chosen}

    def program(x: Tensor, key: int = 11) -> Tensor:
        result: Tensor = table[key](x) * 3
        return result

    return program


def _fresh(function: Any) -> Any:
    """Return a function with the code of another."""
    return type(function)(function.__code__, function.__globals__, function.__name__)


def _inputs() -> list[Call]:
    return [call(torch.tensor([1.0, 2.0])), call(torch.tensor([-1.0, -2.0]))]


@pytest.mark.parametrize("chosen", KINDS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_one_graph_and_no_difference(chosen: Program, fullgraph: bool) -> None:
    found = assert_equivalent(lambda: _program(_fresh(chosen)), _inputs, fullgraph=fullgraph)
    assert found.graphs == 1


def test_only_what_dynamo_stops_in_is_mended() -> None:
    def chosen(x: Tensor) -> Tensor:
        return x * 4 if x.sum() > 0 else x - 1

    def other(x: Tensor) -> Tensor:
        return x * 5 if x.sum() > 0 else x - 2

    table = {"chosen": chosen, "other": other} | {f"{n}": _fresh(_ends) for n in range(8)}

    def program(x: Tensor) -> Tensor:
        return table["chosen"](x) * 3

    code = chosen.__code__
    bcmend.patch(program)
    report = bcmend.report(program, ahead=True)
    assert [site.status for site in report.sites] == ["planned", "planned"]
    assert not bcmend.report(program).sites
    assert TABLE.of(chosen) is TABLE.of(other) is None
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    assert compiled(torch.tensor([-3.0])).item() == -12
    assert TABLE.of(chosen) is not None and TABLE.of(other) is None
    report = bcmend.report(program, ahead=True)
    assert sorted(site.status for site in report.sites) == ["mended", "planned"]
    assert [site.status for site in bcmend.report(program).sites] == ["mended"]
    bcmend.unpatch(program)
    assert chosen.__code__ is code
