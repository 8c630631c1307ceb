"""Caches that layers fill, some of which are dropped, and arrays that are computed on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CALL,
    COND,
    NO_MERGE,
    OUTPUT,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


class Slot:
    """What one layer keeps; empty until the layer is called."""

    def __init__(self) -> None:
        self.is_ready = False

    def update(self, value: Tensor) -> Tensor:
        if not self.is_ready:
            self.dtype = value.dtype
            self.kept = value.new_zeros(0, value.shape[-1])
            self.is_ready = True
        self.kept = torch.cat([self.kept, value])
        return self.kept


class Cache:
    """A slot for each layer, and which of them were used."""

    def __init__(self, layers: int) -> None:
        self.slots = [Slot() for _ in range(layers)]
        self.used = dict.fromkeys(range(layers), False)


class _Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        kept = cache.slots[self.number].update(self.linear(x))
        if not cache.used.get(self.number):
            cache.used[self.number] = True
        return x + kept.mean(0).to(x.dtype)


class _Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(number) for number in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Cache]:
        x, cache = x * 1, Cache(3)
        for layer in self.layers:
            if torch.rand([]) < 0.5:
                continue
            x = layer(x, cache)
        return x, cache


@pattern(rows, COND, may_copy=True, zero_gradients=True)
def layer_drop_beside_a_cache() -> Any:
    return _Stack()


@pattern(rows, COND, SPLIT, may_copy=True, zero_gradients=True)
def a_cache_that_is_looked_at_behind_the_layers() -> Any:
    class Net(_Stack):
        def forward(self, x: Tensor) -> Any:
            cache = Cache(1)
            if x.sum() > 0:
                x = self.layers[0](x, cache)
            slot = cache.slots[0]
            return x * 2 if hasattr(slot, "kept") else x - 1

    return Net()


@pattern(signs, NO_MERGE)
def a_table_with_one_entry_that_depends_on_data() -> Program:
    def program(x: Tensor) -> tuple[Any, ...]:
        table = {"a": 1, "b": 2}
        if x.sum() > 0:
            table["a"] = 3
            table["c"] = 4
        return x * table["b"], "b" in table, table.get("z", 7), table

    return program


@pattern(signs, SPLIT)
def a_table_with_one_entry_that_is_read_again() -> Program:
    def program(x: Tensor) -> tuple[Any, ...]:
        table = {"a": 1, "b": 2}
        if x.sum() > 0:
            table["a"] = 3
        return x * table["a"], table

    return program


class Scaled:
    """Before 3.12 CPython holds a lock while such a property is computed."""

    @functools.cached_property
    def factor(self) -> int:
        return 3


@pattern(signs, WHERE)
def a_property_that_is_computed_once() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Scaled]:
        scaled = Scaled()
        if x.sum() > 0:
            x = x + 1
        return x * scaled.factor * scaled.factor, scaled

    return program


def spans(shape: tuple[int, int], lengths: Tensor, width: int) -> Any:
    """Return a mask of spans at random places, as many in each row as its length allows."""
    mask = numpy.zeros(shape, dtype=bool)
    extra = numpy.random.rand(1).item()
    for row, length in enumerate(lengths.tolist()):
        count = max(1, int(length / (2 * width) + extra))
        starts = numpy.random.choice(numpy.arange(length - width + 1), count, replace=False)
        for start in starts:
            mask[row, start : start + width] = True
    return mask


def _lengths() -> list[Call]:
    x = torch.arange(16.0).reshape(2, 8)
    return [call(x.clone(), torch.tensor(each)) for each in ([8, 6], [4, 8], [8, 8], [3, 5])]


@pattern(_lengths, CALL)
def spans_that_are_drawn_on_the_host() -> Program:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.tensor(spans((2, 8), lengths, 2), dtype=torch.bool)
        return torch.where(mask, x * 0, x * 3) + torch.rand(8)

    return program


@pattern(_lengths, CALL, OUTPUT, graphs=1)
def spans_that_may_fail_on_the_host() -> Program:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        print("lengths", lengths)
        mask = torch.from_numpy(spans((2, 8), lengths, 4))  # the last call has too short a row
        return x * mask

    return program


def first_places(kept: Tensor) -> Any:
    """Return an array of a length that the data tell."""
    found = kept.tolist()
    return numpy.array([place for place in range(len(found)) if found[place] > 0])


@pattern(signs, CALL)
def an_array_whose_shape_depends_on_data() -> Program:
    def program(x: Tensor) -> Tensor:
        return x[torch.from_numpy(first_places(x.detach()))] * 2

    return program


@pattern(rows, CALL)
def a_tensor_of_an_array() -> Program:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        array = numpy.random.permutation(4)
        return x * torch.tensor(array), torch.tensor(array, dtype=torch.float64) + x

    return program


PATTERNS = patterns_among(globals().values())
