"""Arms that leave unlike values behind, so that what follows the branch differs as well."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    GUARD,
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

UNLIKE = "values without a common form are refused where the caller or a container has them"


def _attention() -> list[Call]:
    hidden = torch.linspace(-1.0, 1.0, 24).reshape(1, 3, 8)
    masks = ([[1, 1, 1]], [[1, 1, 0]])
    return [call(hidden.clone(), torch.tensor(mask)) for mask in masks]


@pattern(_attention, SPLIT)
def full_mask_dropped_before_attention() -> Any:
    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query_key_value = nn.Linear(8, 24)

        def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            if attention_mask is not None and torch.all(attention_mask == 1):
                attention_mask = None
            query, key, value = self.query_key_value(hidden).unsqueeze(1).chunk(3, dim=-1)
            if attention_mask is not None:
                attention_mask = attention_mask[:, None, None, :].bool()
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
            return attended.squeeze(1)

    return SelfAttention()


@pattern(_attention, CHOICE, SPLIT)
def mask_made_in_one_function_and_used_in_layers() -> Any:
    class Layer(nn.Module):
        def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
            scores = hidden @ hidden.transpose(-1, -2)
            if mask is not None:
                scores = scores + mask
            return scores.softmax(-1) @ hidden

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def expand(self, mask: Tensor, dtype: torch.dtype) -> Tensor | None:
            if 0 not in mask:
                return None
            return (1.0 - mask[:, None, :].to(dtype)) * -1e4

        def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
            expanded = self.expand(attention_mask, hidden.dtype)
            for layer in self.layers:
                hidden = layer(hidden, expanded)
            return hidden

    return Encoder()


@pattern(signs, SPLIT)
def optional_term_of_a_loss() -> Program:
    def program(logits: Tensor) -> dict[str, Tensor]:
        regulariser = None
        if logits.abs().max() > 3.5:
            regulariser = logits.square().mean()
        loss = logits.logsumexp(0)
        outputs = {"loss": loss}
        if regulariser is not None:
            outputs["loss"] = loss + 0.1 * regulariser
        return outputs

    return program


@pattern(rows, SPLIT)
def number_of_steps_chosen() -> Program:
    def program(x: Tensor) -> Tensor:
        steps = 3 if x.mean() > 0 else 1
        for step in range(steps):
            x = x * 0.5 + step
        return x

    return program


@pattern(signs, CHOICE, GUARD)
def assertion_that_a_helper_gave_a_tensor() -> Program:
    def bonus(x: Tensor) -> Tensor | None:
        if x.sum() > 0:
            return None
        return x * 2

    def program(x: Tensor) -> Tensor:
        more = bonus(x)
        assert more is not None, f"no bonus for {x.sum():.1f}"
        return more + 1

    return program


@pattern(rows, SPLIT, WHERE)
def number_of_columns_kept() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.std() > 0.6 and x.mean() > 0:
            k = 1
        else:
            k = 3
        values, _ = x.topk(k, dim=-1)
        return values.sum(-1) / k

    return program


@pattern(rows, SPLIT)
def axis_kept_in_a_variable() -> Program:
    def program(x: Tensor) -> Tensor:
        axis = 0
        if x.sum() > 0:
            axis = 1
        return (x - x.mean(dim=axis, keepdim=True)).cumsum(dim=axis)

    return program


@pattern(signs, SPLIT)
def key_of_a_dictionary_chosen() -> Any:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({"small": nn.ReLU(), "large": nn.Tanh()})

        def forward(self, x: Tensor) -> Tensor:
            name = "large" if x.abs().max() > 3 else "small"
            return self.heads[name](x) + 1

    return Heads()


@pattern(signs, SPLIT)
def index_into_a_list_of_constants() -> Program:
    slopes = [0.1, 0.5, 0.9]

    def program(x: Tensor) -> Tensor:
        level = 0
        if x.max() > 0:
            level += 1
        if x.sum() > 0:
            level += 1
        return x * slopes[level]

    return program


@pattern(signs, CHOICE, OUTPUT)
def word_chosen_and_printed() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            word = "rising"
        else:
            word = "falling"
        print(f"the trend is {word}")
        return x * 2

    return program


@pattern(signs, CHOICE)
def count_returned_beside_a_tensor() -> Program:
    def program(x: Tensor) -> tuple[Tensor, int]:
        retries = 0
        if x.min() < -2:
            x = x.clamp(min=-2)
            retries += 1
        if x.max() > 2:
            x = x.clamp(max=2)
            retries += 1
        return x * 2, retries

    return program


@pattern(signs, WHERE)
def boolean_set_and_tested_later() -> Program:
    def program(x: Tensor) -> Tensor:
        clipped = False
        y = x * 1
        if y.abs().max() > 3.5:
            y = y / y.abs().max()
            clipped = True
        y = y.exp()
        if clipped:
            y = y - 1
        return y

    return program


@pattern(signs, SPLIT)
def function_chosen_and_called() -> Program:
    def program(x: Tensor) -> Tensor:
        activation = torch.tanh if x.sum() > 0 else F.softplus
        return activation(x) * activation(x + 1)

    return program


@pattern(rows, SPLIT, zero_gradients=True)
def module_chosen_and_called() -> Any:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList((nn.Linear(4, 4), nn.Linear(4, 4)))

        def forward(self, x: Tensor) -> Tensor:
            expert = self.experts[0]
            if x.mean() < 0:
                expert = self.experts[1]
            return expert(x).relu()

    return Router()


@pattern(signs, SPLIT)
def partial_chosen_and_called() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            clip = functools.partial(torch.clamp, min=0.5, max=2.0)
        else:
            clip = functools.partial(torch.clamp, min=-2.0)
        return clip(x) + 1

    return program


@pattern(signs, CHOICE)
def integer_in_one_arm_and_float_in_the_other() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x.argsort()
        else:
            y = x * 0.5
        return y + 1

    return program


@pattern(rows, SPLIT)
def shapes_that_broadcast_later() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.mean() > 0:
            centre = x.mean()
        else:
            centre = x.mean(0, keepdim=True)
        return x - centre

    return program


@pattern(rows, SPLIT)
def longer_sequence_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x[:, -1].sum() > 0:
            x = torch.cat([x, x[:, :2]], dim=1)
        return x.softmax(-1).amax(-1)

    return program


@pattern(signs, SPLIT)
def precision_chosen() -> Program:
    def program(x: Tensor) -> Tensor:
        dtype = torch.float64 if x.abs().max() > 3.5 else torch.float32
        return x.to(dtype).cumsum(0).exp().float()

    return program


@pattern(rows, SPLIT)
def shape_chosen() -> Program:
    def program(x: Tensor) -> Tensor:
        size = (4, 2) if x.sum() > 0 else (8, 1)
        return x.reshape(size).amax(0).sum()

    return program


@pattern(signs, SPLIT)
def terms_gathered_in_a_list() -> Program:
    def program(x: Tensor) -> Tensor:
        terms = [x.mean()]
        if x.max() > 2:
            terms.append(x.max() * 0.1)
        if x.min() < -2:
            terms.append(x.min().square())
        return torch.stack(terms).sum() / len(terms)

    return program


@pattern(signs, SPLIT)
def options_gathered_in_a_dictionary() -> Program:
    def program(x: Tensor) -> Tensor:
        options: dict[str, float] = {"max": 2.0}
        if x.min() < -2:
            options["min"] = -1.0
        return torch.clamp(x, **options)

    return program


@dataclass
class Summary:
    """What a model returns."""

    logits: Tensor
    note: str | None = None


class Interval(NamedTuple):
    """Two ends."""

    low: Tensor
    high: Tensor


@pattern(signs, WHERE)
def result_object_with_an_optional_field() -> Program:
    def program(x: Tensor) -> Summary:
        summary = Summary(x * 2)
        if x.min() < -3.5:
            summary.note = "clipped"
            summary.logits = x.clamp(min=-3)
        return summary

    return program


@pattern(signs, SPLIT)
def named_tuple_in_each_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            interval = Interval(x.min(), x.max())
        else:
            interval = Interval(x.mean() - 1, x.mean() + 1)
        return (x - interval.low) / (interval.high - interval.low)

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


@pattern(rows, COND, SPLIT, zero_gradients=True)
def depth_chosen_for_a_stack_of_layers() -> Any:
    class Adaptive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            depth = 1 if x.mean() > 0 else 3
            for layer in self.layers[:depth]:
                x = layer(x) if x.sum() > 0 else layer(-x)
            return x

    return Adaptive()


PATTERNS = patterns_among(list(vars().values()))
