"""Programs whose arms once left something behind in the trace, or stopped it for good."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

_kept = torch.zeros(())


def _signs() -> Sequence[Call]:
    x = torch.tensor([1.0, 2.0, 4.0])
    return [call(x), call(-x), call(x / 8), call(-x), call(x)]


def test_a_buffer_is_stored_to_in_an_arm_and_again_after_it() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 1:
                self.seen = self.seen + x.max()
            self.seen = self.seen + 1
            return x - self.seen

    assert_equivalent(Net, _signs)


def _stored_before() -> Callable[..., Any]:
    def program(x: Tensor) -> Tensor:
        global _kept
        _kept = torch.zeros(())
        if x.max() > 1:
            _kept = x.max()
        return x - _kept

    return program


def _stored_in_one_arm() -> Callable[..., Any]:
    def program(x: Tensor) -> Tensor:
        global _kept
        if x.max() > 1:
            _kept = x.max()
        return x - _kept

    return program


def _stored_in_nested_arms() -> Callable[..., Any]:
    def program(x: Tensor) -> Tensor:
        global _kept
        if x.max() > 0:
            if x.sum() > 1:
                _kept = x.sum()
        else:
            _kept = _kept - 1
        _kept = _kept * 2
        return x - _kept

    return program


@pytest.mark.parametrize("make", [_stored_before, _stored_in_one_arm, _stored_in_nested_arms])
def test_a_global_variable_is_stored_to_in_an_arm(make: Callable[[], Any]) -> None:
    def begin() -> Any:
        global _kept
        _kept = torch.ones(())
        return make()

    assert_equivalent(begin, _signs)


def test_a_store_to_a_global_variable_before_a_branch_that_stays_is_kept() -> None:
    def make() -> Any:
        global _kept
        _kept = torch.ones(())

        def program(x: Tensor) -> tuple[Tensor, Tensor]:
            global _kept
            _kept = torch.zeros(())
            if x.sum() > 1:
                _kept = x.max()
                torch._dynamo.graph_break()
            return x - _kept, _kept

        return program

    assert_equivalent(make, _signs, fullgraph=False, graphs=None, recompiles=None)


def test_a_condition_inside_an_arm_does_not_look_like_a_tensor() -> None:
    def make() -> Any:
        def program(x: Tensor, step: Tensor, flag: Tensor) -> Tensor:
            if step > 5 or step == 3:
                x = x + 1
                if flag:
                    x = x * 2
            elif flag:
                x = x - 1
            return x * 3

        return program

    def inputs() -> Sequence[Call]:
        x = torch.tensor([1.0, 2.0])
        return [
            call(x, torch.tensor(step), torch.tensor(flag))
            for step in (3, 4, 6)
            for flag in (True, False)
        ]

    assert_equivalent(make, inputs)


def test_a_function_called_by_an_arm_has_a_condition_that_does_not_look_like_a_tensor() -> None:
    def doubled(x: Tensor, flag: Tensor) -> Tensor:
        return x * 2 if flag else x

    def make() -> Any:
        def program(x: Tensor, flag: Tensor) -> Tensor:
            if x.sum() > 0:
                return doubled(x + 1, flag)
            return x - 1

        return program

    def inputs() -> Sequence[Call]:
        x = torch.tensor([1.0, 2.0])
        return [call(each, torch.tensor(flag)) for each in (x, -x) for flag in (True, False)]

    assert_equivalent(make, inputs)


def test_an_arm_that_stops_is_equal_to_one_of_an_earlier_function() -> None:
    def make() -> Any:
        def program(x: Tensor, step: Tensor) -> Tensor:
            if step > 5 or step == 3:
                x = x + 1
            return x * 3

        return program

    for _ in range(2):
        assert_equivalent(make, lambda: [call(torch.ones(2), torch.tensor(n)) for n in (3, 4, 6)])


@pytest.mark.parametrize("training", [False, True])
def test_an_arm_under_cond_reads_a_tensor_and_a_view_of_it(training: bool) -> None:
    def make() -> Any:
        def program(x: Tensor, w: Tensor) -> Tensor:
            first, rest = x[0], x[1:]
            if x.sum() > 0:
                return (x @ w) * first
            return x * rest.sum() - first

        return program

    def inputs() -> Sequence[Call]:
        x = torch.arange(1.0, 10.0).reshape(3, 3)
        return [call(x.clone(), x / 9), call(-x, x / 9)]

    assert_equivalent(make, inputs, backend="aot_eager", training=training, zero_gradients=True)


def test_the_gradient_out_of_an_arm_under_cond_is_laid_out_otherwise() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            determinant = x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0]
            if x[0, 0] > 0 and determinant > 0:
                return torch.linalg.cholesky(x).sum()
            return x.diagonal().sum()

        return program

    def inputs() -> Sequence[Call]:
        return [call(torch.eye(2) * 2 + 0.5), call(-torch.eye(2))]

    assert_equivalent(make, inputs, training=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_only_one_side_of_a_cond_makes_is_laid_out_otherwise(backend: str) -> None:
    """A cache of keys, appended to by the layers that are not dropped."""

    def make() -> Any:
        def program(x: Tensor) -> tuple[Tensor, list[Tensor]]:
            cache: list[Tensor] = []
            if x[0, 0] > 0:
                keys = (x @ x).view(2, 2, 4).transpose(0, 1)
                cache.append(keys)
                x = x + keys.sum()
            return x * 1, cache

        return program

    def inputs() -> Sequence[Call]:
        x = torch.arange(1.0, 17.0).view(4, 4)
        return [call(x), call(-x)]

    assert_equivalent(make, inputs, backend=backend)


def test_the_gradient_of_a_transposed_operand_is_laid_out_as_it_is() -> None:
    def make() -> Any:
        def program(x: Tensor, w: Tensor) -> Tensor:
            heads = (x @ w).view(4, 2, 2, 2).transpose(0, 1)
            if x.sum() > 0:
                heads = torch.matmul(heads.contiguous().view(2, 4, 4), x).view(2, 4, 2, 2) + heads
            else:
                heads = heads * 2 + heads.sum()
            return heads * 1

        return program

    def inputs() -> Sequence[Call]:
        x = torch.arange(1.0, 17.0).view(4, 4)
        w = torch.linspace(-1.0, 1.0, 32).view(4, 8)
        return [call(x, w), call(-x, w)]

    assert_equivalent(make, inputs, training=True, may_copy=True)


def test_a_number_that_a_function_in_an_arm_is_given_is_a_condition_there() -> None:
    """Nothing in the function says that what it asks may be a tensor's."""

    class Layer(nn.Module):
        def forward(self, x: Tensor, is_global: Any) -> Tensor:
            return x * 3 if is_global else x + 1

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()

        def forward(self, x: Tensor) -> Tensor:
            is_global = (x > 2).any().item()
            if x.sum() > 0:
                x = self.layer(x, is_global)
            return x * 2

    def inputs() -> Sequence[Call]:
        return [call(torch.tensor(each)) for each in ([3.0, 1.0], [1.0, 1.0], [3.0, -9.0])]

    assert_equivalent(Net, inputs)


