"""One container, tensor, array or tuple that stands in two places stays one.

Results, arguments and the object are looked at in one walk, in which what is met again is a number.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import bcmend

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

CALLS = [1.0, -1.0, 2.0, -1.0]


class Holder(nn.Module):
    """Has some places for what a body leaves."""

    def __init__(self, body: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.body = body
        self.hist: list[Any] = []
        self.table: dict[str, Any] = {}
        self.last = self.first = torch.zeros(3)
        self.array = self.same_array = numpy.zeros(3, dtype=numpy.float32)
        self.pair: Any = (torch.zeros(3), 1)
        self.same_pair = self.pair
        self.tensors = [torch.zeros(3)]
        self.also = self.tensors[0]

    def forward(self, x: Tensor) -> Any:
        return self.body(self, x)


class _Walk:
    """Makes plain data of objects; one that was met before is its number."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)) or callable(value):
            return repr(value) if not callable(value) else "callable"
        if id(value) in self.seen:
            return "again", self.seen[id(value)]
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        return type(value).__name__, *self._parts(value)

    def _parts(self, value: Any) -> Iterator[Any]:
        if isinstance(value, (Tensor, numpy.ndarray)):
            yield numpy.asarray(value).tolist()
        elif isinstance(value, dict):
            yield from ((key, self.plain(each)) for key, each in value.items())
        elif isinstance(value, (set, list, tuple, collections.deque)):
            yield from map(self.plain, value)
        else:
            yield self.plain({k: v for k, v in vars(value).items() if not k.startswith("_")})


def _outcome(make: Callable[[], Any], *, compiled: bool) -> tuple[list[Any], int]:
    """Return what each call leaves, and how many graphs there are."""
    program, graphs = make(), list[Any]()

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module

    call = program
    if compiled:
        bcmend.patch(program)
        call = torch.compile(program, backend=backend)
    found, results = [], []
    for number in CALLS:
        x = torch.full((3,), number)
        results.append(call(x))
        fields = {k: v for k, v in vars(program).items() if not k.startswith("_") and k != "body"}
        found.append(_Walk().plain([results, x, fields]))
    return found, len(graphs)


def _name(body: Any) -> str:
    return body.__name__.strip("_") if callable(body) else str(body)


def _check(body: Callable[[Any, Tensor], Any]) -> int:
    eager, _ = _outcome(lambda: Holder(body), compiled=False)
    torch.compiler.reset()
    found, graphs = _outcome(lambda: Holder(body), compiled=True)
    assert found == eager
    return graphs


# A container that a branch or a loop replaces, that something else holds, and that is changed


def _in_a_dictionary(self: Any, x: Tensor) -> Any:
    box, rows = {}, [1]
    if x.sum() > 0:
        rows = [2]
    box["a"] = rows
    rows.append(4)
    return box, x + 1


def _in_an_attribute(self: Any, x: Tensor) -> Any:
    rows = [1]
    if x.sum() > 0:
        rows = [2]
    self.rows = rows
    rows.append(4)
    return x + 1


def _in_a_tuple(self: Any, x: Tensor) -> Any:
    rows = [1]
    if x.sum() > 0:
        rows = [2]
    self.rows = rows, 3
    rows.append(4)
    return x + 1


def _a_dictionary(self: Any, x: Tensor) -> Any:
    rows = {1: 1}
    if x.sum() > 0:
        rows = {2: 2}
    self.rows = rows
    rows[4] = 4
    return x + 1


def _a_set(self: Any, x: Tensor) -> Any:
    rows = {1}
    if x.sum() > 0:
        rows = {2}
    self.rows = rows
    rows.add(4)
    return x + 1


def _a_deque(self: Any, x: Tensor) -> Any:
    rows = collections.deque([1])
    if x.sum() > 0:
        rows = collections.deque([2])
    self.rows = rows
    rows.append(4)
    return x + 1


def _stored_by_an_arm(self: Any, x: Tensor) -> Any:
    rows: dict[str, Any] = {}
    if x.sum() > 0:
        self.rows = rows
        rows["a"] = 1
    return x + 1


def _in_what_an_arm_makes(self: Any, x: Tensor) -> Any:
    rows, box = [2], {}
    if x.sum() > 0:
        box = {"k": rows}
        rows.extend([5, 6])
    self.box = box
    return x + 1


def _rows_of_rows(self: Any, x: Tensor) -> Any:
    rows, row = [], []
    for number in range(3):
        row.append(number)
        if x[number] > 0:
            rows.append(row)
            row = []
    rows.append(row)
    return rows, x + 1


