"""Clocks that are read inside the graph, called directly."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import clocks
from tests.tracing.in_trace import during_trace, substituted, trace


@pytest.mark.parametrize("name", ["time.time", "time.monotonic_ns", "time.perf_counter"])
def test_a_clock_is_read_when_the_graph_runs(name: str) -> None:
    function = getattr(time, name.removeprefix("time."))
    before = function()
    found = trace(lambda tx, x: clocks._clock(substituted(tx, name)), torch.ones(1))
    assert before <= found <= function()
    assert type(found) is type(before)


@pytest.mark.parametrize("name", sorted(clocks._CLOCKS))
def test_a_clock_of_nanoseconds_is_an_integer(name: str) -> None:
    dtype = torch.int64 if name.endswith("_ns") else torch.float64
    assert clocks._read(name).dtype is clocks._fake(name).dtype is dtype
    assert clocks._read(name).item() <= clocks._read(name).item()


def test_a_clock_with_arguments_is_passed_on() -> None:
    def body(tx: Any, x: Any) -> Any:
        return clocks._clock(substituted(tx, "time.time", constant(1)))

    assert during_trace(body, torch.ones(1)) is PASS


def test_a_clock_is_refused_where_the_graph_may_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(tx: Any, x: Any) -> None:
        with monkeypatch.context() as patch, pytest.raises(Refusal, match="may break"):
            patch.setattr(capture_mode, "in_mended_code", lambda tx: False)
            clocks._clock(substituted(tx, "time.time"))

    during_trace(body, torch.ones(1))
