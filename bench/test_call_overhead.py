"""A compiled call of a mended model costs about what one written without branches costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import bcmend
from bench.generated import Form, generated_input, generated_model
from bench.ratios import Ratio, call_overhead


def test_a_mended_call_costs_about_what_one_by_hand_costs(show: Callable[[Ratio], Ratio]) -> None:
    assert show(call_overhead()).good


@pytest.mark.parametrize("form", list(Form), ids=["mended", "by hand"])
def test_compiled_call(benchmark: BenchmarkFixture, form: Form) -> None:
    model, given = generated_model(20, form), generated_input()
    torch._dynamo.reset()
    with torch.no_grad(), bcmend.patched(model):
        expected = model(given)
        compiled = torch.compile(model, backend="eager", dynamic=False, fullgraph=True)
        compiled(given)
        returned = benchmark(compiled, given)
    torch._dynamo.reset()
    assert torch.equal(returned, expected)
