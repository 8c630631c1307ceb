"""Which attributes an object has, asked in calls between which others store to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Ask = Callable[[Any], Any]


class Holder:
    pass


class Settings(dict[str, Any]):
    pass


def _names(holder: Any) -> Any:
    return sorted(vars(holder))


def _in_order(holder: Any) -> Any:
    return list(holder.__dict__), tuple(vars(holder))


def _count(holder: Any) -> Any:
    return len(holder.__dict__)


def _has(holder: Any) -> Any:
    return "more" in holder.__dict__, "count" in vars(holder)


@pytest.mark.parametrize("ask", [_names, _in_order, _count, _has])
@pytest.mark.parametrize("make", [Holder, Settings])
def test_attributes_that_are_stored_between_calls(ask: Ask, make: Callable[[], Any]) -> None:
    def program(x: Tensor, holder: Any) -> Any:
        x = x * 2 if x.sum() > 0 else x - 1
        holder.count = 1
        return x, ask(holder)

    def results(called: Callable[..., Any]) -> list[Any]:
        holder, found = make(), []
        for name in ("", "", "more", "most", "-more"):
            if name.startswith("-"):
                delattr(holder, name[1:])
            elif name:
                setattr(holder, name, 2)
            found += [called(torch.ones(2) * sign, holder)[1] for sign in (1, -1)]
        return found

    expected = results(program)
    found = results(torch.compile(bcmend.patch(program), backend="eager", fullgraph=True))
    bcmend.unpatch()
    assert found == expected


@pytest.mark.parametrize("ask", [_names, _count])
def test_attributes_with_names_that_the_data_decide(ask: Ask) -> None:
    def program(x: Tensor, holder: Any) -> Any:
        setattr(holder, f"k{int(x.sum())}", x)
        return ask(holder)

    def results(called: Callable[..., Any]) -> list[Any]:
        holder = Holder()
        return [called(torch.full((1,), value), holder) for value in (1.0, 3.0, 1.0, 3.0, 1.0)]

    expected = results(program)
    found = results(torch.compile(bcmend.patch(program), backend="eager"))
    bcmend.unpatch()
    assert found == expected
