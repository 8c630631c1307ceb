"""Tensors of data-dependent size, and numbers out of tensors as sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from corpus.patterns.pattern import CALL, COND, SPLIT, WHERE, pattern, patterns_among, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


def _selections() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([1.0, 1.0, 2.0], [1.0, 2.0, 3.0], [0.0] * 3)]


@pattern(_selections, WHERE, training=False)
def truth_of_a_count_of_unique_values() -> Program:
    def program(x: Tensor) -> Tensor:
        if len(x.unique()) > 2:
            return x * 2
        return x - 1

    return program


def _vectors() -> list[Call]:
    """Some positive numbers, none, all, and one."""
    rows = ([1, -2, 3, -4, 2], [-1, -2, -3, -4, -5], [1, 2, 3, 1, 2], [0, 0, 0, 0, 1])
    return [call(torch.tensor(each, dtype=torch.float32)) for each in rows]


def _counts() -> list[Call]:
    """A vector, and a count as a tensor."""
    return [call(torch.arange(6.0), torch.tensor(count)) for count in (3, 1, 0, 6)]


@pattern(_vectors)
def mask_that_picks_a_sum() -> Program:
    def program(x: Tensor) -> Tensor:
        return x[x > 0].sum() + x

    return program


@pattern(_vectors, WHERE, training=False)
def mask_that_picks_what_is_averaged() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        kept = x[x > 0]
        return kept.mean(), x / kept.numel() if kept.numel() else x + 1

    return program


@pattern(_vectors)
def items_in_two_heaps() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.cat([x[x > 0], x[x <= 0]]) * 2

    return program


@pattern(_vectors, training=False)
def places_of_what_is_positive() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        (places,) = torch.where(x > 0)
        return places, x.index_select(0, places)

    return program


@pattern(_vectors, training=False)
def selection_that_is_summed_up() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.masked_select(x, x > 0).cumsum(0)

    return program


@pattern(_vectors, training=False)
def number_of_different_values() -> Program:
    def program(x: Tensor) -> Tensor:
        return x / len(x.unique())

    return program


@pattern(_vectors, training=False)
def counts_of_values() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.bincount(x.abs().long())

    return program


@pattern(_vectors, CALL)
def items_as_often_as_they_say() -> Program:
    def program(x: Tensor) -> Tensor:
        return x.repeat_interleave(x.detach().abs().long()) * 2

    return program


@pattern(_vectors, training=False)
def maximum_of_what_a_mask_picks() -> Program:
    def program(x: Tensor) -> Tensor:
        return x[x > 0].max()

    return program


@pattern(_vectors, training=False)
def size_that_may_be_one_taken_away() -> Program:
    def program(x: Tensor) -> Tensor:
        return x[x > 0].squeeze() + 1

    return program


@pattern(_counts, inductor_backward=False)
def number_as_a_size() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        return functional.pad(x, (0, int(count))) * 2

    return program


@pattern(_counts, inductor_backward=False)
def number_as_the_bound_of_a_slice() -> Program:
    def program(x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        n = int(count.abs().item())
        return x[:n] * 2, x[n:] + 1

    return program


@pattern(_counts)
def tensor_as_a_size() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        count = count.abs()
        return torch.arange(count, dtype=x.dtype).sum() + x.new_zeros(count, 2).sum() + x

    return program


@pattern(_vectors)
def numbers_in_a_list() -> Program:
    def program(x: Tensor) -> Tensor:
        first, second, *_ = x.detach().tolist()
        return x * first + second

    return program


@pattern(_vectors, COND)
def branch_on_whether_something_is_picked() -> Program:
    def program(x: Tensor) -> Tensor:
        kept = x[x > 0]
        if kept.numel() > 0:
            x = x - functional.conv1d(kept.view(-1, 1, 1), torch.ones(2, 1, 1)).mean()
        return x + 1

    return program


@pattern(_vectors, WHERE, training=False)
def three_numbers_of_places() -> Program:
    def program(x: Tensor) -> Tensor:
        places = torch.nonzero(x > 0)
        if len(places) > 1:
            return x + places.sum()
        if len(places) == 1:
            return x - places.sum()
        return x * 2

    return program


@pattern(_vectors, SPLIT, training=False)
def sizes_that_only_one_arm_knows() -> Program:
    def program(x: Tensor) -> Tensor:
        is_any = (x > 0).any().item()
        if is_any:
            places = (x > 0).nonzero()[:, 0]
            kept = x[places]
        y = x * 2
        if is_any:
            y = y + kept.sum() * len(places)
        return y

    return program


def _levels() -> list[Call]:
    return [call(torch.arange(20.0).view(2, 10), torch.ones(2, 2, 2)), call(torch.ones(2, 10))]


@pattern(lambda: _levels()[:1])
def sizes_in_a_tensor_of_constants() -> Program:
    def program(x: Tensor, ratios: Tensor) -> Tensor:
        shapes = torch.as_tensor([(2, 3), (4, 1)], dtype=torch.long, device=x.device)
        parts, start = [], 0
        for level, (height, width) in enumerate(shapes):
            rows = torch.linspace(0.5, height - 0.5, height, dtype=x.dtype)
            part = x[:, start : start + height * width].view(2, height, width)
            parts.append((part * rows[:, None] / ratios[0, level, 0]).flatten(1))
            start += height * width
        return torch.cat(parts, 1)

    return program


def _turned() -> list[Call]:
    return [call(torch.arange(6.0), torch.tensor(each)) for each in (3, -3)]


@pattern(_turned, WHERE)
def sizes_of_constants_beside_a_branch() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        shape = torch.tensor([2, 3])
        x = x.view(shape[0], shape[1])
        if y > 0:
            x = x + 1
        return x.sum(0) * torch.ones(shape.sum() - 2)

    return program


@pattern(_vectors, WHERE)
def padding_computed_of_buffers() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("stride", torch.tensor(3), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            steps = torch.ceil(x.shape[-1] / self.stride).to(torch.int64)
            extra = steps * self.stride - x.shape[-1]
            if extra > 0:
                x = functional.pad(x, (0, extra))
            y = x.view(int(steps), -1)
            return y.sum(0) if x.sum() > 0 else y.sum(1)[: int(self.stride)].sum() + y[0]

    return Net()


def sizes() -> Sequence[Call]:
    """Six rows, and three sizes of parts of them, none of which need be there."""
    x = torch.arange(12.0).reshape(6, 2)
    return [call(x.clone(), torch.tensor(found)) for found in ([1, 2, 3], [0, 6, 0], [3, 1, 2])]


@pattern(sizes)
def parts_of_sizes_in_a_tensor() -> Program:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        parts = x.split(sizes.tolist())
        return torch.cat([part * (at + 1) for at, part in enumerate(parts)])

    return program


@pattern(sizes, inductor_backward=False)
def rows_cut_off_by_sizes_in_a_tensor() -> Program:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        sums = []
        for size in sizes.tolist():
            head, x = x[:size], x[size:]
            sums.append(head.sum(dim=0))
        return torch.stack(sums)

    return program


def _labels() -> list[Call]:
    x = torch.tensor([0.5, -1.0, 2.0, 1.0])
    labels = ([0, 1, 0, 1], [0, 1, 2, 1], [3, 3, 3, 3])
    return [call(x.clone(), torch.tensor(each)) for each in labels]


@pattern(_labels, WHERE)
def number_of_distinct_labels() -> Program:
    def program(logits: Tensor, labels: Tensor) -> Tensor:
        if len(labels.unique()) > 2:
            return logits.softmax(-1)
        return logits.sigmoid()

    return program


@pattern(signs, COND, zero_gradients=True)
def largest_of_the_selected_if_any() -> Program:
    def program(x: Tensor) -> Tensor:
        selected = x < 0
        if selected.any():
            return x[selected].max()
        return x.sum() * 0

    return program


@pattern(signs, COND)
def first_position_if_any() -> Program:
    def program(x: Tensor) -> Tensor:
        negative = x < 0
        if negative.any():
            cut = negative.nonzero()[0, 0]
        else:
            cut = torch.tensor(3)
        return x * (torch.arange(3) < cut)

    return program


PATTERNS = patterns_among(list(vars().values()))
