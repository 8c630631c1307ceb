"""Loops over things whose number is known, left or continued on a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    GUARD,
    NO_MERGE,
    OUTPUT,
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

RETURN = "a return out of a loop on a tensor is not lowered"


@pattern(rows, COND, may_copy=True, zero_gradients=True)
def break_out_of_a_stack_of_layers() -> Any:
    class Refiner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                refined = x + layer(x).tanh()
                if (refined - x).abs().max() < 0.5:
                    break
                x = refined
            return x

    return Refiner()


@pattern(signs, CHOICE, may_copy=True)
def number_of_turns_returned() -> Program:
    def program(x: Tensor) -> tuple[Tensor, int]:
        turns = 0
        for _ in range(4):
            if x.sum() > 3:
                break
            x = x + 1
            turns += 1
        return x, turns

    return program


@pattern(signs, WHERE)
def else_of_a_for_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for offset in (0, 1, 2):
            if (x + offset).min() > 0:
                result = x.log1p()
                break
        else:
            result = x.abs()
        return result * 2

    return program


@pattern(rows, WHERE)
def break_out_of_the_inner_of_two_loops() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x[0] * 0
        for row in range(2):
            for column in range(3):
                if x[row, column] < 0:
                    break
                total = total + x[row] * column
            total = total - row
        return total

    return program


@pattern(rows, WHERE)
def break_and_continue_in_one_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        kept = x[:, 0] * 0
        for index, column in enumerate(x.unbind(1)):
            if column.min() < 0:
                continue
            kept = kept + column * index
            if kept.sum() > 4:
                break
        return kept

    return program


@pattern(signs, WHERE, may_copy=True)
def first_candidate_that_fits() -> Program:
    def program(x: Tensor) -> Tensor:
        for scale in (1.0, 0.5, 0.25, 0.125):
            candidate = x * scale
            if candidate.norm() < 2:
                return candidate
        return x

    return program


@pattern(signs, CHOICE)
def first_candidate_or_none() -> Program:
    def program(x: Tensor) -> Tensor | None:
        for scale in (1.0, 0.5):
            if (x * scale).norm() < 2.2:
                return x * scale
        return None

    return program


@pattern(signs, CHOICE)
def position_of_the_first_negative() -> Program:
    def program(x: Tensor) -> int:
        for position, value in enumerate(x):
            if value < 0:
                return position
        return -1

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


@pattern(rows, CHOICE)
def rows_kept_in_a_list() -> Program:
    def program(x: Tensor) -> Tensor:
        kept = []
        for row in x - x.mean():
            if row.sum() > 0:
                kept.append(row)
        return torch.stack(kept) if kept else x.new_zeros(0, 4)

    return program


@pattern(rows, CHOICE, SPLIT)
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


def _announced(rows: Tensor) -> Iterator[Tensor]:
    for number, row in enumerate(rows):
        if row.isnan().any():
            raise ValueError("not a number", number)
        print(f"row {number}: {row.sum().item():.2f}")
        yield row * number


@pattern(rows, GUARD, OUTPUT)
def generator_that_checks_and_prints() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.stack([row + 1 for row in _announced(x.log1p())])

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
    refused("generator"),
    graphs=None,
    because=(
        "How many values the generator yields depends on the data, and its frame is suspended"
        " between them: there is no arm to call. The same filter in a list comprehension is "
        "mended."
    ),
)
def filter_in_a_generator_expression() -> Program:
    def program(x: Tensor) -> Tensor:
        return sum((row for row in x if row.sum() > 0), torch.zeros(4))

    return program


@pattern(
    signs,
    refused("consumes-iterator"),
    graphs=None,
    because=(
        "How far the generator has run depends on the data and shows in what is left of it; a"
        " generator cannot be set back."
    ),
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
def break_out_of_a_reversed_range() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        for exponent in reversed(range(1, 4)):
            if y.abs().max() > 10:
                break
            y = y * (1 + exponent / 2)
        return y

    return program


@pattern(signs, WHERE, NO_MERGE)
def nested_conditions_before_a_break() -> Program:
    def program(x: Tensor) -> Tensor:
        best = x * 0
        for step in range(3):
            candidate = (x - step) * 0.5
            if candidate.sum() > best.sum():
                best = candidate
                if best.max() > 1:
                    break
            elif step > 0:
                best = best - 1
        return best + x

    return program


@pattern(signs, WHERE)
def momentum_updated_in_each_turn() -> Program:
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


def _tokens() -> list[Call]:
    prompts = ([1, 4, 2], [5, 5, 0], [3, 1, 1])
    return [call(torch.tensor(each)) for each in prompts]


@pattern(_tokens, CHOICE, training=False)
def greedy_decoding_until_the_end_token() -> Any:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6)
            self.eos_token_id = 2

        def forward(self, tokens: Tensor) -> Tensor:
            for _ in range(3):
                logits = self.head(self.embedding(tokens).mean(0))
                token = logits.argmax()
                tokens = torch.cat([tokens, token[None]])
                if token == self.eos_token_id:
                    break
            return tokens

    return Decoder()


@pattern(_tokens, COND, training=False, may_copy=True)
def decoding_that_stops_when_all_are_finished() -> Program:
    def program(tokens: Tensor) -> Tensor:
        unfinished = torch.ones_like(tokens)
        for step in range(4):
            following = (tokens * 3 + step) % 7
            tokens = following * unfinished + 2 * (1 - unfinished)
            unfinished = unfinished * (tokens != 2).long()
            if unfinished.max() == 0:
                break
        return tokens

    return program


@pattern(rows, COND, training=False, may_copy=True)
def beam_search_that_stops_when_nothing_improves() -> Program:
    def program(scores: Tensor) -> Tensor:
        beams, _ = scores.topk(2, dim=-1)
        for penalty in (0.5, 1.0, 2.0):
            candidates = (beams[:, :, None] - penalty * scores[:, None, :].abs()).flatten(1)
            best, _ = candidates.topk(2, dim=-1)
            if (best <= beams - 1).all():
                break
            beams = best
        return beams

    return program


PATTERNS = patterns_among(list(vars().values()))
