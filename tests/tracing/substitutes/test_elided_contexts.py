"""Flags of cuDNN and locks: when a block needs neither, called directly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import elided_contexts
from tests.tracing.in_trace import during_trace, substituted

X = torch.ones(2)


def _flags(tx: Any, **flags: Any) -> Any:
    given = {name: constant(value) for name, value in flags.items()}
    return elided_contexts._cudnn_flags(substituted(tx, "torch.backends.cudnn.flags", **given))


def _lock(tx: Any) -> Any:
    owner = constant("stands for the lock")
    return elided_contexts._lock(substituted(tx, "threading.Lock.__enter__", owner=owner))


def test_flags_hold_inside_the_block_alone() -> None:
    before = torch.backends.cudnn.benchmark

    def body(tx: Any, x: Any) -> Any:
        block = _flags(tx, benchmark=not before)
        block.enter(tx)
        x.call_method(tx, "add", [constant(1)], {})
        inside = torch.backends.cudnn.benchmark
        block.exit(tx)
        block.cleanup()
        return inside, torch.backends.cudnn.benchmark

    assert during_trace(body, X) == (not before, before)


def test_flags_that_torch_does_not_have_are_passed_on() -> None:
    assert during_trace(lambda tx, x: _flags(tx, colour=1), X) is PASS


def test_a_flag_that_is_no_constant_is_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        name = "torch.backends.cudnn.flags"
        with pytest.raises(Refusal, match="no constant"):
            elided_contexts._cudnn_flags(substituted(tx, name, x))

    during_trace(body, X)


@pytest.mark.parametrize("make", [_flags, _lock])
def test_a_block_is_refused_where_the_graph_may_break(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(tx: Any, x: Any) -> None:
        monkeypatch.setattr(elided_contexts, "_NEEDLESS", frozenset([tx.f_code]))
        with monkeypatch.context() as patch, pytest.raises(Refusal, match="inside the block"):
            patch.setattr(capture_mode, "in_mended_code", lambda tx: False)
            make(tx)

    during_trace(body, X)


@pytest.mark.parametrize(
    ("example", "is_on_cpu"),
    [
        (torch.ones(1), True),
        (torch.ones(1, device="meta"), False),
        ([torch.ones(1), (torch.ones(1, device="meta"),)], False),
        ((1, None, "cuda"), True),
        (None, True),
    ],
)
def test_where_an_example_lies(example: Any, is_on_cpu: bool) -> None:
    assert elided_contexts._is_on_cpu(example) is is_on_cpu


def test_the_lock_of_a_property_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(tx: Any, x: Any) -> Any:
        monkeypatch.setattr(elided_contexts, "_NEEDLESS", frozenset([tx.f_code]))
        block = _lock(tx)
        assert block.enter(tx).as_python_constant() is True
        return block.exit(tx).as_python_constant()

    assert during_trace(body, X) is None


def test_another_lock_is_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        with pytest.raises(Refusal, match="other threads"):
            _lock(tx)

    during_trace(body, X)
