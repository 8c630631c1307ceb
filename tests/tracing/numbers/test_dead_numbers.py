"""Which nodes about numbers are taken out of a graph."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from bcmend import meta_keys
from bcmend.tracing.numbers.dead_numbers import (
    are_made_in,
    close_over,
    drop_unread,
    symbols_of_form,
    symbols_taken,
)


class _Numbers:
    """A graph that takes a number out of its input."""

    def __init__(self) -> None:
        self.environment = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.environment)
        self.graph = Graph()
        self.x = self.graph.placeholder("x")
        self.x.meta["example_value"] = self.mode.from_tensor(torch.ones(1))
        self.number = self.graph.call_method("item", (self.x,))
        self.number.meta["example_value"] = self.environment.create_unbacked_symint()

    def add(self, target: Any, *arguments: Any, example: Any = None) -> Node:
        node = self.graph.call_function(target, arguments)
        node.meta["example_value"] = example
        return node

    def drop(self, *outputs: Node) -> list[str]:
        """Drop what nobody reads; return the names of what is left."""
        self.graph.output(outputs)
        drop_unread(self.graph)
        self.graph.lint()
        return [node.name for node in self.graph.nodes]


def test_a_number_that_nobody_reads_goes_with_what_is_computed_of_it() -> None:
    numbers = _Numbers()
    compared = numbers.add(operator.gt, numbers.number, 1, example=True)
    numbers.add(operator.not_, compared, example=False)
    beside = numbers.add(torch.abs, numbers.x, example=numbers.x.meta["example_value"])
    beside.meta[meta_keys.BESIDE_NUMBER] = True
    assert are_made_in(numbers.graph)
    assert numbers.drop(numbers.x) == ["x", "output"]
    assert not are_made_in(numbers.graph)


def test_what_is_read_stays_with_what_it_is_computed_from() -> None:
    numbers = _Numbers()
    added = numbers.add(
        operator.add, numbers.number, 1, example=numbers.number.meta["example_value"]
    )
    assert numbers.drop(added) == ["x", "item", "add", "output"]


def test_a_number_stays_while_the_size_of_a_tensor_is_described_by_it() -> None:
    numbers = _Numbers()
    size = numbers.number.meta["example_value"]
    torch._check(size >= 0)
    with numbers.mode:
        sized = numbers.add(torch.relu, numbers.x, example=torch.empty(size))
    assert symbols_of_form(sized) == symbols_taken(numbers.number) != set()
    assert symbols_taken(sized) == symbols_of_form(numbers.number) == set()
    assert "item" in numbers.drop(sized)


def test_an_operation_that_may_do_more_than_compute_stays() -> None:
    numbers = _Numbers()
    numbers.add(print, numbers.number)
    assert "print_1" in numbers.drop(numbers.x)


def test_nothing_is_dropped_twice() -> None:
    numbers = _Numbers()
    numbers.graph.output(numbers.x)
    assert drop_unread(numbers.graph) is True
    assert drop_unread(numbers.graph) is False


def test_closing_over_what_nodes_are_computed_from() -> None:
    numbers = _Numbers()
    added = numbers.add(operator.add, numbers.number, 1)
    other = numbers.add(operator.add, numbers.x, 1)
    found: set[Node] = set()
    close_over(found, [added])
    assert found == {added, numbers.number, numbers.x} and other not in found
