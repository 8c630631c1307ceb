"""``x[mask] = v`` where ``v`` gets a gradient: a select, in every back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import bcmend


def program(x: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, value: torch.Tensor) -> Any:
    h = x * weight
    seen = h[0]
    h[mask] = value
    return h.sin(), seen


FORMS = [
    ((2, 5, 3), (2, 5), (3,)),
    ((2, 5, 3), (2, 5), (1,)),
    ((2, 5, 3), (2, 5), ()),
    ((2, 5, 3), (2,), (5, 1)),
    ((2, 5, 3), (2,), (5, 3)),
    ((4,), (4,), ()),
    ((2, 3), (2, 3), ()),
]


def _outcome(
    call: Callable[..., Any], form: tuple[Any, ...], rate: float
) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(4)
    size, covered, given = form
    x, mask = torch.randn(size), torch.rand(covered) < rate
    weight, value = torch.randn(size, requires_grad=True), torch.randn(given, requires_grad=True)
    result, seen = call(x, mask, weight, value)
    loss = (result * torch.arange(result.numel()).view_as(result)).sum() + seen.sum()
    loss.backward()
    return result.detach(), seen.detach(), weight.grad, value.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_those_of_eager(backend: str, form: tuple[Any, ...]) -> None:
    torch._dynamo.reset()
    rates = (0.5, 0.0, 1.0)
    expected = [_outcome(program, form, each) for each in rates]
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    try:
        found = [_outcome(compiled, form, each) for each in rates]
    finally:
        bcmend.unpatch()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def _targets(*arguments: Any, like: Callable[..., Any] = program) -> set[str]:
    """Return what the graph of a program calls."""
    found: set[str] = set()

    def compiler(module: torch.fx.GraphModule, _: Any) -> Any:
        for node in module.graph.nodes:
            found.add(getattr(node.target, "__name__", str(node.target)))
        return module.forward

    torch._dynamo.reset()
    bcmend.patch(like, policy=bcmend.Policy(mend="ahead"))
    try:
        torch.compile(like, backend=compiler, fullgraph=True)(*arguments)
    finally:
        bcmend.unpatch()
    return found


def test_only_stores_of_a_value_with_a_gradient_are_selects() -> None:
    x, mask = torch.randn(2, 3), torch.tensor([True, False])
    value = torch.randn(3, requires_grad=True)
    assert "where" in _targets(x, mask, x, value)
    assert "where" not in _targets(x, mask, x, value.detach())
    with torch.no_grad():
        assert "where" not in _targets(x, mask, x, value)


def test_rows_for_the_places_stay_a_store() -> None:
    x, mask = torch.randn(2, 3), torch.tensor([True, False])
    assert "where" not in _targets(x, mask, x, torch.randn(1, 3, requires_grad=True))


def test_inductor_compiles_the_backward_of_two_stores() -> None:
    def two(x: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, value: torch.Tensor) -> Any:
        h = x * weight
        h[mask] = value
        h[~mask.roll(1)] = 0.0
        return h.sin() @ h.transpose(-1, -2), h

    form = ((2, 5, 3), (2, 5), (3,))
    expected = _outcome(two, form, 0.5)
    torch._dynamo.reset()
    compiled = torch.compile(bcmend.patch(two), backend="inductor", fullgraph=True)
    try:
        found = _outcome(compiled, form, 0.5)
    finally:
        bcmend.unpatch()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
