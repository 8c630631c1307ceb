"""Operators that are not torch's may have a state: each runs as often as in eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import fresh

_RUNS = [0]


@torch.library.custom_op("bcmend_test_own::count", mutates_args=())
def count(x: Tensor) -> Tensor:
    """Return an argument plus how often this has run."""
    _RUNS[0] += 1
    return x + _RUNS[0]


@count.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, gradient: Tensor) -> Tensor:
    (output,) = ctx.saved_tensors
    return gradient * output


count.register_autograd(_backward, setup_context=_keep)


def arm() -> Any:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = count(x)
        else:
            y = x * 2
        return y

    return program


def both_arms() -> Any:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = count(x) * 2
        else:
            y = count(x * 2) - 1
        return y

    return program


def condition() -> Any:
    def program(x: Tensor) -> Tensor:
        if count(x).sum() > 8:
            return x + 1
        return x * 2

    return program


def behind_and() -> Any:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0 and count(x).sum() > 0:
            return x + 1
        return x * 1

    return program


def check_behind_it() -> Any:
    def program(x: Tensor) -> Tensor:
        y = count(x)
        if x.sum() < 0:
            raise ValueError("negative")
        return y

    return program


def check_before_it() -> Any:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return count(x)

    return program


def check_in_an_arm() -> Any:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        if x.max() > 2:
            if x.sum() < 8:
                raise ValueError("small")
            y = count(x)
        return y

    return program


def check_caught() -> Any:
    def program(x: Tensor) -> Tensor:
        y = count(x)
        try:
            if x.sum() < 0:
                raise ValueError("negative")
            y = y * 2
        except ValueError:
            y = y * 3
        return y

    return program


def checked_by_torch() -> Any:
    def program(x: Tensor) -> Tensor:
        n = x.sum().to(torch.int64).item()
        torch._check(n > 0)
        return count(x) + n

    return program


def failing_behind_output() -> Any:
    def program(x: Tensor) -> Tensor:
        print(x.sum())
        y = count(x)
        return y[x.abs().long()]

    return program


def loop() -> Any:
    def program(x: Tensor) -> Tensor:
        while x.sum() < 20:
            x = count(x) + 1
        return x

    return program


def loop_over_places() -> Any:
    def program(x: Tensor) -> Tensor:
        for i in torch.nonzero(x > 0):
            x = x + count(x[i])
        return x

    return program


def code_of_both_sides() -> Any:
    def program(x: Tensor) -> Tensor:
        y = None
        if x.sum() > 0:
            y = x * 2
        z = count(x)
        if y is None:
            return z
        return z + y

    return program


def output_in_an_arm() -> Any:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            print(count(x).sum().item())
        return x * 1

    return program


def changed_argument() -> Any:
    def program(x: Tensor) -> Tensor:
        x = x * 1
        if x.sum() < 0:
            raise ValueError("negative")
        x.add_(count(x))
        return x

    return program


PROGRAMS = {
    each.__name__: each
    for each in (
        *(arm, both_arms, condition, behind_and, check_behind_it, check_before_it),
        *(check_in_an_arm, check_caught, checked_by_torch, failing_behind_output, loop),
        *(loop_over_places, code_of_both_sides, output_in_an_arm, changed_argument),
    )
}


def _calls(called: Callable[[Tensor], Tensor], gradients: bool) -> list[Any]:
    """Return for each call its result or error, gradients, and how often the operator has run."""
    _RUNS[0] = 0
    found = []
    for factor in (1, -1, 1, -1, 4):
        x = ((torch.arange(3.0) + 1) * factor).requires_grad_(gradients)
        try:
            result = called(x)
            if gradients:
                result.sum().backward()
            found.append((result.tolist(), None if x.grad is None else x.grad.tolist(), _RUNS[0]))
        except (ValueError, RuntimeError, IndexError) as error:
            found.append((type(error).__name__, str(error), _RUNS[0]))
    return found


def _compiled(make: Callable[[], Any], gradients: bool, backend: str) -> tuple[list[Any], int]:
    graphs = []

    def counting(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return torch._dynamo.lookup_backend(backend)(module, inputs)

    torch._dynamo.reset()
    program = bcmend.patch(fresh(make)())
    try:
        return _calls(torch.compile(program, backend=counting), gradients), len(graphs)
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()


@pytest.mark.parametrize("gradients", [False, True], ids=["", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator_of_ones_own_runs_as_often_as_in_eager(name: str, gradients: bool) -> None:
    make = PROGRAMS[name]
    found, graphs = _compiled(make, gradients, "eager")
    assert found == _calls(make(), gradients)
    if not gradients and name not in _BREAKING:
        assert graphs == 1


#: A check that is made when the graph has run would come too late for what stands behind it.
_BREAKING = frozenset(
    ["check_before_it", "check_in_an_arm", "changed_argument", "checked_by_torch"]
)


@pytest.mark.parametrize("name", ["arm", "check_behind_it", "check_before_it"])
def test_also_behind_autograd(name: str) -> None:
    make = PROGRAMS[name]
    found, _ = _compiled(make, True, "aot_eager")
    assert found == _calls(make(), True)


@pytest.mark.parametrize("name", ["arm", "check_before_it"])
def test_the_reason_is_named(name: str) -> None:
    torch._dynamo.reset()
    program = bcmend.patch(fresh(PROGRAMS[name])())
    try:
        _calls(torch.compile(program, backend="eager"), True)
        assert "hidden-state" in {each.refusal for each in bcmend.report(program).sites}
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()


def test_a_function_that_dynamo_does_not_look_into_is_not_run_again() -> None:
    found, graphs = _compiled(_with_opaque, False, "eager")
    assert found == _calls(_with_opaque(), False)
    assert graphs >= 1


def _with_opaque() -> Any:
    def program(x: Tensor) -> Tensor:
        y = _opaque(x)
        if x.sum() < 0:
            raise ValueError("negative")
        return y

    return program


def _opaque(x: Tensor) -> Tensor:
    if type(x) is Tensor:  # not while it is traced
        _RUNS[0] += 1
    return x + 1


torch._dynamo.allow_in_graph(_opaque)
