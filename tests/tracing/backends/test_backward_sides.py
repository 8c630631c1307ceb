"""The graph that gives the gradients of a side of a choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bcmend.tracing.backends.backward_sides import backward_of, order_in_memory


def _gradients(
    side: Callable[..., Any], inputs: list[Any], gradients: list[Any], wanted: list[bool]
) -> tuple[torch.Tensor, ...]:
    dispatch = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    )
    given = (*inputs, *gradients)
    return tuple(backward_of(side, given, wanted, dispatch)(*given))


@pytest.mark.parametrize(
    "operand",
    [torch.ones(2, 3), torch.ones(2, 3).t(), torch.ones(2, 3, 4).permute(2, 0, 1)],
    ids=["contiguous", "transposed", "permuted"],
)
@pytest.mark.parametrize(
    "side",
    [
        lambda x: (x.sum(),),
        lambda x: (x.transpose(-1, -2).exp().contiguous(),),
        lambda x: (x[:1] * 2,),
        lambda x: (torch.ones(()),),
        lambda x: (x.sum(0), x.permute(*reversed(range(x.dim()))) * x.mean()),
    ],
    ids=["expanded", "transposed", "sliced", "none", "two"],
)
def test_a_gradient_is_laid_out_like_what_was_read(
    side: Callable[..., Any], operand: torch.Tensor
) -> None:
    results = side(operand)
    torch.manual_seed(0)
    gradients = [torch.rand_like(each) for each in results]
    (found,) = _gradients(side, [operand], gradients, [True])
    read = operand.detach().requires_grad_()
    differentiable = [
        (result, gradient)
        for result, gradient in zip(side(read), gradients, strict=True)
        if result.requires_grad
    ]
    expected = torch.zeros_like(operand)
    if differentiable:
        made, given = zip(*differentiable, strict=True)
        (expected,) = torch.autograd.grad(made, read, given)
    torch.testing.assert_close(found, expected)
    assert found.stride() == operand.stride()


def test_only_the_gradients_that_are_wanted_are_returned() -> None:
    x, y = torch.rand(3), torch.rand(3)
    (found,) = _gradients(lambda x, y: (x * y,), [x, y], [torch.ones(3)], [False, True])
    assert found.equal(x)


def test_no_gradient_is_memory_of_another_or_of_an_argument() -> None:
    x, y, gradient = torch.rand(3), torch.rand(3), torch.rand(3)
    found = _gradients(lambda x, y: (x + y,), [x, y], [gradient], [True, True])
    pointers = {each.data_ptr() for each in (x, y, gradient, *found)}
    assert len(pointers) == 5
    assert all(each.equal(gradient) for each in found)


def test_results_without_history_and_numbers_get_no_gradient() -> None:
    x = torch.rand(3)
    found = _gradients(
        lambda x, n: (x * n, x.argsort()), [x, 4], [torch.ones(3), torch.ones(3)], [True, False]
    )
    assert [each.tolist() for each in found] == [[4.0, 4.0, 4.0]]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_order_in_memory_is_that_of_the_strides(order: tuple[int, ...]) -> None:
    permuted = torch.ones(2, 3, 4).permute(order)
    assert permuted.permute(order_in_memory(permuted)).is_contiguous()
