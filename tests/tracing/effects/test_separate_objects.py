"""Two objects from before a call that are one in a later call, and two again after that."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class _Counter:
    def __init__(self) -> None:
        self.n = 1


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 1

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n


class _Items(list[int]):
    """A list of a class of its own."""


def _count(owner: Any) -> None:
    owner.n += 1


def _set_first(owner: Any) -> None:
    owner[0] = 7


def _first(owner: Any) -> Any:
    return owner[0]


def _append(owner: Any) -> None:
    owner.append(5)


#: What is made, what is done to the one, and what is read of the other.
_KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1], _append, len),
    "item": (lambda: [1], _set_first, _first),
    "list of lists": (lambda: [[1]], lambda owner: owner[0].append(2), lambda owner: len(owner[0])),
    "dictionary": (lambda: {0: 1}, _set_first, _first),
    "keys": (lambda: {0: 1}, lambda owner: owner.update({2: 3}), len),
    "ordered": (lambda: collections.OrderedDict({0: 1}), _set_first, _first),
    "default": (lambda: collections.defaultdict(int, {0: 1}), _set_first, _first),
    "set": (lambda: {1}, lambda owner: owner.add(4), len),
    "deque": (lambda: collections.deque([1]), _append, len),
    "own list": (lambda: _Items([1]), _append, len),
    "object": (_Counter, _count, lambda owner: owner.n),
    "module": (_Layer, _count, lambda owner: owner.n),
}


class _Pair(nn.Module):
    """Has two objects, which are one in every second call."""

    one: Any
    other: Any

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.make = make
        self.calls = 0

    def renew(self) -> None:
        self.one = self.make()
        self.other = self.one if self.calls % 2 else self.make()
        self.calls += 1


class _Held(_Pair):
    def __init__(self, kind: str) -> None:
        make, self.change, self.read = _KINDS[kind]
        super().__init__(make)

    def forward(self, x: Tensor) -> Tensor:
        self.change(self.one)
        y = x + self.read(self.other)
        return y * 2 if x.sum() > 0 else y - 1


_CALLS = [torch.full((2,), sign) for sign in (1.0, -1.0, 2.0, -2.0, 3.0)]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_done_to_one_is_done_to_the_other(kind: str, fullgraph: bool) -> None:
    eager, patched = _Held(kind), bcmend.patch(_Held(kind))
    compiled = torch.compile(patched, backend="eager", fullgraph=fullgraph)
    for x in _CALLS:
        eager.renew()
        patched.renew()
        assert torch.equal(compiled(x), eager(x))


class _Asked(_Pair):
    def __init__(self, make: Callable[[], Any], ask: Callable[[Any, Any], Any]) -> None:
        super().__init__(make)
        self.ask = ask

    def forward(self, x: Tensor) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        return y, self.ask(self.one, self.other)


_QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "is": lambda one, other: one is other,
    "is not": lambda one, other: one is not other,
    "in": lambda one, other: one in [other],
}
_OF_OBJECTS = {**_QUESTIONS, "equal": lambda one, other: one == other}


@pytest.mark.parametrize("question", _OF_OBJECTS)
@pytest.mark.parametrize("make", [_Counter, _Layer])
def test_which_object_it_is(make: Callable[[], Any], question: str) -> None:
    _ask(make, _OF_OBJECTS[question])


@pytest.mark.parametrize("question", ["is", "is not"])
@pytest.mark.parametrize(
    "make", [lambda: (torch.ones(1), 0), lambda: ([1], 0), list, dict, set, collections.deque]
)
def test_which_container_it_is(make: Callable[[], Any], question: str) -> None:
    _ask(make, _QUESTIONS[question])


def _ask(make: Callable[[], Any], question: Callable[[Any, Any], Any]) -> None:
    eager, patched = _Asked(make, question), bcmend.patch(_Asked(make, question))
    compiled = torch.compile(patched, backend="eager")
    for x in _CALLS:
        eager.renew()
        patched.renew()
        result, answer = compiled(x)
        wanted, right = eager(x)
        assert torch.equal(result, wanted) and answer is right


class _Layers(nn.Module):
    """Counts in some layers and reads of all; two of them may be one."""

    def __init__(self, counting: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer() for _ in range(4))
        self.counting = counting

    def forward(self, x: Tensor) -> Tensor:
        for number in self.counting:
            x = self.layers[number](x)
        if x.sum() > 0:
            x = x - 1
        return x * sum(layer.n for layer in self.layers)


@pytest.mark.parametrize("counting", [(1,), (0, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("places", [(0, 1), (1, 3), (2, 3)])
def test_layers_that_are_tied_later(counting: Sequence[int], places: tuple[int, int]) -> None:
    eager, patched = _Layers(counting), bcmend.patch(_Layers(counting))
    compiled = torch.compile(patched, backend="eager", fullgraph=True)
    for x in _CALLS[:2]:
        assert torch.equal(compiled(x), eager(x))
    for each in (eager, patched):
        each.layers[places[0]] = each.layers[places[1]]
    for x in _CALLS[2:]:
        assert torch.equal(compiled(x), eager(x))


@pytest.mark.parametrize("training", [True, False])
def test_they_are_guarded_with_inductor(training: bool) -> None:
    assert_equivalent(
        _Tied,
        lambda: [call(x.clone()) for x in _CALLS],
        backend="inductor",
        fullgraph=True,
        graphs=None,
        recompiles=None,  # the lists grow
        training=training,
    )


class _Tied(nn.Module):
    """Changes which of its lists are one, in the call itself."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = [1], [1]

    def forward(self, x: Tensor) -> Tensor:
        self.one.append(5)
        y = x * len(self.other)
        if x.sum() > 0:
            y = y - 1
        if len(self.one) == 3:
            self.other = self.one
        return y


def test_what_is_read_alone_may_be_one() -> None:
    """Nothing is compiled anew where nobody could tell."""
    graphs = []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module

    held = {"one": [1], "other": [1], "third": [1]}

    def program(x: Tensor) -> Tensor:
        held["third"].append(1)
        return x + len(held["one"]) if x.sum() > 0 else x - len(held["other"])

    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    compiled(torch.ones(2))
    held["third"] = [1]
    held["one"] = held["other"]
    compiled(torch.ones(2))
    assert len(graphs) == 1


class _Chosen(nn.Module):
    """Has two names for one tuple, of which a branch stores to one; torch may break between."""

    def __init__(self, pair: Any) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, x: Tensor) -> Any:
        known = self.pair
        other = known
        if x[0] > 0:
            other = self.pair if x.sum() > 2 else (self.pair[0], 2)
        return x + 1, other is known


@pytest.mark.parametrize("make", [lambda: (1, 0), lambda: ([0], 0), lambda: (torch.ones(1), 0)])
def test_a_tuple_behind_a_break_is_the_one_before_it(make: Callable[[], Any]) -> None:
    eager, patched = _Chosen(make()), bcmend.patch(_Chosen(make()))
    compiled = torch.compile(patched, backend="eager")
    for x in ([0.1, 0.7], [4.0, -3.0], [60.0, -70.0], [-1.0, 0.5], [9.0, 1.0]):
        (_, found), (_, wanted) = compiled(torch.tensor(x)), eager(torch.tensor(x))
        assert found is wanted
