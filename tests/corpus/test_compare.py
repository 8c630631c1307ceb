"""The comparison of outputs has to find every difference, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from corpus.models.compare import differences, largest_difference, same_bits


class Pair(NamedTuple):
    first: object
    second: object


@dataclass
class Record:
    value: object


class Cache:
    def __init__(self, *values: torch.Tensor) -> None:
        self.values = list(values)


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


EQUAL = {
    "tensors": lambda: tensor(1.0, -0.0, math.inf),
    "not a number": lambda: tensor(math.nan, 1.0),
    "half precision": lambda: tensor(1.0, 2.0, dtype=torch.float16),
    "complex": lambda: torch.tensor([1j, complex(math.nan, 0)]),
    "boolean": lambda: torch.tensor([True, False]),
    "empty": lambda: torch.empty(0, 3),
    "nested": lambda: {"a": [tensor(1.0), None], "b": (tensor(2.0), {"c": 3})},
    "named tuple": lambda: Pair(tensor(1.0), "text"),
    "dataclass": lambda: Record(tensor(1.0)),
    "object": lambda: Cache(tensor(1.0), tensor(2.0)),
    "float that is not a number": lambda: [math.nan],
}


@pytest.mark.parametrize("make", EQUAL.values(), ids=EQUAL)
def test_two_that_are_made_alike_do_not_differ(make):
    assert list(differences(make(), make())) == []


DIFFERENT = {
    "value": (tensor(1.0), tensor(2.0), "output: values differ by up to 1"),
    "one bit": (tensor(0.0), tensor(-0.0), "output: values differ by up to 0"),
    "one is not a number": (tensor(1.0), tensor(math.nan), "output: values differ by up to nan"),
    "dtype": (
        tensor(1.0),
        tensor(1.0, dtype=torch.float64),
        "output: dtype torch.float32 and torch.float64",
    ),
    "shape": (
        torch.ones(2),
        torch.ones(2, 1),
        "output: shape torch.Size([2]) and torch.Size([2, 1])",
    ),
    "gradient": (
        tensor(1.0),
        tensor(1.0).requires_grad_(),
        "output: requires_grad False and True",
    ),
    "none": (tensor(1.0), None, "output: type Tensor and NoneType"),
    "list and tuple": ([1], (1,), "output: type list and tuple"),
    "length": ([1], [1, 2], "output: parts [0] and [0, 1]"),
    "order of keys": (
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        "output: parts ['a', 'b'] and ['b', 'a']",
    ),
    "inside a dictionary": ({"a": [1, 2]}, {"a": [1, 3]}, "output['a'][1]: 2 and 3"),
    "inside a named tuple": (Pair(1, "x"), Pair(1, "y"), "output[1]: 'x' and 'y'"),
    "inside a dataclass": (Record(1), Record(2), "output['value']: 1 and 2"),
    "inside an object": (
        Cache(tensor(1.0)),
        Cache(tensor(3.0)),
        "output['values'][0]: values differ by up to 2",
    ),
}


@pytest.mark.parametrize("first, second, expected", DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_is_found_and_named(first, second, expected):
    assert list(differences(first, second)) == [expected]


def test_every_difference_is_listed():
    assert len(list(differences([1, tensor(1.0), "x"], [2, tensor(2.0), "x"]))) == 2


def test_an_object_that_holds_itself_ends():
    first, second = Cache(tensor(1.0)), Cache(tensor(1.0))
    first.itself, second.itself = first, second
    assert list(differences(first, second)) == []


def test_strides_are_no_difference():
    square = torch.arange(6.0).reshape(2, 3)
    assert same_bits(square.t(), square.t().contiguous())


def test_equal_infinities_do_not_differ():
    assert largest_difference(tensor(math.inf, 1.0), tensor(math.inf, 1.5)) == 0.5
