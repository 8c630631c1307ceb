"""Loops and chains of branches that once differed from eager execution, or took too long."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call

SMALL, LARGE = torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([4.0, 8.0, 2.0])


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _both() -> list[Any]:
    return [call(SMALL.clone()), call(LARGE.clone())]


def _slugs(found: Any) -> set[str]:
    return {str(site.refusal) for site in found.report.sites}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_loop_without_a_turn_has_the_gradient_of_what_entered_it(backend: str) -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            scaled = x * 3
            while scaled.sum() > 3:
                scaled = scaled * 0.5
            return scaled

        return program

    assert_equivalent(make, _both, backend=backend, training=True)


def test_no_nan_comes_from_the_gradient_of_a_turn_that_was_not_made() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            value = x.clamp(min=0.0)
            while value.sum() > 3:
                value = value.sqrt() - 0.5
            return value

        return program

    assert_equivalent(make, lambda: [call(SMALL.clone())], backend="aot_eager", training=True)


def test_a_loop_in_a_loop_has_the_gradient_of_the_turns_made() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            total = x.abs()
            while total.sum() < 20:
                inner = total
                while inner.sum() < 10:
                    inner = inner * 2
                total = total + inner * 0.5 + 1
            return total

        return program

    assert_equivalent(make, _both, training=True)


def test_a_condition_that_is_carried_too_is_no_alias_of_itself() -> None:
    def make() -> Any:
        def program(x: Tensor) -> tuple[Tensor, Tensor]:
            go = x.sum() > 0
            while go:
                x = x - 1
                go = x.sum() > 0
            return x, go

        return program

    assert_equivalent(make, _both, backend="aot_eager", training=True, may_copy=True)


def test_a_tensor_before_a_loop_is_the_one_after_it_if_there_was_no_iteration() -> None:
    def make() -> Any:
        def program(x: Tensor) -> tuple[Tensor, Tensor]:
            before = after = x * 2
            while after.sum() < 3:
                after = after + 1
            after.add_(1)
            return before, after

        return program

    assert_equivalent(make, _both, fullgraph=False, graphs=None, recompiles=None)


def test_a_range_shared_by_two_loops_is_consumed_by_the_first() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            shared = iter(range(20))
            for _ in shared:
                x = x * 0.7
                if x.norm() < 1:
                    break
            for _ in shared:
                x = x + 1
            return x

        return program

    assert_equivalent(make, _both, fullgraph=False, graphs=None, recompiles=None)


def test_a_tensor_keeps_its_gradients_through_a_branch_without_gradients() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            kept = x
            with torch.no_grad():
                if x.sum() < 3:
                    kept = x + 1
            return kept

        return program

    assert_equivalent(make, _both, fullgraph=False, graphs=None, recompiles=None, training=True)


def test_a_tensor_keeps_its_gradients_through_a_loop_without_gradients() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            kept = x
            with torch.no_grad():
                while kept.sum() < 3:
                    kept = kept + 1
            return kept

        return program

    assert_equivalent(make, _both, fullgraph=False, graphs=None, recompiles=None, training=True)


def test_a_long_chain_of_early_returns_is_left_alone() -> None:
    steps = (f"    if x.sum() > {20 + n}: return x * {n}\n    x = x + 1\n" for n in range(30))
    source = "def program(x):\n" + "".join(steps) + "    return x\n"

    def make() -> Any:
        space: dict[str, Any] = {}
        exec(source, space)
        return space["program"]

    found = assert_equivalent(make, _both, fullgraph=False, graphs=None, recompiles=None)

    assert "too-deep" in _slugs(found)


class _Contracting(torch.nn.Module):
    def __init__(self, *, by_its_norm: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.by_its_norm = by_its_norm

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(8):
            x = self.layer(x)
            size = x.norm()
            if size < 0.01:
                break
            if self.by_its_norm:
                x = x / size
        return x


@pytest.mark.parametrize("training", [False, True])
def test_a_loop_of_expensive_iterations_with_many_exits(training: bool) -> None:
    assert_equivalent(_Contracting, _both, training=training)


def _to_nothing() -> list[Any]:
    return [*_both(), call(torch.zeros(3)), call(SMALL.clone())]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_turn_that_was_not_made_would_divide_by_zero(backend: str, fullgraph: bool) -> None:
    def make() -> Any:
        model = _Contracting(by_its_norm=True)
        with torch.no_grad():
            model.layer.bias.zero_()
        return model

    assert_equivalent(make, _to_nothing, backend=backend, training=True, fullgraph=fullgraph)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_loop_that_a_tensor_ends_is_trained(fullgraph: bool) -> None:
    class Shrinking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            while x.norm() > 1:
                x = self.layer(x) * 0.5
            return x

    assert_equivalent(Shrinking, _both, backend="inductor", training=True, fullgraph=fullgraph)


def _view_changed(x: Tensor, mean: Tensor) -> Tensor:
    while x.sum() < 50:
        first = x[0]
        first.add_(1)
        x = x * 2
    return x


def _changed_by_a_keyword(x: Tensor, mean: Tensor) -> Tensor:
    while x.sum() < 50:
        x = torch.nn.functional.relu(x, inplace=True) + x + 1
    return x


def _statistics_changed(x: Tensor, mean: Tensor) -> Tensor:
    while x.sum() < 50:
        x = torch.nn.functional.batch_norm(x, mean, torch.ones(2), training=True) + x.abs() + 5
    return x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_view_changed, _changed_by_a_keyword, _statistics_changed])
def test_a_turn_that_changes_what_was_there_is_no_operator(program: Any, backend: str) -> None:
    """A view, a keyword and running statistics do not show in the name of the operation."""

    def inputs() -> tuple[Tensor, Tensor]:
        return torch.tensor([[1.0, 2.0], [-1.0, 2.5]]), torch.zeros(2)

    with torch.no_grad():
        expected = inputs()
        result = program(*expected)
        bcmend.patch(program)
        try:
            found = inputs()
            assert torch.compile(program, backend=backend)(*found).equal(result)
            assert all(one.equal(other) for one, other in zip(found, expected, strict=True))
            assert "while_loop" not in str(bcmend.report(program))
        finally:
            bcmend.unpatch(program)
