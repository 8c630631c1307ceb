"""Tests of what Inductor's caches keep of mended programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

import bcmend
from bcmend.tracing.backends import compile_caches
from tests.differences_of_torch import JOINED_ROWS_ARE_WRONG, SUMS_OF_SIZES_FAIL_IN_BACKWARDS

Program = Callable[[torch.Tensor], torch.Tensor]

NUMBERS = ([0.25, 0.5, 2.0], [-0.25, -0.5, -2.0])


@pytest.fixture(autouse=True)
def _an_empty_cache() -> Iterator[None]:
    with fresh_cache():
        yield


def doubled(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = torch.exp(x).roll(1) * 2.0
    else:
        y = torch.linalg.vecdot(x, x) + x.flip(0)
    return y.sin()


def tripled(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = torch.exp(x).roll(1) * 3.0
    else:
        y = torch.linalg.vecdot(x, x) + x.flip(0)
    return y.sin()


def with_numbers(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = torch.exp(x) * torch.tensor([1.0, 2.0, 3.0])
    else:
        y = x.flip(0)
    return y.sin()


def with_other_numbers(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = torch.exp(x) * torch.tensor([1.0, 2.0, 4.0])
    else:
        y = x.flip(0)
    return y.sin()


def counted(x: torch.Tensor) -> torch.Tensor:
    while x.abs().sum() < 100:
        x = x * 2 + x.sin()
    return x


def shown(program: Program, *, training: bool) -> list[torch.Tensor]:
    """Return what a program gives for each of the numbers, and the gradients."""
    found = []
    for numbers in NUMBERS:
        x = torch.tensor(numbers, requires_grad=training)
        result = program(x)
        found.append(result.detach())
        if training:
            result.sum().backward()
            assert x.grad is not None
            found.append(x.grad)
    return found


def compiled_anew(program: Program, *, training: bool = True) -> tuple[int, int]:
    """Compile a program, compare it with eager, and return how often a cache had it and had not."""
    torch._dynamo.reset()
    counters.clear()
    patched = bcmend.patch(program, policy=bcmend.Policy(branch="cond"))
    found = shown(torch.compile(patched, fullgraph=True), training=training)
    bcmend.unpatch(patched)
    torch.testing.assert_close(found, shown(program, training=training))
    of_autograd = counters["aot_autograd"]
    assert not of_autograd["autograd_cache_bypass"]
    return of_autograd["autograd_cache_hit"], of_autograd["autograd_cache_miss"]


def test_a_choice_is_found_again_with_its_backward_and_another_is_not() -> None:
    assert compiled_anew(doubled) == (0, 1)
    assert compiled_anew(doubled) == (1, 0)
    assert compiled_anew(tripled) == (0, 1)


@pytest.mark.slow
def test_a_loop_is_found_again() -> None:
    assert compiled_anew(counted, training=False) == (0, 1)
    assert compiled_anew(counted, training=False) == (1, 0)


@pytest.mark.slow
def test_a_side_with_other_numbers_is_not_found() -> None:
    assert compiled_anew(with_numbers) == (0, 1)
    assert compiled_anew(with_other_numbers) == (0, 1)


def test_a_choice_that_a_program_writes_itself_is_compiled_as_by_torch() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return found

    torch._dynamo.reset()
    counters.clear()
    bcmend.patch(doubled)
    shown(torch.compile(program, fullgraph=True), training=False)
    bcmend.unpatch(doubled)
    assert counters["aot_autograd"]["autograd_cache_bypass"] == 1


def test_a_graph_with_sizes_that_the_data_decide_has_a_key_of_its_own() -> None:
    found: list[dict[str, str]] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        found.append(compile_caches._added(graph))
        return graph

    for select in (lambda x: x.sin(), lambda x: x[x > 0].sin()):
        torch._dynamo.reset()
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            torch.compile(select, backend=backend, fullgraph=True)(torch.ones(3))
    assert [compile_caches._SIZES in each for each in found] == [False, True]


def rows_joined(x: torch.Tensor) -> torch.Tensor:
    first = x[:, 0] >= 0
    places = torch.cat([first.nonzero().flatten(), (~first).nonzero().flatten()])
    return x[places].reshape(-1, 4) * 2


def by_compile_fx(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
    """Compile as back ends of programs do that hand what they get to Inductor."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("inductor", id="inductor"),
        pytest.param(by_compile_fx, id="compile_fx", marks=pytest.mark.slow),
    ],
)
def test_what_torch_alone_has_stored_is_not_found(backend: Any, training: bool) -> None:
    if training and SUMS_OF_SIZES_FAIL_IN_BACKWARDS:
        pytest.skip("it does not compile")
    x = torch.arange(16.0).reshape(8, 2) - 7
    x.requires_grad_(training)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        stored = torch.compile(rows_joined, backend=backend, fullgraph=True)
        assert torch.equal(stored(x), rows_joined(x)) is not JOINED_ROWS_ARE_WRONG
        torch._dynamo.reset()
        patched = bcmend.patch(rows_joined)
        found = torch.compile(patched, backend=backend, fullgraph=True)(x)
        bcmend.unpatch(patched)
    assert torch.equal(found, rows_joined(x))
    if training:
        found.sum().backward()
        assert x.grad is not None and torch.equal(x.grad, torch.full_like(x, 2))


def scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    by = scale.item() * 2 + 1
    return torch.add(x, x.flip(0), alpha=by)


def added_in_parts(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    part = scale.item()
    return torch.add(x, x.flip(0), alpha=part) if x.sum() > 0 else torch.sub(x, x, alpha=part)


@pytest.mark.parametrize("program", [scaled, added_in_parts])
def test_the_graph_of_one_number_of_an_argument_is_not_found_for_another(program: Any) -> None:
    # Torch knows the number in a 0-d double of an argument while it traces.
    x = torch.tensor([0.25, 0.5, 2.0])
    for _ in range(2):  # the second time with what the first one has stored
        torch._dynamo.reset()
        compiled = torch.compile(bcmend.patch(program), fullgraph=True)
        for number in (0.25, 0.75, -3.0):
            scale = torch.tensor(number, dtype=torch.float64)
            torch.testing.assert_close(compiled(x, scale), program(x, scale))
