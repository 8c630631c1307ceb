"""An eager call of a patched model costs what it cost before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import bcmend
from bench.generated import generated_input, generated_model
from bench.ratios import AHEAD, Ratio, eager_overhead


def test_a_patched_model_is_as_fast_in_eager_mode(show: Callable[[Ratio], Ratio]) -> None:
    assert show(eager_overhead()).good


@pytest.mark.parametrize("patched", [False, True], ids=["unpatched", "patched"])
def test_eager_call(benchmark: BenchmarkFixture, patched: bool) -> None:
    model, given = generated_model(20), generated_input()
    with torch.no_grad():
        expected = model(given)
        if patched:
            bcmend.patch(model, policy=AHEAD)
        returned = benchmark(model, given)
    bcmend.unpatch(model)
    assert torch.equal(returned, expected)