def _in_as_many_rounds(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
    a, b = x[one], x[other]
    if len(a) > 0 and len(b) > 0:
        if len(a) > len(b):
            b = b.repeat(math.ceil(float(len(a)) / float(len(b))))[: len(a)]
        else:
            a = a.repeat(math.ceil(float(len(b)) / float(len(a))))[: len(b)]
        return a + b
    return x


def _in_a_part(x: Tensor, one: Tensor, other: Tensor) -> Any:
    count = len(x[one])
    if x.sum() > 0:
        return x.new_ones(count // 2), x.new_ones(round(count * 0.7)), x.new_ones(int(count / 3))
    return x, x, x


@pytest.mark.parametrize("program", [_in_as_many_rounds, _in_a_part])
def test_a_size_of_one_side_is_a_rounded_quotient(program: Callable[..., Any]) -> None:
    def inputs() -> Sequence[Call]:
        x, masks = torch.arange(1.0, 6.0), torch.tensor([[1, 1, 0, 1, 1], [0, 1, 0, 0, 1]]) > 0
        one, other = masks
        pairs = ((one, other), (other, one), (one, one.clone()), (one, other & False))
        return [call(sign * x, *pair) for pair in pairs for sign in (1, -1)]

    assert_equivalent(lambda: program, inputs, recompiles=None)
