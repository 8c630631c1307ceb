"""Arms that fail, give no finite value or cannot be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import (
    COND,
    GUARD,
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
def gradient_of_the_untaken_side_is_not_a_number() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.relu()
        if y.min() > 0:
            z = (y**0.5).log()
        else:
            z = y * 2
        return z

    return program


@pattern(rows, GUARD)
def view_to_a_bad_shape() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 100:
            y = x.view(3, 3)
        else:
            y = x * 2
        return y

    return program


def _lookups() -> list[Call]:
    table = torch.arange(12.0).reshape(4, 3)
    return [call(table.clone(), torch.tensor(each)) for each in ([0, 3], [1, 2], [0, 7])]


@pattern(_lookups, COND, zero_gradients=True)
def index_that_would_be_out_of_range() -> Program:
    def program(table: Tensor, index: Tensor) -> Tensor:
        if index.max() < table.shape[0]:
            y = table[index] * 2
        else:
            y = torch.zeros(2, 3)
        return y

    return program


@pattern(signs, GUARD)
def subscript_of_none_in_an_arm() -> Program:
    def program(x: Tensor, items: list[Tensor] | None = None) -> Tensor:
        if x.sum() < 0:
            y = items[0]
        else:
            y = x * 2
        return y

    return program


def _integers() -> list[Call]:
    one = torch.tensor([4, 6, 8])
    divisors = ([1, 2, 3], [2, 0, 1], [4, 4, 4])
    return [call(one.clone(), torch.tensor(each)) for each in divisors]


@pattern(_integers, COND, training=False)
def integer_division_by_zero() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if (y != 0).all():
            z = x // y
        else:
            z = x * 0
        return z

    return program


@pattern(
    signs,
    refused("arm-untraceable"),
    graphs=None,
    because="The arm asks for a graph break itself; no graph holds it.",
)
def arm_that_breaks_the_graph() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
            torch._dynamo.graph_break()
            y = y + 1
        else:
            y = x - 1
        return y * 2

    return program


@pattern(
    signs,
    refused("frame-introspection"),
    graphs=None,
    because="`locals()` reads the frame that it is called in, and an arm runs in another.",
)
def locals_inside_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * locals()["x"]
        else:
            y = x - 1
        return y

    return program


@pattern(signs, GUARD)
def key_that_is_missing_in_an_arm() -> Program:
    table = {"known": 2.0}

    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            return x * table["unknown"]
        return x * table["known"]

    return program


@pattern(signs, GUARD)
def attribute_that_is_missing_in_an_arm() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 2.0

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return x * self.scale
            return x * self.offset

    return Net()


@pattern(signs, GUARD)
def division_by_a_python_zero_in_an_arm() -> Program:
    def program(x: Tensor, count: int = 0) -> Tensor:
        if x.sum() > 0:
            y = x * count
        else:
            y = x * (1 / count)
        return y + 1

    return program


@pattern(signs, GUARD)
def position_out_of_a_list_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        factors = [1.0, 2.0]
        if x.max() > 2:
            factors.append(3.0)
            return x * factors[2]
        return x * factors[2]

    return program


@pattern(signs, GUARD)
def columns_that_do_not_exist_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            y = x.reshape(2, 2).sum(0)
        else:
            y = x * 2
        return y + 1

    return program


@pattern(signs, GUARD)
def row_that_does_not_exist_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            return x[7]
        return x * 2

    return program


@pattern(signs, GUARD)
def argument_that_does_not_exist_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            x = torch.add(x, "1")
        return x * 2

    return program


@pattern(signs, GUARD)
def length_of_a_text_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            return x * len(f"{x}")  # which Dynamo takes for an error
        return x * 2

    return program


@pattern(signs, GUARD)
def method_of_none_in_an_arm() -> Program:
    def program(x: Tensor, bias: Tensor | None = None) -> Tensor:
        if (x < -3.5).any():
            x = x + bias.abs()
        return x * 2

    return program


@pattern(signs, WHERE)
def logarithm_only_where_positive() -> Program:
    def program(x: Tensor) -> Tensor:
        if (x > 0).all():
            return x.log().sum()
        return (x * x).sum()

    return program


@pattern(signs, WHERE)
def quotient_only_where_not_zero() -> Program:
    def program(x: Tensor) -> Tensor:
        spread = (x - x).sum()
        if spread > 0:
            y = x / spread
        else:
            y = x - spread
        return y

    return program


@pattern(signs, WHERE)
def norm_of_zero_not_divided_by() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.clamp(min=0.0)
        norm = y.norm()
        if norm > 0:
            y = y / norm
        return y + x

    return program


@pattern(signs, WHERE)
def power_and_root_nested() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.relu()
        if y.min() > 0:
            if y.max() > 2:
                z = y.sqrt().log()
            else:
                z = y**-0.5
        else:
            z = y * 3
        return z

    return program


def _matrices() -> list[Call]:
    good = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    return [call(good), call(-torch.eye(2)), call(good * 2)]


# With aot_eager its backward fails under any cond.
@pattern(_matrices, COND, WHERE, training=False, inductor=False)
def factorised_only_if_definite() -> Program:
    def program(matrix: Tensor) -> Tensor:
        determinant = matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]
        if matrix[0, 0] > 0 and determinant > 0:
            return torch.linalg.cholesky(matrix).sum()
        return matrix.diagonal().sum()

    return program


@pattern(_matrices, COND, training=False, inductor=False)  # as with cholesky
def inverted_only_if_regular() -> Program:
    def program(matrix: Tensor) -> Tensor:
        shifted = matrix + torch.eye(2)
        if shifted.abs().sum() > 0.1:
            return torch.linalg.inv(shifted).sum()
        return torch.linalg.matrix_norm(shifted)

    return program


def _indices() -> list[Call]:
    x = torch.tensor([0.5, -1.0, 2.0])
    return [call(x.clone(), torch.tensor(each)) for each in ([0, 2], [1, 5], [-1, 0])]


@pattern(_indices, COND, WHERE, zero_gradients=True)
def gathered_only_within_range() -> Program:
    def program(x: Tensor, index: Tensor) -> Tensor:
        if index.min() >= 0 and index.max() < 3:
            return x.gather(0, index)
        return x[:2] * 0 - 1

    return program


@pattern(_indices, COND, WHERE, training=False)
def embedded_only_within_the_vocabulary() -> Any:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(3, 4)

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            if (ids < 0).any() or (ids >= 3).any():
                return torch.zeros(2, 4) + x.sum()
            return self.embedding(ids)

    return Embedded()


@pattern(_indices, COND, WHERE, training=False)
def loss_only_for_known_classes() -> Program:
    def program(logits: Tensor, target: Tensor) -> Tensor:
        if target.min() < 0 or target.max() > 2:
            return logits.sum() * 0
        return F.cross_entropy(logits.expand(2, 3), target)

    return program


@pattern(signs, WHERE)
def infinity_kept_out_of_gradients() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 100
        if y.max() < 80:
            z = y.exp().sum()
        else:
            z = y.clamp(max=80).sum()
        return z * 1e-3

    return program


PATTERNS = patterns_among(list(vars().values()))
