"""Patching time: small beside compiling, and linear in the number of functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import bcmend
from bench.generated import generated_model
from bench.ratios import LAYER_COUNTS, Ratio, patch_against_compile, patch_linearity


def test_patching_takes_less_than_a_tenth_of_the_first_compiled_call(
    show: Callable[[Ratio], Ratio],
) -> None:
    assert show(patch_against_compile()).good


def test_patching_time_is_linear_in_the_number_of_layers(show: Callable[[Ratio], Ratio]) -> None:
    assert show(patch_linearity()).good


@pytest.mark.parametrize("layers", LAYER_COUNTS)
def test_patch(benchmark: BenchmarkFixture, layers: int) -> None:
    def fresh_model() -> tuple[tuple[object], dict[str, object]]:
        return (generated_model(layers),), {}

    patched = benchmark.pedantic(bcmend.patch, setup=fresh_model, rounds=3)
    assert len(bcmend.report(patched, ahead=True).sites) == layers
    bcmend.unpatch()
