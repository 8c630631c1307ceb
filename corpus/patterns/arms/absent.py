"""Arms that leave a variable without a value, deleted, or `None`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import CHOICE, GUARD, SPLIT, WHERE, pattern, patterns_among, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, CHOICE, WHERE)
def none_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        mask = None
        if x.sum() > 0:
            mask = x > 1
        y = x * 2
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        return y

    return program


@pattern(signs, CHOICE)
def none_returned_by_one_arm() -> Program:
    def program(x: Tensor) -> Tensor | None:
        if x.sum() > 0:
            return x * 2
        return None

    return program


@pattern(signs, GUARD)
def variable_bound_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        return y + 1

    return program


@pattern(signs, WHERE)
def variable_deleted_in_both_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        helper = x + 1
        if x.sum() > 0:
            y = helper * 2
            del helper
        else:
            y = helper - 1
            del helper
        return y

    return program


@pattern(signs, CHOICE)
def nothing_found_is_none() -> Program:
    def program(scores: Tensor) -> Tensor | None:
        keep = scores > 0
        if not keep.any():
            return None
        return scores * keep

    return program


@pattern(signs, CHOICE)
def none_within_the_returned_tuple() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor | None]:
        y = x * 2
        if y.sum() > 0:
            return y, None
        return y, y.softmax(0)

    return program


@pattern(signs, CHOICE, WHERE)
def helper_that_returns_a_tensor_or_none() -> Program:
    def penalty(x: Tensor) -> Tensor | None:
        if x.min() > 0:
            return None
        return x.clamp(max=0).square().sum()

    def program(x: Tensor) -> Tensor:
        loss = x.sum()
        extra = penalty(x)
        if extra is not None:
            loss = loss + extra
        return loss

    return program


def _attention() -> list[Call]:
    hidden = torch.linspace(-1.0, 1.0, 24).reshape(1, 3, 8)
    masks = ([[1, 1, 1]], [[1, 1, 0]])
    return [call(hidden.clone(), torch.tensor(mask)) for mask in masks]


@pattern(_attention, CHOICE, SPLIT)
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


@pattern(_attention, CHOICE, WHERE)
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


@pattern(signs, CHOICE, WHERE)
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


@pattern(signs, GUARD, SPLIT, from_3_12=(WHERE, GUARD))
def variable_bound_in_two_of_three_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        elif x.min() < -3.5:
            y = x - 1
        return y + x

    return program


@pattern(signs, GUARD, SPLIT)
def variable_bound_by_one_of_two_tests() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        if x.min() < -3.5:
            y = x * 3
        return y + 1

    return program


@pattern(signs, WHERE)
def variable_that_only_training_reads() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weighs = False

        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            if x.sum() > 0:
                y = y + 1
                weight = y.mean()
            if self.weighs:
                y = y * weight
            return y

    return Net()


@pattern(signs, GUARD, SPLIT)  # the second test is made in both arms of the first
def two_variables_read_under_the_test_that_binds_them() -> Program:
    def program(x: Tensor) -> Tensor:
        positive = x.sum() > 0
        if positive:
            y = x * 2
            power = 3
        z = x + 1
        if positive:
            z = y**power
        return z

    return program


@pattern(signs, SPLIT)
def last_item_that_was_found() -> Program:
    def program(x: Tensor) -> Tensor:
        for index in range(3):
            if x[index] > 0:
                last = x[index] * 2
        return last + x

    return program


@pattern(signs, GUARD)
def variable_deleted_in_an_arm_and_read() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() < 0:
            del y
        return x * y

    return program


@pattern(signs, WHERE)
def variable_deleted_in_an_arm_and_bound_again() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() < 0:
            z = x * y
            del y
        else:
            z = x - y
        y = z + 1
        return y * z

    return program


@pattern(signs, GUARD)
def argument_of_a_call_that_may_be_unbound() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                features = self.layer(x)
            with torch.no_grad():
                scale = x.abs().mean()
            return torch.relu(features) * scale

    return Net()


@pattern(signs, CHOICE, training=False)
def none_or_a_tensor_where_a_third_arm_raises() -> Program:
    def program(x: Tensor, mode: int = 1) -> Tensor | None:
        if mode == 1:
            y = None
            if x.sum() > 0:
                y = x * 2
        elif x.min() < 0:
            y = x - 1
        return y

    return program


@pattern(signs, GUARD)
def shared_variable_bound_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2

        def reader() -> Tensor:
            return y + 1

        return reader()

    return program


@pattern(signs, WHERE)
def shared_variable_bound_in_arms_that_read_it_elsewhere() -> Program:
    def program(x: Tensor) -> Tensor:
        def reader() -> Tensor:
            return y + 1

        if x.sum() > 0:
            y = x * 2
            z = reader()
        else:
            y = x - 1
            z = reader() * 3
        return z + reader()

    return program


PATTERNS = patterns_among(list(vars().values()))
