"""Objects of classes that are derived from containers, and slotted ones, with chosen values."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call


class _Listed(list[Any]):
    """A list of a class of its own."""


class _Tagged(list[Any]):
    def __init__(self, *items: Any) -> None:
        super().__init__(items)
        self.tag = "new"


@dataclasses.dataclass(slots=True)
class _Output:
    y: Tensor
    loss: Tensor | None = None


def _with_a_chosen_item(x: Tensor) -> Any:
    return _Listed([x.mean() if x.sum() > 0 else None, x + 1])


def _made_on_both_sides(x: Tensor) -> Any:
    if x.sum() > 0:
        return _Listed([x * 2]), [_Tagged(1, x + 1)]
    return _Listed([x - 1, 3]), [_Tagged(2)]


def _changed_on_one_side(x: Tensor) -> Any:
    found = _Tagged(1)
    if x.sum() > 0:
        found.tag = "changed"
        found.append(x + 1)
    return found, found.tag, len(found)


def _in_slots(x: Tensor) -> Any:
    loss = x.mean() if x.sum() > 0 else None
    return _Output(x * 2, loss), [_Output(x + 1, loss)]


def _replaced_in_slots(x: Tensor) -> Any:
    found = _Output(x * 2)
    if x.sum() > 0:
        found = dataclasses.replace(found, loss=x.mean())
    return found


PROGRAMS: list[Callable[[Tensor], Any]] = [
    _with_a_chosen_item,
    _made_on_both_sides,
    _changed_on_one_side,
    _in_slots,
    _replaced_in_slots,
]


def _calls() -> list[Any]:
    x = torch.tensor([1.0, 2.0])
    return [call(each) for each in (x, -x, x / 2)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_classes_and_items_are_those_of_eager_execution(program: Callable[[Tensor], Any]) -> None:
    assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize("program", PROGRAMS[3:])
def test_slotted_outputs_are_one_graph(program: Callable[[Tensor], Any]) -> None:
    assert_equivalent(lambda: program, _calls)


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("method", ["move_to_end", "popitem"])
def test_the_end_of_a_dictionary_depends_on_data(method: str) -> None:
    def program(x: Tensor) -> Any:
        found = OrderedDict(a=1, b=2, c=3)
        key = ("a",) * (method == "move_to_end")
        getattr(found, method)(*key, last=bool(x[0] > 0))
        return list(found), x + 1

    mended = torch.compile(bcmend.patch(program), backend="eager")
    for sign in (1, -1, 1):
        x = torch.ones(2) * sign
        assert mended(x)[0] == program(x)[0]