def _one_object_on_one_side(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        one = other = {1}
    else:
        one, other = {1}, {1}
    one.add(2)
    return len(other), x + 1


def _one_deque_on_one_side(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        one = other = collections.deque([1])
    else:
        one, other = collections.deque([1]), collections.deque([1])
    one.append(2)
    return one is other, len(other), x + 1


def _inside_of_one(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        one = [{1}]
        other = one[0]
    else:
        one, other = [{1}], {1}
    one[0].add(2)
    return len(other), x + 1


def _a_loop_makes_equal_lists(self: Any, x: Tensor) -> Any:
    first = last = [0]
    while x.sum() > 4:
        last = [0]
        x = x / 2
    last.append(1)
    return x + 1, len(first), first is last


def _a_loop_makes_equal_dictionaries(self: Any, x: Tensor) -> Any:
    first = last = {0: 0}
    while x.sum() > 4:
        last = {0: 0}
        x = x / 2
    last[1] = 1
    return x + 1, len(first), first is last


def _a_loop_carries_what_a_list_of_before_holds(self: Any, x: Tensor) -> Any:
    state, y = [x], x + 0
    self.hist.append(state)
    while y.sum() > 4:
        y = y / 2
        state = [y]
    state.append(y)
    return y + 1


def _a_loop_carries_what_a_dictionary_of_before_holds(self: Any, x: Tensor) -> Any:
    state, y = {"a": x}, x + 0
    self.table["s"] = state
    while y.sum() > 4:
        y = y / 2
        state = {"a": y}
    state["b"] = y
    return y + 1


def _twice_in_a_tuple(self: Any, x: Tensor) -> Any:
    y = x * 3
    for _ in range(4):
        y = y / 2
        row = [y]
        both = row, row
        if y.sum() < 3.5:
            break
    return y, both[0] is both[1], both


def _twice_in_a_list_that_a_loop_makes(self: Any, x: Tensor) -> Any:
    row, y = [x], x + 0
    both = [row, row]
    for _ in range(12):
        if y.sum() < 3.5:
            break
        y = y / 2
        row = [y]
        both = [row, row]
    both[0].append(1)
    return y, len(both[1]), both


CONTAINERS = [
    _in_a_dictionary,
    _in_an_attribute,
    _in_a_tuple,
    _a_dictionary,
    _a_set,
    _a_deque,
    _stored_by_an_arm,
    _in_what_an_arm_makes,
    _rows_of_rows,
    _one_object_on_one_side,
    _one_deque_on_one_side,
    _inside_of_one,
    _a_loop_makes_equal_lists,
    _a_loop_makes_equal_dictionaries,
    _a_loop_carries_what_a_list_of_before_holds,
    _a_loop_carries_what_a_dictionary_of_before_holds,
    _twice_in_a_tuple,
    _twice_in_a_list_that_a_loop_makes,
]


@pytest.mark.parametrize("body", CONTAINERS, ids=_name)
def test_a_container_stays_one(body: Callable[..., Any]) -> None:
    _check(body)


# One tensor that an arm puts in two places


def _appended_and_stored(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        found = x * 3
        self.hist.append(found)
        self.last = found
    else:
        self.last += 1
    return x + 1


def _appended_and_stored_on_one_side(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        found = x * 3
        self.hist.append(found)
        self.last = found
    return x + 1


def _appended_stored_and_changed_later(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        found = x * 3
        self.hist.append(found)
        self.last = found
    self.last.add_(1)
    return x + 1


def _a_new_key_and_stored(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        found = x * 3
        self.table["a"] = found
        self.last = found
    return x + 1


def _appended_and_returned(self: Any, x: Tensor) -> Any:
    found = x + 1
    if x.sum() > 0:
        found = x * 3
        self.hist.append(found)
    return found


def _a_view_of_what_is_stored(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        found = x * 3
        self.hist.append(found.view(3))
        self.last = found
    self.last.add_(1)
    return x + 1


def _stored_and_returned(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.last = x * 3
    return self.last


def _stored_and_stored_again(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.last = x * 3
    self.first = self.last
    return x + 1


def _stored_and_appended(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.last = x * 3
    self.hist.append(self.last)
    return x + 1


def _an_item_of_a_list(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.tensors[0] = x * 3
    return x + 1


def _an_item_of_a_list_that_moves(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.tensors[0] = x * 3
    self.tensors.insert(0, None)
    return x + 1


def _stored_in_an_inner_branch(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        if x[0] > 1.5:
            self.last = x * 3
    return self.last


TENSORS = [
    _appended_and_stored,
    _appended_and_stored_on_one_side,
    _appended_stored_and_changed_later,
    _a_new_key_and_stored,
    _appended_and_returned,
    _a_view_of_what_is_stored,
    _stored_and_returned,
    _stored_and_stored_again,
    _stored_and_appended,
    _an_item_of_a_list,
    _an_item_of_a_list_that_moves,
    _stored_in_an_inner_branch,
]


@pytest.mark.parametrize("body", TENSORS, ids=_name)
def test_a_tensor_stays_one(body: Callable[..., Any]) -> None:
    _check(body)


def test_a_tensor_that_an_arm_returns_and_stores_is_one_output_of_one_graph() -> None:
    assert _check(_stored_and_returned) == 1
    assert _check(_stored_and_stored_again) == 1


# Arrays of numpy, and tuples


def _an_array_replaced_on_one_side(self: Any, x: Tensor) -> Any:
    self.keep = self.array
    if x.sum() > 0:
        self.array[0] += 1
    else:
        self.array = self.array + 1
    return x + 1


def _an_array_replaced(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.array = self.array + 1
    return x + 1


def _an_array_of_two(self: Any, x: Tensor) -> Any:
    chosen = self.array if x.sum() > 0 else self.same_array
    chosen[0] += 1
    self.current = chosen
    return x + 1


def _an_array_returned(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        return self.array
    return self.array + 1


def _an_array_of_a_loop(self: Any, x: Tensor) -> Any:
    array, y = self.array, x + 0
    while y.sum() > 4:
        array = array + 1
        y = y / 2
    self.keep = array
    return y


def _a_tuple_of_numbers(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.pair = (*self.pair, 1)
    return x + 1


def _a_tuple_of_tensors(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.pair = (x * 2, 1)
    return x + 1


def _a_tuple_that_is_stored_again(self: Any, x: Tensor) -> Any:
    if x.sum() > 0:
        self.pair = (x * 2, 1)
    self.old = self.pair
    return x + 1


def _a_tuple_of_a_list(self: Any, x: Tensor) -> Any:
    rows: list[int] = []
    if x.sum() > 0:
        self.pair = (rows, 1)
    return x + 1


def _a_tuple_or_none(self: Any, x: Tensor) -> Any:
    self.keep = self.pair if x.sum() > 0 else None
    return x + 1


ARRAYS = [
    _an_array_replaced_on_one_side,
    _an_array_replaced,
    _an_array_of_two,
    _an_array_returned,
    _an_array_of_a_loop,
]
TUPLES = [
    _a_tuple_of_numbers,
    _a_tuple_of_tensors,
    _a_tuple_that_is_stored_again,
    _a_tuple_of_a_list,
    _a_tuple_or_none,
]


@pytest.mark.parametrize("body", [*ARRAYS, *TUPLES], ids=_name)
def test_an_array_or_a_tuple_stays_one(body: Callable[..., Any]) -> None:
    _check(body)


# What only the frame holds is still merged


def _a_list_of_the_frame(self: Any, x: Tensor) -> Any:
    rows = [x]
    if x.sum() > 0:
        rows.append(x * 2)
    else:
        rows.append(x * 3)
    return rows


def _a_list_that_arms_make(self: Any, x: Tensor) -> Any:
    rows = [x + 1, x + 2] if x.sum() > 0 else [x * 2, x * 3]
    rows.append(x - 1)
    return rows


@pytest.mark.parametrize("body", [_a_list_of_the_frame, _a_list_that_arms_make], ids=_name)
def test_what_only_the_frame_holds_is_one_graph(body: Callable[..., Any]) -> None:
    assert _check(body) == 1


class Viewed:
    """Has views of the keys of two equal dictionaries."""

    def __init__(self) -> None:
        self.one, self.other = {"a": 1}, {"a": 1}
        self.v, self.w = self.one.keys(), self.other.keys()
        self.k: Any = None


def _picks_a_view(x: torch.Tensor, s: Viewed) -> torch.Tensor:
    if x.sum() > 0:
        s.k = s.v
    else:
        s.k = s.w
    return x + 1


def _stores_a_view(x: torch.Tensor, s: Viewed) -> torch.Tensor:
    if x.sum() > 0:
        s.v = s.w
    s.one["z"] = len(s.v)
    return x + 1


@pytest.mark.parametrize("program", [_picks_a_view, _stores_a_view])
def test_views_that_are_equal_are_not_one(program: Any) -> None:
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    for sign in (-1, 1, -1):
        shown = []
        for call in (program, compiled):
            state = Viewed()
            call(torch.ones(2) * sign, state)
            state.other["q"] = 2
            shown.append([list(each) for each in (state.v, state.w, state.k or ())])
        assert shown[0] == shown[1]
    bcmend.unpatch()
