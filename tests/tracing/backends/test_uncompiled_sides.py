"""Choices and loops under back ends that compile nothing, and under others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import bcmend
from bcmend.dynamo import hooks


def branch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = torch.linalg.svdvals(x * weight)
    else:
        y = (x - weight).exp().sum(0)
    return y * 2


def loop(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x.sum()
    while y < 4:
        y = y + 1 + torch.fft.fft(x * weight, n=7, dim=0).abs().sum().clamp(max=1.0)
    return y


def _history(result: torch.Tensor) -> set[str]:
    seen, left = set(), [result.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left.extend(each for each, _ in node.next_functions)
    return {type(each).__name__ for each in seen}


def _calls(function: Callable[..., Any]) -> list[tuple[torch.Tensor, ...]]:
    torch.manual_seed(3)
    found = []
    for sign in (1.0, -1.0, 1.0):
        x = (torch.rand(4, 5) * sign).requires_grad_()
        weight = torch.rand(4, 5, requires_grad=True)
        result = function(x, weight)
        result.sum().backward()
        found.append((result.detach(), x.grad, weight.grad))
    return found


@pytest.mark.parametrize("program", [branch, loop])
def test_back_ends_that_compile_nothing_run_the_side_that_is_taken(
    program: Callable[..., Any],
) -> None:
    expected = _calls(program)
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    try:
        found = _calls(compiled)
        names = _history(compiled(torch.ones(4, 5, requires_grad=True), torch.ones(4, 5)))
        assert not any("Op" in each for each in names), names
    finally:
        bcmend.unpatch()
    for one, other in zip(expected, found, strict=True):
        assert one[0].equal(other[0])
        torch.testing.assert_close(one[1:], other[1:], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("program", [branch, loop])
def test_others_compile_both_sides(program: Callable[..., Any]) -> None:
    expected = _calls(program)
    compiled = torch.compile(bcmend.patch(program), backend="aot_eager", fullgraph=True)
    try:
        found = _calls(compiled)
        names = _history(compiled(torch.ones(4, 5, requires_grad=True), torch.ones(4, 5)))
        assert names == {"CompiledFunctionBackward", "AccumulateGrad"}
    finally:
        bcmend.unpatch()
    torch.testing.assert_close(expected, found, rtol=1e-6, atol=1e-6)


def test_operators_of_the_program_itself_run_as_torch_runs_them() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    bcmend.patch(branch)
    try:
        compiled = torch.compile(program, backend="eager", fullgraph=True)
        result = compiled(torch.ones(3, requires_grad=True))
        assert _history(result) == {"CondAutogradOpBackward", "AccumulateGrad"}
    finally:
        bcmend.unpatch()


def test_kernels_are_those_of_torch_while_nothing_is_patched() -> None:
    operators = (torch.ops.higher_order.cond, torch.ops.higher_order.while_loop)
    key = torch._C.DispatchKey.Autograd
    bcmend.unpatch()  # what tests before this one have left patched
    before = [each.py_kernels[key] for each in operators]
    bcmend.patch(branch, policy=bcmend.Policy(mend="ahead"))
    assert all(
        each.py_kernels[key] is not kernel for each, kernel in zip(operators, before, strict=True)
    )
    bcmend.unpatch()
    assert [each.py_kernels[key] for each in operators] == before
    assert not hooks.REGISTRY.armed
