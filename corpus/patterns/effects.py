"""Branches whose arms change something that outlives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import SPLIT, WHERE, pattern, patterns_among, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]

ALIAS = "a changed alias is refused, not split"


@pattern(signs, WHERE)
def attribute_in_both_arms() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.zeros(3)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.last = x.detach() * 2
            else:
                self.last = x.detach() - 1
            return x + self.last

    return Net()


@pattern(signs, WHERE)
def attribute_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.zeros(3)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.last = x.detach() * 2 + self.last
            return x + self.last

    return Net()


@pattern(signs, WHERE)
def attribute_of_a_plain_object() -> Program:
    class State:
        def __init__(self) -> None:
            self.value = torch.zeros(3)

    state = State()

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            state.value = x.detach() * 2
        else:
            state.value = state.value + 1
        return x * state.value

    return program


# An int on a module is a constant of the graph, patched or not: another value, another graph.
@pattern(signs, WHERE, graphs=2, recompiles=1)
def number_counted_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            if x.sum() > 0:
                self.count += 1
                y = x * 2
            return y + 1

    return Net()


@pattern(signs, WHERE)
def buffer_assigned() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.mean = self.mean * 0.9 + x.detach() * 0.1
            return x - self.mean

    return Net()


@pattern(signs, WHERE)
def buffer_changed_in_place() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.mean.mul_(0.9).add_(x.detach() * 0.1)
            return x - self.mean

    return Net()


@pattern(signs, WHERE, graphs=2, recompiles=1)
def buffer_registered_in_both_arms() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(3))
            self.register_buffer("original", torch.full((3,), 2.0))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.register_buffer("scale", x.detach() * 2, persistent=False)
            else:
                self.register_buffer("scale", self.original * 1, persistent=False)
            return x * self.scale

    return Net()


@pattern(signs, WHERE, graphs=3, recompiles=2)
def attribute_initialised_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("short", torch.ones(3), persistent=False)

        def _long(self) -> Tensor:
            return torch.arange(3.0)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                if not hasattr(self, "long"):
                    self.register_buffer("long", self._long(), persistent=False)
                self.register_buffer("scale", self.long, persistent=False)
            else:
                self.register_buffer("scale", self.short, persistent=False)
            return x * self.scale

    return Net()


def _list_and_vector() -> list[Call]:
    one = torch.tensor([1.0, 2.0])
    return [call([one, one * 2], one.clone()), call([one, one * 2], -one)]


@pattern(_list_and_vector, WHERE, training=False)
def item_of_a_list_argument() -> Program:
    def program(items: list[Tensor], x: Tensor) -> Tensor:
        if x.sum() > 0:
            items[0] = x * 2
        else:
            items[1] = x - 1
        return items[0] + items[1]

    return program


@pattern(signs, WHERE)
def item_of_a_list_attribute() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history = [torch.zeros(3), torch.ones(3)]

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.history[0] = x.detach() * 2
            else:
                self.history[1] = x.detach() - 1
            return self.history[0] * x + self.history[1]

    return Net()


@pattern(signs, WHERE)
def item_of_a_local_list() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1, x + 2]
        if x.sum() > 0:
            items[0] = x * 2
        else:
            items[1] = x - 1
        return items

    return program


@pattern(signs, WHERE)
def list_that_each_arm_changes_and_returns() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1, x + 2]
        if x.sum() > 0:
            items[0] = x * 2
            return items
        items[1] = x - 1
        return items

    return program


@pattern(signs, WHERE)
def list_that_one_arm_fills_and_both_return() -> Program:
    def program(x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        items = [x + 1]
        same = items
        if x.sum() > 0:
            items.append(x * 2)
            return items, same
        items[0] = x - 1
        return items, same

    return program


def _dict_and_vector() -> list[Call]:
    one = torch.tensor([1.0, 2.0])
    return [call({"a": one, "b": one * 2}, one.clone()), call({"a": one, "b": one * 2}, -one)]


@pattern(_dict_and_vector, WHERE, training=False)
def item_of_a_dictionary_argument() -> Program:
    def program(items: dict[str, Tensor], x: Tensor) -> Tensor:
        if x.sum() > 0:
            items["a"] = x * 2
            items["new"] = x
        else:
            items["new"] = x + 1
        return items["a"] + items["new"]

    return program


@pattern(signs, WHERE)
def local_list_appended_in_both_arms() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1]
        if x.sum() > 0:
            items.append(x * 2)
        else:
            items.append(x - 1)
        return items

    return program


@pattern(signs, WHERE)
def list_appended_in_one_arm() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1]
        if x.sum() > 0:
            items.append(x * 2)
        items.append(x)
        return items

    return program


@pattern(signs, WHERE)
def variable_of_an_enclosing_function() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        total = x.detach() * 0

        def change() -> Tensor:
            nonlocal total
            if x.sum() > 0:
                total = total + 1
                y = x * 2
            else:
                total = total - 1
                y = x - 1
            return y

        y = change() + change()
        return y, total

    return program


@pattern(signs, WHERE)
def variable_kept_between_calls() -> Program:
    total = torch.zeros(3)

    def program(x: Tensor) -> Tensor:
        nonlocal total
        if x.sum() > 0:
            total = total + x.detach()
        return x + total

    return program


@pattern(signs, WHERE)
def variable_that_a_nested_function_reads() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1

        def reader() -> Tensor:
            return y + 1

        return reader() * y

    return program


@pattern(signs, WHERE, training=False)
def argument_changed_in_place() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x.add_(1)
        return x * 2

    return program


@pattern(signs, WHERE)
def intermediate_changed_in_place() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y.add_(1)
        else:
            y[0] = 5
        return y

    return program


@pattern(signs, WHERE)
def own_tensor_changed_in_place() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
            y.add_(1)
            y[0] = 0
        else:
            y = x - 1
        return y

    return program


@pattern(signs, SPLIT, may_copy=True)
def alias_changed_after_the_branch() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        w = x * 1
        if x.sum() > 0:
            z = w
        else:
            z = x - 1
        z.add_(10)
        return z, w

    return program


@pattern(signs, SPLIT, may_copy=True)
def source_of_an_alias_changed_after_the_branch() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        w = x * 1
        if x.sum() > 0:
            z = w[:]
        else:
            z = x - 1
        w.add_(10)
        return z, w

    return program


@pattern(signs, WHERE, may_copy=True)
def alias_of_an_input_returned() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return x - 1

    return program


@pattern(signs, WHERE, training=False)
def argument_changed_before_the_branch() -> Program:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        x.mul_(2)
        return y

    return program


PATTERNS = patterns_among(list(vars().values()))
