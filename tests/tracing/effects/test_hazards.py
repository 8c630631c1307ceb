"""What speculation of an operation would risk, read off real traces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from bcmend.tracing.effects.hazards import (
    MANY_OPERATORS,
    Hazards,
    hazards_of,
)
from tests.equivalence import call, run_compiled

VECTOR = torch.ones(4)
MATRIX = torch.eye(4)
NUMBERS = torch.tensor([1, 2, 3, 1])


def _hazards(function: Callable[..., object], *arguments: torch.Tensor) -> Hazards:
    """Trace ``function`` with Dynamo and return the hazards of its graph."""
    found: list[Hazards] = []

    def back_end(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        examples = [node.meta.get("example_value") for node in module.graph.nodes]
        mode = next(each.fake_mode for each in examples if each is not None)
        found.append(hazards_of(module.graph.nodes, mode))
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=back_end, fullgraph=True)(*arguments)
    (hazards,) = found
    return hazards


def _stored(x: torch.Tensor, places: torch.Tensor, value: object) -> torch.Tensor:
    x = x.clone()
    x[places] = value
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 + 1,
        lambda x: torch.clamp(x, -1, 1).exp(),
        lambda x: functional.gelu(x).sum(),
        lambda x: x.reshape(2, 2).transpose(0, 1)[0],
        lambda x: torch.softmax(x, 0),
        lambda x: functional.layer_norm(x, (4,)),
        lambda x: torch.cat([x, torch.zeros_like(x)]),
        lambda x: x / 0,
        lambda x: x.log(),
        lambda x: _stored(x, x < 0, 1.0),
        lambda x: _stored(x.view(2, 2), x[:2] > 0, x[:1]),
        lambda x: x.index_put((x < 0,), x[0]),
        lambda x: x.mul(2).index_put_((x > 0,), x[0]),
    ],
)
def test_harmless(function: Callable[..., object]) -> None:
    hazards = _hazards(function, VECTOR)
    assert (hazards.partial, hazards.random, hazards.expensive) == ("", "", "")
    assert hazards.operators > 0


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        (lambda n: n // n, NUMBERS),
        (lambda n: n % n, NUMBERS),
        (lambda n: functional.embedding(n, MATRIX), NUMBERS),
        (lambda n: VECTOR.gather(0, n), NUMBERS),
        (lambda n: VECTOR[n], NUMBERS),
        (lambda m: torch.linalg.inv(m), MATRIX),
        (lambda x: _stored(x, x > 0, x * 2), VECTOR),  # more values than places, or fewer
        (lambda x: x.mul(2).index_put_((x > 0,), x, accumulate=True), VECTOR),
        (lambda x: x.mul(2).index_put_((x > 0,), x[0], accumulate=True), VECTOR),
        (lambda n: _stored(n, n, 1), NUMBERS),
        (lambda n: n.repeat(4, 1).index_put_((n > 0, n), n[0]), NUMBERS),
    ],
)
def test_may_fail_on_the_data(function: Callable[..., object], argument: torch.Tensor) -> None:
    assert _hazards(function, argument).partial


def _largest(x: torch.Tensor) -> tuple[torch.Tensor | None, str]:
    chosen = x[x[:, 0] > 0]
    if chosen.numel() == 0:
        return None, "nothing"
    return chosen.max(0).values, "something"


def _summed(x: torch.Tensor) -> tuple[torch.Tensor | None, str]:
    chosen = x[x[:, 0] > 0]
    if chosen.numel() == 0:
        return None, "nothing"
    return chosen.sum(0), "something"


@pytest.mark.parametrize(
    ("program", "lowering"), [(_largest, "choice by cond"), (_summed, "choice by where")]
)
def test_the_condition_of_an_arm_does_not_hold_where_both_sides_are_computed(
    program: Callable[[torch.Tensor], object], lowering: str
) -> None:
    """Inductor's code reads an item that is not there in the backward of a maximum of nothing."""
    found = run_compiled(lambda: program, lambda: [call(MATRIX), call(-MATRIX)])
    (site,) = found.report.sites
    assert (site.lowering, found.graphs) == (lowering, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.dropout(x, 0.5, training=True),
        lambda x: x + torch.rand(4),
        lambda x: torch.empty(4).normal_() + x,
    ],
)
def test_draws_random_numbers(function: Callable[..., object]) -> None:
    assert _hazards(function, VECTOR).random


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_attention_draws_only_with_dropout(probability: float) -> None:
    def function(m: torch.Tensor) -> torch.Tensor:
        q = m[None, None]
        return functional.scaled_dot_product_attention(q, q, q, dropout_p=probability)

    assert bool(_hazards(function, MATRIX).random) is (probability > 0)


