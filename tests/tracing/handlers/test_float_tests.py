"""``math.isnan`` and its like, called directly: what is answered, refused and passed on."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.handlers.float_tests import _tested
from bcmend.tracing.numbers import scalars
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal
from tests.tracing.in_trace import during_trace, substituted, trace

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
