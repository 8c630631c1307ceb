"""Arms that draw random numbers of torch, and layers dropped at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from corpus.patterns.pattern import CHOICE, COND, WHERE, pattern, patterns_among, refused, rows
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(rows, WHERE)
def dropout_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = self.dropout(x * 2)
            else:
                y = x - 1
            return y + 1

    return Net()


@pattern(rows, COND, training_outcome=(WHERE,))
def random_numbers_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x + torch.rand(2, 4)
        else:
            y = x - 1
        return y + torch.rand(2, 4)

    return program


def _row_batches() -> list[Call]:
    """Eight calls with a matrix of four columns; layer drop takes other ways at each."""
    return [call(torch.arange(8.0).reshape(2, 4) * (-1) ** step + step) for step in range(8)]


class _Layer(nn.Module):
    """A layer of a transformer, without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        inside = functional.dropout(self.inner(x).relu(), 0.2, training=self.training)
        return (x + functional.dropout(self.outer(inside), 0.1, training=self.training),)


class _Encoder(nn.Module):
    layer_drop = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer() for _ in range(2))


#: In evaluation no layer is dropped, and no jump depends on a tensor.
_LAYER_DROP: dict[str, Any] = {"may_copy": True, "zero_gradients": True}


@pattern(_row_batches, training_outcome=(COND,), **_LAYER_DROP)
def layer_drop_by_continue() -> Any:
    class Net(_Encoder):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                if self.training:
                    chance = torch.rand([])
                    if chance < self.layer_drop:
                        continue
                x = layer(x)[0]
            return x

    return Net()


@pattern(_row_batches, training_outcome=(COND,), **_LAYER_DROP)
def layer_drop_by_a_flag() -> Any:
    class Net(_Encoder):
        def forward(self, x: Tensor, output_all: bool = False) -> Any:
            everything = ()
            x = x * 1
            for layer in self.layers:
                drop = False
                if self.training:
                    chance = torch.rand([])
                    if chance < self.layer_drop:
                        drop = True
                if drop:
                    outputs = (None, None)
                else:
                    outputs = layer(x)
                    x = outputs[0]
                if output_all:
                    everything = (*everything, outputs[1])
            return (x, everything) if output_all else x

    return Net()


@pattern(_row_batches, training_outcome=(COND,), **_LAYER_DROP)
def layer_drop_with_all_hidden_states() -> Any:
    class Net(_Encoder):
        def forward(self, x: Tensor) -> Any:
            states = ()
            x = x * 1
            for layer in self.layers:
                states = (*states, x)
                if self.training and torch.rand([]) < self.layer_drop:
                    continue
                # No residual: three gradients of one tensor would be added in another order.
                x = functional.dropout(layer.outer(layer.inner(x)), 0.2, self.training)
            return (*states, x)

    return Net()


@pattern(_row_batches, training_outcome=(COND,), **_LAYER_DROP)
def layer_drop_by_a_condition_with_a_name() -> Any:
    class Net(_Encoder):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                skip = self.training and torch.rand([]) < self.layer_drop
                if not skip:
                    x = layer(x)[0]
            return x

    return Net()


@pattern(rows, WHERE, training_outcome=(WHERE,))
def dropout_in_both_arms() -> Any:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = functional.dropout(x * 2, 0.5, training=self.training)
            else:
                y = functional.dropout(x - 1, 0.2, training=self.training)
            return functional.dropout(y, 0.5, training=self.training)

    return Net()


@pattern(rows, COND, training_outcome=(WHERE,))
def noise_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + torch.rand(2, 4) * torch.randn_like(x)
        else:
            x = x - 1
        return x + torch.rand(2, 4)

    return program


@pattern(rows, COND, training_outcome=(COND,))
def attention_with_dropout_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            heads = x.view(1, 2, 2, 2)
            y = functional.scaled_dot_product_attention(
                heads, heads, heads, dropout_p=0.3, is_causal=True
            ).view(2, 4)
        else:
            y = x - 1
        return y * torch.rand(2, 4)

    return program


@pattern(rows, COND, training_outcome=(WHERE,))
def a_noise_tensor_filled_in_place() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            noise = torch.empty(2, 4).normal_()
            noise.t().mul_(2)
            x = x * noise
        else:
            x = x - 1
        return x * torch.rand(2, 4)

    return program


@pattern(_row_batches, COND, **_LAYER_DROP)
def dropout_on_rows_in_a_layer_that_may_be_dropped() -> Any:
    class Layer(_Layer):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            chosen = x[:, 0] > 0
            if chosen.any():
                places = chosen.nonzero().squeeze(-1)
                x = x.index_add(0, places, super().forward(x[places])[0])
            return (functional.dropout(x, 0.1, training=self.training),)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                if self.training and torch.rand([]) < 0.5:
                    continue
                x = layer(x)[0]
            return x

    return Net()


# The numbers are drawn with chances that the arm computes: they cannot be drawn before it.
@pattern(
    rows,
    COND,
    training_outcome=(refused("random-under-gradients"),),
    because=(
        "What is drawn depends on values that only the arm computes, so it cannot be drawn "
        "before the arm; the backward of `torch.cond` would draw again, and running both arms"
        " would shift the random stream."
    ),
)
def draws_that_depend_on_the_data_of_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * torch.bernoulli(x.detach().sigmoid())
        else:
            x = x - 1
        return x * torch.rand(2, 4)

    return program


@pattern(rows, training_outcome=(COND,), zero_gradients=True, any_random_state=True)
def layer_drop_while_training() -> Any:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layerdrop = 0.5
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                dropout_probability = torch.rand([])
                if self.training and dropout_probability < self.layerdrop:
                    continue
                x = layer(x)
            return x

    return Encoder()


@pattern(rows, training_outcome=(COND,), zero_gradients=True)
def layer_drop_decided_in_a_flag() -> Any:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layerdrop = 0.5
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor, synced_gpus: bool = False) -> Tensor:
            x = x * 1
            for layer in self.layers:
                skip_the_layer = self.training and (torch.rand([]) < self.layerdrop)
                if not skip_the_layer or synced_gpus:
                    x = layer(x)
            return x

    return Encoder()


@pattern(_row_batches, training_outcome=(COND,), **_LAYER_DROP)
def layer_drop_of_layers_that_compute_chosen_rows() -> Any:
    class Sparse(_Layer):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            drawn = x[:, torch.randint(0, x.size(1), (2,))]
            chosen = drawn.sum(-1).topk(1, sorted=False)[1]
            result = x.mean(0, keepdim=True).expand(x.shape).clone()
            result[chosen] = super().forward(x[chosen])[0]
            return (functional.dropout(result, 0.1, training=self.training),)

    class Net(_Encoder):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Sparse() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                if self.training and torch.rand([]) < self.layer_drop:
                    continue
                x = layer(x)[0]
            return x

    return Net()


@pattern(rows, CHOICE, COND, zero_gradients=True)
def layer_drop_decided_in_a_ternary() -> Any:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layerdrop = 0.5
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for index, layer in enumerate(self.layers):
                dropped = torch.rand([]) < self.layerdrop
                skip = True if dropped and index > 0 else False
                if not skip:
                    x = layer(x)
            return x

    return Encoder()


@pattern(rows, COND, training=False)
def sampled_only_from_probabilities() -> Program:
    def program(weights: Tensor) -> Tensor:
        if (weights >= 0).all():
            return torch.multinomial(weights, 4)
        return weights.argsort(-1)

    return program


PATTERNS = patterns_among(list(vars().values()))
