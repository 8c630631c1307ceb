"""What an arm changes of a container that the call has made and something from before holds."""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call

TABLE: dict[str, Any] = {}
HOLDER = SimpleNamespace(kept=None)


def _in_a_dictionary(made: Any) -> Callable[[], Any]:
    TABLE["made"] = made
    return lambda: TABLE["made"]


def _in_an_attribute(made: Any) -> Callable[[], Any]:
    HOLDER.kept = made
    return lambda: HOLDER.kept


def _in_another(made: Any) -> Callable[[], Any]:
    TABLE["rows"] = [made, 0]
    return lambda: TABLE["rows"][0]


def _in_an_object(made: Any) -> Callable[[], Any]:
    HOLDER.kept = SimpleNamespace(inner=(made,))
    return lambda: HOLDER.kept.inner[0]


def _add_in_place(held: Any) -> None:
    held += [1]


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "+=": (lambda: [3], _add_in_place),
    "append": (lambda: [3], lambda held: held.append(1)),
    "extend": (lambda: [3], lambda held: held.extend([1])),
    "pop": (lambda: [3, 4], lambda held: held.pop()),
    "item": (lambda: [3], lambda held: held.__setitem__(0, 5)),
    "key": (lambda: {"a": 1}, lambda held: held.update(b=2)),
    "add": (lambda: {1}, lambda held: held.add(2)),
    "queue": (lambda: collections.deque([1]), lambda held: held.append(2)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "hold",
    [_in_a_dictionary, _in_an_attribute, _in_another, _in_an_object],
    ids=lambda each: each.__name__,
)
def test_a_change_is_of_its_side(hold: Callable[[Any], Callable[[], Any]], change: str) -> None:
    begin, alter = CHANGES[change]

    def make() -> Callable[[Tensor], Any]:
        def program(x: Tensor) -> Any:
            held = hold(begin())
            if x.sum() > 0:
                alter(held())
            return x + len(held()), len(held())

        return program

    inputs = (torch.ones(2), -torch.ones(2), -torch.ones(2), torch.ones(2))
    assert_equivalent(
        make, lambda: [call(each) for each in inputs], fullgraph=False, graphs=None, recompiles=None
    )
