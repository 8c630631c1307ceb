"""Of two equal containers from before the call, a branch leaves the very one."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

_TABLE: dict[str, Any] = {}

MAKERS: list[Callable[[], Any]] = [
    lambda: [1],
    list,
    lambda: {"k": 1},
    lambda: {1},
    lambda: deque([1]),
    lambda: OrderedDict(k=1),
    lambda: defaultdict(list, k=[1]),
    lambda: [[1]],
]


def _change(held: Any) -> None:
    if isinstance(held, (list, deque)):
        held.append(2)
    elif isinstance(held, set):
        held.add(2)
    else:
        held["l"] = 2


class _Net(nn.Module):
    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.a, self.b = make(), make()
        self.table = {"p": make()}
        self.o = make()
        self.nested = {"q": {"p": make()}}


class _AnItem(_Net):
    """What ``hold`` makes of one of the equal containers has it at ``key``."""

    def __init__(self, make: Callable[[], Any], hold: Callable[[Any], Any], key: Any) -> None:
        super().__init__(make)
        self.holder, self.key = hold(make()), key

    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.holder[self.key] = self.a
        _change(self.a)
        return self.holder[self.key], self.holder[self.key] is self.a


class _Updated(_Net):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.table.update(p=self.a)
        else:
            self.table.update(p=self.b)
        _change(self.a)
        return self.table["p"], self.table["p"] is self.a, self.table["p"] is self.b


class _AnAttribute(_Net):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.o = self.a
        _change(self.a)
        return self.o, self.o is self.a


class _Nested(_Net):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.nested["q"]["p"] = self.a
        _change(self.a)
        return self.nested["q"]["p"], self.nested["q"]["p"] is self.a


class _Exchanged(_Net):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.a, self.b = self.b, self.a
        _change(self.a)
        return self.a, self.b


class _Returned(_Net):
    def forward(self, x: Tensor) -> Any:
        chosen = self.a if x.sum() > 0 else self.b
        _change(self.a)
        return chosen, chosen is self.a


class _Collected(_Net):
    def forward(self, x: Tensor) -> Any:
        found = [self.a if x[at] > 0 else self.b for at in range(2)]
        _change(self.a)
        return found, [each is self.a for each in found]


def _item(hold: Callable[[Any], Any], key: Any) -> Callable[[Callable[[], Any]], _Net]:
    return partial(_AnItem, hold=hold, key=key)


PLACES = [
    pytest.param(_item(lambda held: {"p": held}, "p"), id="dict"),
    pytest.param(_item(lambda held: OrderedDict(p=held), "p"), id="OrderedDict"),
    pytest.param(_item(lambda held: [held, 0], 0), id="list"),
    pytest.param(_item(lambda held: deque([held, 0]), 0), id="deque"),
    _Updated,
    _AnAttribute,
    _Nested,
    _Exchanged,
    _Returned,
    _Collected,
]


def _calls() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([1.0, 2.0], [-1.0, -2.0], [3.0, -1.0])]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("place", PLACES)
def test_it_is_that_of_the_side_that_was_taken(
    place: Callable[[Callable[[], Any]], _Net], make: Callable[[], Any]
) -> None:
    assert_equivalent(lambda: place(make), _calls, fullgraph=False, graphs=None, recompiles=None)


def _in_a_table(x: Tensor) -> Any:
    a = _TABLE["a"]
    if x.sum() > 0:
        _TABLE["p"] = a
    a.append(2)
    return _TABLE["p"], _TABLE["p"] is a


@pytest.mark.parametrize("equal", [True, False])
def test_an_item_of_a_global_dictionary(equal: bool) -> None:
    def make() -> Any:
        _TABLE.clear()
        _TABLE.update(a=[1], p=[1] if equal else [2])
        return _in_a_table

    assert_equivalent(make, _calls, fullgraph=False, graphs=None, recompiles=None)


class _Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nest = [[1], [2]]
        self.kept: list[Tensor] = []


class _AppendsToOne(_Lists):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.nest[0].append(3)
        return self.nest


class _ReadsOne(_Lists):
    def forward(self, x: Tensor) -> Any:
        count = len(self.nest[0])
        y = x * 2 if x.sum() > 0 else x + count
        return y, self.nest


class _Keeps(_Lists):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.kept.append(x + 1)
        return len(self.kept)


class _Comprehended(_Lists):
    def forward(self, x: Tensor) -> Any:
        log: list[int] = []
        return [log.append(0) or len(log) for at in range(2) if x[at] > 0]  # type: ignore[func-returns-value]


class _OneTwice(_Lists):
    def forward(self, x: Tensor) -> Any:
        one = [0]
        many = [one for at in range(2) if x[at] > 0]
        return many, list(many)


@pytest.mark.parametrize("make", [_AppendsToOne, _ReadsOne, _Keeps, _Comprehended, _OneTwice])
def test_lists_in_lists(make: type[_Lists]) -> None:
    assert_equivalent(make, _calls, fullgraph=False, graphs=None, recompiles=None)
