"""Flags of cuDNN and locks: when a block needs neither, called directly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.variables.base import ValueMutationExisting, ValueMutationNew

from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.search.falsified import Falsified
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


def test_a_block_under_a_lock_that_only_computes_is_fine() -> None:
    def body(tx: Any, x: Any) -> Any:
        block = _lock(tx)
        assert block.enter(tx).as_python_constant() is True
        x.call_method(tx, "add", [constant(1)], {})
        found = block.exit(tx).as_python_constant()
        block.cleanup()
        return found, "check_allowed_side_effect" in vars(tx.output.side_effects)

    assert during_trace(body, X) == (None, False)


def test_a_block_under_a_lock_that_changes_an_argument_is_withdrawn() -> None:
    def body(tx: Any, x: Any) -> Any:
        block = _lock(tx)
        block.enter(tx)
        x.call_method(tx, "add_", [constant(1)], {})
        with pytest.raises(Falsified):
            block.exit(tx)
        block.cleanup()
        return block.site.withdrawn

    assert during_trace(body, X.clone()) == "no-equal-substitute"


@pytest.mark.parametrize(
    ("mutation", "is_withdrawn"), [(ValueMutationExisting(), True), (ValueMutationNew(), False)]
)
def test_a_block_under_a_lock_may_change_what_the_call_has_made(
    mutation: Any, is_withdrawn: bool
) -> None:
    def body(tx: Any, x: Any) -> Any:
        block = _lock(tx)
        block.enter(tx)
        changed: Any = SimpleNamespace(mutation_type=mutation)
        tx.output.side_effects.check_allowed_side_effect(changed)
        found = _restarts(lambda: block.exit(tx))
        block.cleanup()
        return found

    assert during_trace(body, X) is is_withdrawn


def _restarts(make: Any) -> bool:
    try:
        make()
    except Falsified:
        return True
    return False


def test_versions_are_those_of_tensors_from_outside() -> None:
    graph = fx.Graph()
    given, number = graph.placeholder("given"), graph.placeholder("number")
    made = graph.call_function(torch.neg, (given,))
    given.meta["example_value"], number.meta["example_value"] = torch.ones(1).add_(1), 3
    made.meta["example_value"] = torch.ones(1)
    output: Any = SimpleNamespace(graph=graph)
    assert elided_contexts._versions(output) == {"given": 1}