def test_dropout_in_evaluation_draws_nothing() -> None:
    assert not _hazards(lambda x: functional.dropout(x, 0.5, training=False) + 1, VECTOR).random


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m @ m,
        lambda m: functional.linear(m, m),
        lambda m: functional.scaled_dot_product_attention(m[None], m[None], m[None]),
        lambda m: functional.conv1d(m[None], m[:, :, None]),
    ],
)
def test_expensive(function: Callable[..., object]) -> None:
    assert _hazards(function, MATRIX).expensive


def test_many_cheap_operators_are_expensive() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(MANY_OPERATORS + 1):
            x = x + 1
        return x

    assert _hazards(function, VECTOR).expensive


def test_looking_does_not_change_the_trace() -> None:
    """Operations in place are run again on stand-ins, not on the trace's own tensors."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.add_(1)
        return y.unsqueeze_(0)

    torch._dynamo.reset()
    shapes = []

    def back_end(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        nodes = list(module.graph.nodes)
        values = [n.meta["example_value"] for n in nodes if "example_value" in n.meta]
        before = [(value.shape, value._version) for value in values]
        hazards_of(nodes, values[0].fake_mode)
        shapes.append(before == [(value.shape, value._version) for value in values])
        return module.forward

    torch.compile(function, backend=back_end, fullgraph=True)(VECTOR)
    assert shapes == [True]


def test_what_is_written_to_by_whatever_way() -> None:
    def through_data(x: torch.Tensor) -> torch.Tensor:
        x.data.add_(1)
        return x * 2

    def normalised(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(x, mean, var, training=True)

    def used(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(x, mean, var, training=False)

    assert len(_hazards(through_data, VECTOR.clone()).writes) == 1
    statistics = torch.zeros(4), torch.ones(4)
    assert len(_hazards(normalised, MATRIX, *statistics).writes) == 2
    assert not _hazards(used, MATRIX, *statistics).writes
    assert not _hazards(lambda x: x.sin() + 1, VECTOR).writes


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: functional.one_hot(x.long(), 3), "one_hot"),
        (lambda x: torch.linspace(x.sum(), 2.0, 3), "linspace"),
        (lambda x: torch.bernoulli(x), "bernoulli"),
        (lambda x: torch.multinomial(x, 1), "multinomial"),
        (lambda x: torch.bernoulli(x, 0.5), ""),
        (lambda x: torch.linspace(0.0, 2.0, 3) + x.sum(), ""),
    ],
)
def test_what_fails_though_the_operators_behind_it_do_not(
    function: Callable[[torch.Tensor], object], operator: str
) -> None:
    assert _hazards(function, VECTOR).partial == operator


def test_an_operator_that_is_not_torchs_may_have_a_state() -> None:
    @torch.library.custom_op("bcmend_test_hazards::own", mutates_args=())
    def own(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    own.register_fake(torch.empty_like)
    found = _hazards(lambda x: own(x) + 1, VECTOR)
    assert found.hidden == found.partial == "own"
    assert not found.random and not _hazards(lambda x: x + 1, VECTOR).hidden
