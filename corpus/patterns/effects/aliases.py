"""Arms that change a tensor in place which has views or other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import CHOICE, SPLIT, WHERE, pattern, patterns_among, refused, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, CHOICE, may_copy=True)
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


class _WithBuffer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))


@pattern(signs, WHERE)
def sum_added_to_a_local() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        z = y
        if x.sum() > 0:
            y += x
        y += 1
        return y, z

    return program


@pattern(signs, WHERE)
def view_of_what_is_changed() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        if x.sum() > 0:
            head = y[0]
            y.add_(1)
            y[1:].mul_(2)
        else:
            head = x.sum()
        return y, head * 3

    return program


@pattern(signs, WHERE)
def same_tensor_left_by_both_sides() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        if x.sum() > 0:
            z = y.add_(1)
        else:
            z = y
        z.mul_(2)
        return y, z

    return program


@pattern(signs, WHERE)
def data_changed() -> Any:
    class Net(_WithBuffer):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            if x.sum() > 0:
                self.scale.data.add_(1)
                y.detach().mul_(2)
            return y.sin() * self.scale

    return Net()


@pattern(signs, WHERE)
def alias_read_by_the_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        head = y[:2]
        if x.sum() > 0:
            y.add_(1)
            x = x + head.sum()
        return x + y

    return program


@pattern(signs, WHERE)
def views_of_one_tensor_on_two_sides() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        head, tail = y[:2], y[1:]
        if x.sum() > 0:
            head.add_(1)
        else:
            tail.mul_(2)
        return y

    return program


@pattern(signs, WHERE)
def view_changed_and_its_base_read_later() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        head = y[:2]
        if x.sum() > 0:
            head.mul_(x[1:])
        return y * x

    return program


@pattern(
    signs,
    refused("arm-effects"),
    because=(
        "After one side the tensor has another number of dimensions, in place, so every name "
        "and view of it would have to be two things; a tensor of the graph has one form."
    ),
)
def another_form_in_place() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y.unsqueeze_(0)
        return y + 1

    return program


def _two_vectors() -> list[Call]:
    return [call(torch.tensor([2.0, first]), torch.tensor([1.0, 3.0])) for first in (1.0, -5.0)]


@pattern(_two_vectors, SPLIT, training=False)
def alias_chosen_and_then_changed() -> Program:
    def program(w: Tensor, v: Tensor) -> Tensor:
        z = v
        if w.sum() > 0:
            z = w
        z.add_(1)
        return w * 10 + v

    return program


PATTERNS = patterns_among(list(vars().values()))
