"""Containers from before the call have what eager execution leaves in them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import bcmend

X = torch.arange(1.0, 4.0)
HOLDER = SimpleNamespace(queue=None, seen=None)


def _left(queue: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        queue.appendleft(7)
    return x + 1


def _many_left(queue: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        queue.extendleft([7, 8])
    return x * len(queue)


def _both_ends(queue: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        queue.append(8)
    queue.appendleft(9)
    return x + queue[0] + queue[-1]


def _tensors_of_either_side(queue: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        queue.appendleft(x * 2)
    else:
        queue.append(x * 3)
    return x + 1


def _looked_at_between(queue: Any, x: Tensor) -> Any:
    queue.appendleft(1)
    if x.sum() > 0:
        queue.append(8)
    queue.extend([4, 5])
    HOLDER.seen = list(queue)
    return x + len(queue)


def _full(queue: Any, x: Tensor) -> Any:
    y = x * 2 if x.sum() > 0 else x
    try:
        queue.insert(1, 5)
    except IndexError:
        return y + queue.maxlen
    return y


def _popped(queue: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        queue.append(5)
    queue.appendleft(3)
    return x + queue.pop()


def _in_place(queue: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        queue += [4, 5, 6, 7]
    return x + 1


def _copied(queue: Any, x: Tensor) -> Any:
    copied = queue.copy()
    if x.sum() > 0:
        copied.appendleft(7)
    HOLDER.seen = (list(copied), copied.maxlen)
    return x + 1


PROGRAMS = (
    _left,
    _many_left,
    _both_ends,
    _tensors_of_either_side,
    _looked_at_between,
    _full,
    _popped,
    _in_place,
    _copied,
)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


@pytest.mark.parametrize("size", [(3, 3), (2, 3), (1, 1), (1, None)], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_limited_deque_holds_what_it_does_in_eager_execution(
    program: Callable[..., Any], size: tuple[int, int | None]
) -> None:
    count, limit = size

    def outcomes(called: Callable[..., Any]) -> list[Any]:
        queue = deque[Any](range(1, count + 1), maxlen=limit)
        found = []
        for x in (X, -X, X):
            HOLDER.seen = None
            result = called(queue, x)
            held = [each.tolist() if isinstance(each, Tensor) else each for each in queue]
            found.append((result.tolist(), held, queue.maxlen, HOLDER.seen))
        return found

    expected = outcomes(program)
    assert outcomes(torch.compile(bcmend.patch(program), backend="eager")) == expected


def test_another_limit_is_traced_anew() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            HOLDER.queue.append(1)
        return x + len(HOLDER.queue)

    def lengths(called: Callable[..., Any]) -> list[Any]:
        found = []
        for limit in (2, None, 3, 2):
            HOLDER.queue = deque([5, 6], maxlen=limit)
            found.append((called(X).tolist(), list(HOLDER.queue)))
        return found

    expected = lengths(program)
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    assert lengths(compiled) == expected


def test_a_limited_deque_is_written_back_by_inductor_in_training() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            HOLDER.queue.appendleft(4)
        return (x * len(HOLDER.queue)).sum()

    def outcome(called: Callable[..., Any]) -> list[Any]:
        HOLDER.queue, found = deque([1, 2], maxlen=2), []
        for x in (X, -X, X):
            given = x.clone().requires_grad_()
            called(given).backward()
            found.append((given.grad.tolist(), list(HOLDER.queue)))
        return found

    expected = outcome(program)
    assert outcome(torch.compile(bcmend.patch(program), fullgraph=True)) == expected


class Slotted:
    """Holds a container under a name of ``__slots__``."""

    __slots__ = ("held",)


class Kept:
    """Containers from before the call, one of them in two places."""

    def __init__(self) -> None:
        self.members = {1, 2, 3}
        self.ordered = OrderedDict(x=1, y=2, z=3)
        self.table: dict[Any, Any] = {"x": 1, "y": 2}
        self.slotted: Any = Slotted()
        self.slotted.held = self.table


def _taken_from_a_set(kept: Kept, x: Tensor) -> Any:
    kept.members -= {1}
    return x + 1 if x.sum() > 0 else x


def _moved_to_the_end(kept: Kept, x: Tensor) -> Any:
    kept.ordered.move_to_end("x")
    return x + 1 if x.sum() > 0 else x


def _moved_to_the_front(kept: Kept, x: Tensor) -> Any:
    if x.sum() > 0:
        kept.ordered.move_to_end("z", last=False)
    return x + len(kept.ordered)


def _put_in_again(kept: Kept, x: Tensor) -> Any:
    kept.table["x"] = kept.table.pop("x")
    return x + 1 if x.sum() > 0 else x


def _another_key(kept: Kept, x: Tensor) -> Any:
    kept.members.discard(1)
    kept.members.add(True)
    return x + 1 if x.sum() > 0 else x


def _changed_and_in_a_slot(kept: Kept, x: Tensor) -> Any:
    kept.table["new"] = 5
    if x.sum() > 0:
        kept.slotted.held = kept.slotted.held
    return x + 1


def _changed_and_put_into_a_slot(kept: Kept, x: Tensor) -> Any:
    kept.table["new"] = 5
    if x.sum() > 0:
        kept.slotted.held = kept.table
    return x + 1


def _contents(kept: Kept) -> Any:
    members = sorted(map(repr, kept.members))
    is_one = kept.slotted.held is kept.table
    return members, list(kept.ordered), list(kept.table.items()), is_one


@pytest.mark.parametrize(
    "program",
    [
        _taken_from_a_set,
        _moved_to_the_end,
        _moved_to_the_front,
        _put_in_again,
        _another_key,
        _changed_and_in_a_slot,
        _changed_and_put_into_a_slot,
    ],
)
def test_containers_have_what_they_have_in_eager_execution(program: Callable[..., Any]) -> None:
    def outcomes(called: Callable[..., Any]) -> list[Any]:
        kept = Kept()
        return [(called(kept, x).tolist(), _contents(kept)) for x in (X, -X, X)]

    expected = outcomes(program)
    assert outcomes(torch.compile(bcmend.patch(program), backend="eager")) == expected


class _Own(torch.Tensor):
    """A subclass, of which Dynamo makes an object around each result."""


def _drawn(x: Tensor, held: dict[str, Any]) -> Any:
    a = numpy.random.rand(2)
    held["one"] = a
    if x.sum() > 0:
        held["other"] = held["one"]
    return a, held["one"]


def _changed_in_place(x: Tensor, held: dict[str, Any]) -> Any:
    a = numpy.sin(numpy.ones(3))
    held["one"] = a
    a += 1
    if x.sum() > 0:
        held["other"] = a
    a[0] = 7
    return a, [a, {"a": a}]


def _views(x: Tensor, held: dict[str, Any]) -> Any:
    a = numpy.random.rand(3)
    b = a[1:]
    held["one"] = a, b
    if x.sum() > 0:
        held["other"] = b
    return a, b, a[1:]


def _of_a_subclass(x: Tensor, held: dict[str, Any]) -> Any:
    b = x.as_subclass(_Own) * 2
    held["one"] = b
    if x.sum() > 0:
        held["other"] = [b, b]
    return b


def _of_an_argument(x: Tensor, held: dict[str, Any]) -> Any:
    b = numpy.sin(held["given"])
    held["one"], held["given"] = b, held["given"]
    if x.sum() > 0:
        held["other"] = b
    return held["given"], b


def _a_tuple_of_constants(x: Tensor, held: dict[str, Any]) -> Any:
    inner = (x.shape[0], "text")
    outer = (inner, inner, 2.5)
    held["one"] = _Opaque(outer)
    if x.sum() > 0:
        held["other"] = [_Opaque(inner), held["one"]]
    return x + 1, [_Opaque(outer), _Opaque(outer[0])]


class _Opaque:
    """Holds a tuple, and is none that `pytree` takes apart."""

    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "program",
    [_a_tuple_of_constants, _drawn, _changed_in_place, _views, _of_a_subclass, _of_an_argument],
)
def test_what_is_made_of_a_result_is_one_object(
    program: Callable[..., Any], fullgraph: bool
) -> None:
    def identities(called: Callable[..., Any]) -> list[list[int]]:
        found = []
        for x in (X, -X, X):
            held: dict[str, Any] = {"given": numpy.ones(2)}
            leaves = pytree.tree_leaves((called(x, held), held))
            tuples = [each.held for each in leaves if isinstance(each, _Opaque)]
            places = [*leaves, *tuples, *(each[0] for each in tuples)]
            found.append([[each is other for other in places].index(True) for each in places])
        return found

    expected = identities(program)
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=fullgraph)
    assert identities(compiled) == expected
