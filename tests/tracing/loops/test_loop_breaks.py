"""Loops that break the graph run in no more graphs than without bcmend."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.loops.loop_breaks import places_in_loops


@torch.compiler.disable
def _pause() -> None:
    pass


def _stops_inside(x: Tensor) -> Any:
    count, names = 0, []
    while x.sum() > 1:
        x = x * 0.5
        count += 1
        names.append(str(count))
        if count == 3:
            _pause()
    return x + count, names


def _stops_always(x: Tensor) -> Any:
    while x.sum() > 1:
        _pause()
        x = x * 0.5
    return x


def _collects(x: Tensor) -> Any:
    found = []
    while x.sum() > 1:
        x = x * 0.5
        found.append(x)
    return torch.stack(found)


def _selects(x: Tensor) -> Any:
    turns = 0
    while turns < 5 and x.sum() > 1:
        x = x * 0.7
        turns += 1
        x = x[x > 0.0]
    return x, turns


def _stores(x: Tensor) -> Any:
    values: dict[str, Tensor] = {}
    while x.sum() > 1:
        x = x * 0.5
        values[f"a{len(values)}"] = x
    return values


def _says(x: Tensor) -> Any:
    turns = 0
    while x.sum() > 1:
        x = x * 0.5
        turns += 1
        print("turn", turns)
    return x


class _Counting:
    """Counts the graphs that are compiled, and how often they run."""

    def __init__(self) -> None:
        self.compiled = self.run = 0

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.compiled += 1

        def call(*arguments: Any) -> Any:
            self.run += 1
            return module.forward(*arguments)

        return call


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


INPUTS = (torch.full((4,), 8.0), torch.full((4,), 16.0), torch.full((4,), 1.1))


def _seen(
    program: Callable[[Tensor], Any], capsys: pytest.CaptureFixture[str]
) -> tuple[str, str, _Counting]:
    torch._dynamo.reset()
    backend = _Counting()
    compiled = torch.compile(program, backend=backend)
    capsys.readouterr()
    results = [compiled(x.clone()) for x in INPUTS]
    return repr(results), capsys.readouterr().out, backend


@pytest.mark.parametrize(
    "program", [_stops_inside, _stops_always, _collects, _selects, _stores, _says]
)
def test_a_loop_that_breaks_runs_in_no_more_graphs_than_stock(
    program: Callable[[Tensor], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    *expected, stock = _seen(program, capsys)
    bcmend.patch(program)
    *found, mended = _seen(program, capsys)
    assert found == expected
    assert mended.compiled <= stock.compiled
    assert mended.run <= stock.run


def _code(source: str) -> CodeType:
    scope: dict[str, Any] = {}
    exec(source, scope)
    code: CodeType = scope["f"].__code__
    return code


def _names_in_loops(source: str) -> set[str]:
    code = _code(source)
    inside = places_in_loops(code)
    return {
        str(each.argval)
        for each in dis.get_instructions(code)
        if each.positions is not None
        and (each.opname, *each.positions) in inside
        and each.opname == "LOAD_GLOBAL"
    }


def test_places_before_a_jump_back_are_in_a_loop() -> None:
    source = "def f(x):\n before()\n for _ in x:\n  inside()\n  other()\n behind()\n return x"
    assert _names_in_loops(source) == {"inside", "other"}


def test_dynamo_looks_no_further_than_the_first_return() -> None:
    source = "def f(x):\n for _ in x:\n  inside()\n  if x: return x\n  other()\n return 0"
    assert _names_in_loops(source) == {"other"}
