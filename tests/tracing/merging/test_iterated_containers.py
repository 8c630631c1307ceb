"""Containers that an arm gives another size while a loop goes over them.

Python's iterators over dictionaries, sets and deques fail at that; those over lists go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call

Step = Callable[[Any, Tensor], None]


class Holding(torch.nn.Module):
    """Has a container, which ``step`` goes over and changes."""

    def __init__(self, made: Any, step: Step) -> None:
        super().__init__()
        self.held = made
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        self.step(self.held, x)
        return x * 2


def _set_item(held: dict[int, int], x: Tensor) -> None:
    for key in held:
        if x.sum() < 0:
            held[key * 2] = 0


def _set_item_by_items(held: dict[int, int], x: Tensor) -> None:
    for key, value in held.items():
        if x.sum() < 0:
            held[key * 20] = value


def _set_item_by_keys(held: dict[int, int], x: Tensor) -> None:
    for key in held.keys():
        if x.sum() < 0:
            held[key * 20] = 0


def _set_item_by_values(held: dict[int, int], x: Tensor) -> None:
    for value in held.values():
        if x.sum() < 0:
            held[value * 20] = 0


def _set_item_backwards(held: dict[int, int], x: Tensor) -> None:
    for key in reversed(held):
        if x.sum() < 0:
            held[key * 20] = 0


def _set_item_by_items_backwards(held: dict[int, int], x: Tensor) -> None:
    for key, _ in reversed(held.items()):
        if x.sum() < 0:
            held[key * 20] = 0


def _set_item_by_values_backwards(held: dict[int, int], x: Tensor) -> None:
    for _ in reversed(held.values()):
        if x.sum() < 0:
            held[len(held) * 10] = 0


def _delete(held: dict[int, int], x: Tensor) -> None:
    for key in held:
        if x.sum() < 0:
            del held[key]


def _pop(held: dict[int, int], x: Tensor) -> None:
    for key in held:
        if (x * key).sum() < 0:
            held.pop(key)


def _clear(held: dict[int, int], x: Tensor) -> None:
    for _ in held:
        if x.sum() < 0:
            held.clear()


def _at_the_last(held: dict[int, int], x: Tensor) -> None:
    for key in held:
        if key == 2:
            if x.sum() < 0:
                held[9] = 0


def _zipped(held: dict[int, int], x: Tensor) -> None:
    for key, _ in zip(held, [1, 2], strict=False):
        if x.sum() < 0:
            held[key * 20] = 0


def _counted(held: dict[int, int], x: Tensor) -> None:
    for number, key in enumerate(held):
        if x.sum() < 0:
            held[key * 20 + number] = 0


def _in_a_generator(held: dict[int, int], x: Tensor) -> None:
    def keys() -> Iterator[int]:
        yield from held

    for key in keys():
        if x.sum() < 0:
            held[key * 20] = 0


def _in_a_callee(held: dict[int, int], x: Tensor) -> None:
    def grow(key: int) -> None:
        held[key * 20] = 0

    for key in held:
        if x.sum() < 0:
            grow(key)


def _by_an_iterator(held: dict[int, int], x: Tensor) -> None:
    iterator = iter(held)
    next(iterator)
    if x.sum() < 0:
        held[5] = 0
    next(iterator)


def _caught(held: dict[int, int], x: Tensor) -> None:
    try:
        for key in held:
            if x.sum() < 0:
                held[key * 20] = 0
    except RuntimeError:
        held[7] = 7


def _add(held: set[int], x: Tensor) -> None:
    for key in held:
        if x.sum() < 0:
            held.add(key * 20)


def _discard(held: set[int], x: Tensor) -> None:
    for key in held:
        if x.sum() < 0:
            held.discard(key)


def _pop_left(held: deque[int], x: Tensor) -> None:
    for _ in held:
        if x.sum() < 0:
            held.popleft()


def _append_at_the_right(held: deque[int], x: Tensor) -> None:
    for key in held:
        if x.sum() < 0 and len(held) < 6:
            held.append(key)


_OF_DICTIONARIES: list[Step] = [
    *(_set_item, _set_item_by_items, _set_item_by_keys, _set_item_by_values, _delete, _pop, _clear),
    *(_set_item_backwards, _set_item_by_items_backwards, _set_item_by_values_backwards),
    *(_at_the_last, _zipped, _counted, _in_a_generator, _in_a_callee, _by_an_iterator, _caught),
]


def _calls() -> list[Any]:
    return [call(torch.full((2,), value)) for value in (1.0, -1.0, 1.0, -1.0)]


@pytest.mark.parametrize("step", _OF_DICTIONARIES)
def test_an_iterator_over_a_dictionary_fails_as_in_eager_execution(step: Step) -> None:
    _assert_right(lambda: {1: 1, 2: 2}, step)


@pytest.mark.parametrize("step", [_add, _discard])
def test_an_iterator_over_a_set_fails_as_in_eager_execution(step: Step) -> None:
    _assert_right(lambda: {1, 2}, step)


@pytest.mark.parametrize("step", [_pop_left, _append_at_the_right])
def test_an_iterator_over_a_deque_fails_as_in_eager_execution(step: Step) -> None:
    _assert_right(lambda: deque([1, 2, 3]), step)


def _assert_right(make: Callable[[], Any], step: Step, **more: Any) -> None:
    options: dict[str, Any] = {"fullgraph": False, "graphs": None, "recompiles": None, **more}
    assert_equivalent(lambda: Holding(make(), step), _calls, **options)


def test_with_a_back_end_that_takes_graphs_apart() -> None:
    _assert_right(lambda: {1: 1, 2: 2}, _set_item_by_items, backend="aot_eager")


def _replace_values(held: dict[int, int], x: Tensor) -> None:
    for key in held:
        if x.sum() < 0:
            held[key] = held[key] + 1


def _leave_at_once(held: dict[int, int], x: Tensor) -> None:
    for key in held:
        if x.sum() < 0:
            held[key * 20] = 0
            break


def _gather(held: dict[int, int], x: Tensor) -> None:
    for key in list(held):
        if (x * key).sum() < 0:
            held.pop(key)


def _go_over_another(held: dict[int, int], x: Tensor) -> None:
    for key in [1, 2]:
        if x.sum() < 0:
            held[key * 20] = 0


@pytest.mark.parametrize("step", [_replace_values, _leave_at_once, _gather, _go_over_another])
def test_what_no_iterator_sees_is_one_graph(step: Step) -> None:
    _assert_right(lambda: {1: 1, 2: 2}, step, fullgraph=True)


def _append(held: list[int], x: Tensor) -> None:
    for item in held:
        if x.sum() < 0 and len(held) < 6:
            held.append(item)


def _pop_first(held: list[int], x: Tensor) -> None:
    for _ in held:
        if x.sum() < 0:
            held.pop(0)


def _remove(held: list[int], x: Tensor) -> None:
    for item in held:
        if (x * item).sum() < 0:
            held.remove(item)


@pytest.mark.parametrize("step", [_append, _pop_first, _remove])
def test_an_iterator_over_a_list_goes_on(step: Step) -> None:
    _assert_right(lambda: [1, 2, 3], step)
