"""Functions of ``math`` of numbers out of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.arithmetic.float_tests import _tested
from bcmend.tracing.numbers import scalars
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace, substituted, trace

# Whole programs

#: Those of one number, which raise for some, or of which torch has no operator.
OF_ONE = tuple(
    getattr(math, name)
    for name in "sqrt log2 asin acos sin cos tan sinh cosh acosh asinh atanh cbrt degrees erf erfc"
    " exp exp2 expm1 fabs gamma lgamma log log10 log1p radians floor ceil".split()
)
BEYOND = (
    [4.0, 0.5], [-2.0, 1.0], [math.inf, 1.0], [math.nan, 1.0], [-1e4, 0.0], [0.0, 0.0], [0.25, 0.5],
)  # fmt: skip


def _beyond() -> list[Any]:
    return [call(torch.tensor(each, dtype=torch.float64)) for each in BEYOND]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("function", OF_ONE)
def test_a_function_gives_what_it_gives_in_python(
    function: Callable[[float], Any], fullgraph: bool
) -> None:
    def program(x: Tensor) -> Any:
        return x * function(x.sum().item()), function(x[0])

    assert_equivalent(lambda: program, _beyond, fullgraph=fullgraph)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", [math.sqrt, math.log2, math.acos, math.cosh, math.log])
def test_a_function_of_a_number_out_of_its_range_raises(
    function: Callable[[float], float], backend: str
) -> None:
    def program(x: Tensor) -> Tensor:
        return x * function(x.sum().item())

    assert_equivalent(lambda: program, _beyond, backend=backend)


def _decayed(x: Tensor) -> Tensor:
    count = int((x > 0).sum())
    return x * math.exp(-count / 10.0) + math.cos(math.pi * min(count, 3) / 4)


def _of_two(x: Tensor) -> Any:
    one, other = x[0].item(), x[1].item()
    found = math.hypot(one, 3), math.copysign(1, other), math.atan2(x[0], x[1])
    return (*found, math.pow(other, 2), math.log(other + 2, 2), math.fmod(one, 2), x)


def _in_an_arm(x: Tensor) -> Tensor:
    total = x.sum().item()
    if total > 0:
        return x * math.log(total)
    return x / math.sqrt(-total)


def _of_an_integer(x: Tensor) -> tuple[Tensor, float]:
    return x, math.log(int((x > 0).sum()))


def _ended_by_it(x: Tensor) -> Tensor:
    x = x * 2
    for _ in range(4):
        if math.exp(-x.sum().item()) < 0.5:
            break
        x = x + 1
    return x


def _caught(x: Tensor) -> Any:
    try:
        return x * math.log(x.sum().item())
    except ValueError as error:
        return str(error), x


def _checked(x: Tensor) -> Tensor:
    if math.isnan(x.mean()) or not math.isfinite(x.max()):
        raise ValueError(f"{x.mean()}")
    return x * 2


def _behind_the_root_of_a_size(x: Tensor) -> Tensor:
    return x / math.sqrt(x.shape[0]) + math.log(x.numel()) * round(math.exp(-abs(x[1].item())))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        _decayed,
        _of_two,
        _in_an_arm,
        _of_an_integer,
        _ended_by_it,
        _caught,
        _checked,
        _behind_the_root_of_a_size,
    ],
)
def test_programs_that_call_one(program: Callable[..., Any], training: bool) -> None:
    def calls() -> list[Any]:
        values = ([1.0, 2.0], [-1.0, 0.5], [0.0, 0.0], [math.inf, 1.0], [0.25, -0.125])
        return [call(torch.tensor(each)) for each in values]

    assert_equivalent(lambda: program, calls, training=training)


def test_a_size_by_a_logarithm_is_computed_in_front_of_the_graph() -> None:
    def program(x: Tensor) -> Tensor:
        return x.new_zeros(2 ** math.ceil(math.log2(int(x.sum().item()) + 1)))

    calls = [call(torch.tensor(each)) for each in ([1.0, 2.0], [4.0, 1.0], [2.0, 1.0])]
    assert_equivalent(lambda: program, lambda: calls, graphs=None, recompiles=None)
    assert bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(3)).shape == (4,)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * math.tanh(x.sum().item()),
        lambda x: x * math.atan(x.sum()),
        lambda x: x * math.sqrt(len(x[x > 0])),
    ],
)
def test_a_function_that_is_defined_everywhere_is_an_operator_of_torch(program: Any) -> None:
    found: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.extend(str(each.target) for each in graph.graph.nodes)
        return graph.forward

    compiled = bcmend.compile(program, backend=backend, fullgraph=True)
    assert compiled(torch.ones(2)).equal(program(torch.ones(2)))
    assert found and not any("bcmend" in each for each in found)


# Called directly: what is answered, refused and passed on

NUMBERS = (math.nan, math.inf, -math.inf, 0.0, 1e308)


@pytest.mark.parametrize("name", ["math.isnan", "math.isinf", "math.isfinite"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_float_out_of_a_tensor_is_tested_as_python_does(name: str, number: float) -> None:
    found = trace(
        lambda tx, x: _tested(substituted(tx, name, scalars.take(tx, x))),
        torch.tensor(number, dtype=torch.float64),
    )
    assert found is getattr(math, name.removeprefix("math."))(number)


def test_an_integer_is_finite_without_an_operation() -> None:
    def body(tx: Any, x: Any) -> Any:
        number = scalars.take(tx, x)
        before = len(tx.output.graph.nodes)
        names = ("math.isnan", "math.isinf", "math.isfinite")
        found = [_tested(substituted(tx, name, number)) for name in names]
        assert len(tx.output.graph.nodes) == before
        return [each.as_python_constant() for each in found]

    assert during_trace(body, torch.tensor(3)) == [False, False, True]


def test_a_constant_is_passed_on() -> None:
    found = during_trace(
        lambda tx, x: _tested(substituted(tx, "math.isnan", constant(1.0))), torch.ones(())
    )
    assert found is PASS


def test_a_number_is_refused_where_the_graph_may_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(tx: Any, x: Any) -> Any:
        call = substituted(tx, "math.isnan", scalars.take(tx, x))
        with monkeypatch.context() as patch, pytest.raises(Refusal, match="may break") as caught:
            patch.setattr(capture_mode, "in_mended_code", lambda tx: False)
            _tested(call)
        return caught.value.slug

    assert during_trace(body, torch.tensor(1.0)) == "no-equal-substitute"
