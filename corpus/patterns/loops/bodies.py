"""Branches within iterations, comprehensions and generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    AHEAD,
    CHOICE,
    COND,
    NO_MERGE,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    refused,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, WHERE)
def branch_in_a_range_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(3):
            if x.sum() > step:
                x = x - 1
            else:
                x = x + 3
        return x

    return program


@pattern(signs, WHERE, may_copy=True)
def continue_in_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        for factor in (2, 3, 4):
            if y.sum() < 0:
                continue
            y = y * factor - 1
        return y

    return program


@pattern(rows, COND, may_copy=True, zero_gradients=True)
def continue_in_a_loop_over_modules() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                if x.sum() < 0:
                    continue
                x = layer(x)
            return x

    return Net()


@pattern(signs, WHERE)
def ternary_in_a_comprehension() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        return [y * 2 if y.sum() > 0 else y - 1 for y in (x, x + 2, x - 3)]

    return program


def sizes() -> Sequence[Call]:
    """Six rows, and three sizes of parts of them, none of which need be there."""
    x = torch.arange(12.0).reshape(6, 2)
    return [call(x.clone(), torch.tensor(found)) for found in ([1, 2, 3], [0, 6, 0], [3, 1, 2])]


@pattern(sizes, WHERE)
def branch_on_each_number_of_a_list() -> Program:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        for size in sizes.tolist():
            x = x * 2 + size if size > 2 else x - 1
        return x

    return program


@pattern(signs, NO_MERGE)
def filtered_comprehension() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        return [y for y in (x, x + 2, x - 3) if y.sum() > 0]

    return program


@pattern(rows, WHERE, may_copy=True)
def continue_over_items_of_a_dictionary() -> Program:
    def program(x: Tensor) -> Tensor:
        weights = {"mean": 0.5, "max": 2.0, "min": -1.0}
        total = x[0] * 1
        for name, weight in weights.items():
            part = getattr(torch, f"a{name}" if name != "mean" else name)(x, dim=0)
            if part.sum() < 0:
                continue
            total = total + weight * part
        return total

    return program


@pattern(rows, WHERE)
def branch_over_zipped_sequences() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        outputs = []
        for row, scale in zip(x, (1.0, -1.0), strict=True):
            if row.sum() * scale > 0:
                row = row * scale
            outputs.append(row + 1)
        return outputs

    return program


@pattern(rows, NO_MERGE, unsettled_from_3_12="CPython 3.12 and later inline the comprehension")
def rows_kept_by_a_comprehension() -> Program:
    def program(x: Tensor) -> int:
        return len([row for row in x if row.sum() > 0])

    return program


@pattern(rows, WHERE)
def ternary_in_a_generator_expression() -> Program:
    def program(x: Tensor) -> Tensor:
        return sum(row.abs() if row.sum() < 0 else row * 2 for row in x)

    return program


@pattern(rows, WHERE)
def ternary_in_a_dictionary_comprehension() -> Program:
    def program(x: Tensor) -> dict[str, Tensor]:
        names = ("first", "second")
        return {n: r * 2 if r.max() > 0 else r - 1 for n, r in zip(names, x, strict=True)}

    return program


def _halved_if_large(rows: Tensor) -> Iterator[Tensor]:
    for row in rows:
        if row.abs().max() > 1.5:
            row = row / 2
        yield row


@pattern(rows, WHERE)
def branch_in_a_generator_function() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.new_zeros(4)
        for number, row in enumerate(_halved_if_large(x), 1):
            total = total + row * number
        return total

    return program


@pattern(rows, WHERE)
def generators_that_take_turns() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        signed = (row if row.sum() > 0 else -row for row in x)
        return [one * other for one, other in zip(_halved_if_large(x), signed, strict=True)]

    return program


@pattern(rows, WHERE, may_copy=True)
def generator_that_is_sent_tensors() -> Program:
    def averaged(value: Tensor) -> Iterator[Tensor]:
        mean = value
        while True:
            value = yield mean
            if value.sum() > mean.sum():
                mean = value * 0.5 + mean * 0.5

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        means = averaged(x[0])
        next(means)
        return means.send(x[1]), means.send(x[1] - x[0])

    return program


@pattern(rows, WHERE)
def generator_method_of_a_module() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

        def _steps(self, x: Tensor) -> Iterator[Tensor]:
            for layer in self.layers:
                residual = layer(x)
                x = x + (residual if residual.mean() > 0 else -residual)
                yield x

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack(list(self._steps(x))).mean(0)

    return Net()


@pattern(
    rows,
    refused("generator"),
    graphs=None,
    because=(
        "The call returns a generator that has not run yet, and may never; what it does "
        "happens after the graph, in whatever order the caller draws."
    ),
)
def generator_handed_out() -> Program:
    def announced(rows: Tensor) -> Iterator[Tensor]:
        for row in rows:
            print("a row")
            yield row if row.sum() > 0 else -row

    def program(x: Tensor) -> Iterator[Tensor]:
        # What is handed out has not run yet, and may never.
        return announced(x)

    return program


@pattern(
    rows,
    AHEAD,
    graphs=2,
    recompiles=1,
    training_outcome=(refused("generator"),),
    because=(
        "How many values the generator yields depends on the data, and its frame is suspended"
        " between them: there is no arm to call. Where gradients are recorded, the conditions are"
        " not computed in front of the graph. The same filter in a list comprehension is mended."
    ),
)
def filter_in_a_generator_expression() -> Program:
    def program(x: Tensor) -> Tensor:
        return sum((row for row in x if row.sum() > 0), torch.zeros(4))

    return program


@pattern(
    signs,
    CHOICE,
    unsettled_from_2_15="torch 2.15 fails to close the generator",
)
def break_out_of_a_generator_that_goes_on() -> Program:
    def program(x: Tensor) -> tuple[Tensor, list[int]]:
        # How far the generator has run shows in what is left of it.
        def scales() -> Iterator[int]:
            yield from (1, 2, 3)

        source = scales()
        for scale in source:
            x = x * scale
            if x.sum() > 3:
                break
        return x, list(source)

    return program


@pattern(signs, WHERE)
def momentum_updated_in_each_iteration() -> Program:
    def program(x: Tensor) -> Tensor:
        velocity, rate = torch.zeros_like(x), torch.ones(())
        previous = x.square().sum()
        for _ in range(4):
            velocity = 0.9 * velocity - 0.1 * rate * x
            x = x + velocity
            loss = x.square().sum()
            if loss > previous:
                rate = rate * 0.5
                velocity = torch.zeros_like(x)
            previous = loss
        return x

    return program


@pattern(
    signs,
    AHEAD,
    graphs=2,
    recompiles=1,
    training_outcome=(refused("generator"),),
    because=(
        "One side yields and the other does not; a frame that is suspended on one side only "
        "cannot become an arm, and what requires gradients is not computed in front of the graph."
    ),
)
def generator_with_a_branch() -> Program:
    # The frame of a generator is suspended between its values: there is no arm to call.
    def parts(x: Tensor) -> Iterator[Tensor]:
        for step in range(2):
            if x.sum() > step:
                yield x * 2
            yield x - step

    def program(x: Tensor) -> list[Tensor]:
        return list(parts(x))

    return program


@pattern(signs, WHERE)
def total_increased_by_augmented_assignment() -> Program:
    def program(x: Tensor) -> Tensor:
        total = torch.zeros(())
        for power in (1, 2, 3):
            term = (x**power).sum()
            if term > 0:
                total = total + term
            else:
                total = total - term / 2
        return x * total

    return program


@pattern(signs, WHERE)
def mask_for_a_comprehension() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        if x.sum() > 0:
            mask = x > 1
        else:
            mask = x < -1
        return [each * mask for each in (x, x + 1)]

    return program


def _single_rows() -> list[Call]:
    rows = ([1.0, 2.0, 3.0], [1e2, 1e3, -1e4], [0.0, 0.0, 0.0], [1e9, 1.0, -1.0])
    return [call(torch.tensor(each)) for each in rows]


# The derivative of the factor that failed, before the branch, is NaN (docs/deviations.md).
@pattern(_single_rows, COND, SPLIT, training=False)
def factor_with_more_and_more_jitter() -> Program:
    def program(x: Tensor) -> Tensor:
        matrix = x.outer(x)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not torch.any(info):
            return factor
        added = 0.0
        for power in range(3):
            jitter = 0.001 * 100**power
            matrix = matrix + torch.eye(3) * (jitter - added)
            added = jitter
            factor, info = torch.linalg.cholesky_ex(matrix)
            if not torch.any(info):
                return factor
        raise ValueError(f"not positive definite with jitter of {jitter:.1e}")

    return program


@pattern(signs, SPLIT)
def loop_that_has_to_be_left() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(3):
            x = x + step
            if x.sum() > 3:
                break
        else:
            raise RuntimeError(f"not left: {x.sum()}")
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
