"""Arms that change a tensor in place, running statistics among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import COND, LOOP, WHERE, pattern, patterns_among, refused, rows, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


def _vectors() -> list[Call]:
    """Some positive numbers, none, all, and one."""
    rows = ([1, -2, 3, -4, 2], [-1, -2, -3, -4, -5], [1, 2, 3, 1, 2], [0, 0, 0, 0, 1])
    return [call(torch.tensor(each, dtype=torch.float32)) for each in rows]


@pattern(_vectors, LOOP, training=False)
def turns_that_change_tensors_in_place() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        seen, x = torch.zeros(3), x.abs() + 1
        while x.sum() < 100:
            seen[0] += 1
            seen[1] = x.max()
            x *= 2
        return x, seen

    return program


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


class _WithBuffer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))


@pattern(signs, WHERE)
def sum_added_to_an_attribute() -> Any:
    class Net(_WithBuffer):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.scale += x.detach()
            return x * self.scale

    return Net()


@pattern(signs, WHERE)
def buffer_read_before_and_after_its_change() -> Any:
    class Net(_WithBuffer):
        def forward(self, x: Tensor) -> Tensor:
            before = x * (self.scale * 2)
            if x.sum() > 0:
                x = x * (self.scale * 3)
                self.scale.mul_(1.5)
                x = x * (self.scale + 1)
            else:
                x = x * self.scale.exp()
            return before + x * (self.scale + 2)

    return Net()


@pattern(signs, COND)
def buffer_changed_in_an_expensive_arm() -> Any:
    class Net(_WithBuffer):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = x * (self.scale * 3)
                self.scale.mul_(1.5)
                self.calls += 1
                x = torch.outer(x, x) @ (y * self.scale.exp())
            return x * self.scale

    return Net()


@pattern(signs, COND)
def masked_assignment() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[x > 1.5] = 0.0
        else:
            y[torch.tensor([0, 2])] = x[:2] * 3
        return y * x

    return program


@pattern(signs, WHERE)
def assignment_to_an_index_and_to_a_slice() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[0] = x[1] * x[2]
        else:
            y[1:] = 5
        return y + 1

    return program


@pattern(signs, WHERE)
def element_of_a_list_changed() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x * 1, x * 2]
        if x.sum() > 0:
            items[1].mul_(3)
        else:
            items[0].sub_(x)
        return items

    return program


@pattern(signs, WHERE)
def parameter_clamped_without_gradients() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([0.5, -2.0, 3.0]))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                with torch.no_grad():
                    self.weight.clamp_(-1, 1)
            return x * self.weight.square()

    return Net()


@pattern(signs, WHERE)
def flag_that_is_its_own_condition() -> Any:
    class Net(_WithBuffer):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("started", torch.tensor(False))
            self.starts: list[Tensor] = [torch.zeros(())]

        def forward(self, x: Tensor) -> Tensor:
            if not self.started:
                self.scale.copy_(x.detach() * 2)
                self.started.fill_(True)
                self.starts[0] = x.detach().sum()
            return x * self.scale

    return Net()


@pattern(signs, WHERE)
def changed_on_three_sides() -> Any:
    class Net(_WithBuffer):
        def forward(self, x: Tensor) -> Tensor:
            y = x * self.scale.exp()
            if x.sum() > 0:
                y.add_(1)
            elif x.mean() > -1:
                self.scale.mul_(2)
                y.mul_(x)
            else:
                y[0] = 7
            return y * (self.scale + 1)

    return Net()


@pattern(signs, WHERE)
def changed_at_each_turn_of_a_loop() -> Any:
    class Net(_WithBuffer):
        def forward(self, x: Tensor) -> Tensor:
            total = x * 0
            for step in range(3):
                if x[step] > 0:
                    self.scale.add_(step)
                    total += x * (self.scale + step)
            return total

    return Net()


def _images() -> list[Call]:
    image = torch.arange(32.0).reshape(2, 4, 2, 2) / 16
    return [call(image.clone()), call(-image), call(image + 0.5)]


@pattern(_images, COND, zero_gradients=True)
def batch_norm_of_images_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = self.norm(x)
            return x * 2

    return Net()


@pattern(rows, COND, zero_gradients=True)
def batch_norm_of_each_side() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.BatchNorm1d(4)
            self.other = torch.nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.one(x) + x
            return self.one(x) if x.sum() > 0 else self.other(x)

    return Net()


@pattern(rows, COND)
def batch_norm_without_a_count() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("var", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = torch.nn.functional.batch_norm(x, self.mean, self.var, training=True)
            return x * 2

    return Net()


@pattern(signs, WHERE, training=False)
def result_written_into_an_argument_of_the_call() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            torch.add(x, 1, out=y)
        return y

    return program


@pattern(signs, COND, training_outcome=(WHERE,))
def filled_with_random_numbers() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y.uniform_()
        return y + torch.rand(3)

    return program


@pattern(
    signs,
    WHERE,
    training_outcome=(refused("arm-effects"),),
    because=(
        "`exp` has kept its result for the backward, and the merged tensor is copied back "
        "into it whichever side is taken; eager execution fails only where the tensor is "
        "changed."
    ),
)
def kept_by_an_earlier_operation() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        if x.sum() > 1000:
            y.add_(1)
        return y * 2

    return program


@pattern(
    signs,
    WHERE,
    training_outcome=(refused("arm-effects"),),
    because=(
        "On one side the buffer gets a history of gradients in place. It outlives the call, "
        "and would need one history or none depending on the data."
    ),
)
def buffer_that_would_require_gradients() -> Any:
    class Net(_WithBuffer):
        def forward(self, x: Tensor) -> Tensor:
            scale = self.scale
            y = x * 2
            if x.sum() > 1000:
                scale.add_(x)
            return y + 1

    return Net()


@pattern(rows, COND, zero_gradients=True)
def batch_norm_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = self.norm(x)
            else:
                y = x - 1
            return y * 2

    return Net()


@pattern(signs, WHERE, training=False)
def codebook_initialised_once() -> Any:
    class Codebook(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("initted", torch.zeros(1))
            self.register_buffer("embed", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            if not self.initted:
                self.embed.copy_(x.abs())
                self.initted.fill_(1.0)
            return x + self.embed

    return Codebook()


@pattern(signs, WHERE)
def item_of_a_clone_assigned() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        if x[0] > 0:
            z = y * 1
            z[0] = -x[1]
            z[1:] += 1
            y = z
        return y * 2

    return program


@pattern(signs, WHERE, training=False)
def parameter_clipped_when_too_large() -> Any:
    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 4.0]))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                if self.weight.norm() > 3:
                    self.weight.mul_(0.5)
            return x * self.weight

    return Clipped()


PATTERNS = patterns_among(list(vars().values()))
