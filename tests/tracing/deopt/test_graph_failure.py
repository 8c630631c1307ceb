"""Graphs that fail while they run, called directly."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.tracing.deopt import graph_failure, undo_log


def _output(*, changed: tuple[int, ...] = (), can_be_put_back: bool = True) -> Any:
    """Return the output of a trace whose graph has two inputs and changes some of them."""
    graph = torch.fx.Graph()
    given = [graph.placeholder(name) for name in ("x", "y")]
    output: Any = SimpleNamespace(graph=graph)
    undo_log._CHANGED_INPUTS.put(output, [given[place] for place in changed])
    graph_failure._CAN_BE_PUT_BACK.put(output, can_be_put_back)
    return output


def _changing_both(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    y.add_(1)
    x[(x.sum() > 0).long() * 7]  # fails for positive numbers
    return x * 2


_fails_half_way = torch.fx.symbolic_trace(_changing_both).forward


def _is_interrupted_half_way(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    y.add_(1)
    raise RuntimeError("a hook of the program's")


def _instead(value: object) -> Callable[[], Callable[[], Any]]:
    return lambda: lambda: value


def test_a_graph_is_left_as_it_is_where_nothing_is_given_instead() -> None:
    assert graph_failure._guarded(_output(changed=(0,)), _fails_half_way) is _fails_half_way


def test_a_graph_that_cannot_be_put_back_is_left_as_it_is() -> None:
    output = _output(changed=(0,), can_be_put_back=False)
    graph_failure.give_instead(output, _instead("instead"))
    assert graph_failure._guarded(output, _fails_half_way) is _fails_half_way


def test_a_graph_that_changes_nothing_and_fails_anyway_is_left_as_it_is() -> None:
    output = _output()
    graph_failure.fail_again(output)
    assert graph_failure._guarded(output, _fails_half_way) is _fails_half_way


def test_what_the_graph_changes_is_restored_and_the_other_value_is_returned() -> None:
    output = _output(changed=(0,))
    graph_failure.give_instead(output, _instead("instead"))
    x, y = torch.ones(2), torch.ones(2)
    assert graph_failure._guarded(output, _fails_half_way)(x, y) == "instead"
    assert torch.equal(x, torch.ones(2))
    assert torch.equal(y, torch.full((2,), 2.0))  # the graph is not said to change it


def test_a_frame_at_a_boundary_fails_with_the_same_exception() -> None:
    output = _output(changed=(0, 1))
    graph_failure.fail_again(output)
    x, y = torch.ones(2), torch.ones(2)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        graph_failure._guarded(output, _fails_half_way)(x, y)
    assert torch.equal(x, torch.ones(2)) and torch.equal(y, torch.ones(2))


def test_a_graph_that_does_not_fail_keeps_its_changes() -> None:
    output = _output(changed=(0,))
    graph_failure.give_instead(output, _instead("instead"))
    x = torch.full((2,), -5.0)
    result = graph_failure._guarded(output, _fails_half_way)(x, torch.ones(2))
    assert torch.equal(result, torch.full((2,), -8.0))
    assert torch.equal(x, torch.full((2,), -4.0))


def test_what_no_operation_has_raised_leaves_the_changes_and_ends_the_call() -> None:
    output = _output(changed=(0,))
    graph_failure.give_instead(output, _instead("instead"))
    x, y = torch.ones(2), torch.ones(2)
    with pytest.raises(RuntimeError, match="a hook of the program's"):
        graph_failure._guarded(output, _is_interrupted_half_way)(x, y)
    assert torch.equal(x, torch.full((2,), 2.0)) and torch.equal(y, torch.full((2,), 2.0))


@pytest.mark.parametrize(
    ("obstacle", "changed", "instead", "expected"),
    [
        ("hooks are put on tensors", False, True, False),
        ("", False, False, True),
        ("", True, False, False),  # nobody would restore it
        ("", True, True, True),
    ],
)
def test_a_graph_can_be_put_back_if_what_it_changes_is_copied(
    monkeypatch: pytest.MonkeyPatch, obstacle: str, changed: bool, instead: bool, expected: bool
) -> None:
    output = _output(changed=(0,) if changed else ())
    graph_failure._CAN_BE_PUT_BACK.put(output, None)
    output.shape_env = SimpleNamespace(deferred_runtime_asserts={"u0": []})
    monkeypatch.setattr(undo_log, "obstacle", lambda output: obstacle)
    if instead:
        graph_failure.fail_again(output)
    assert graph_failure.can_be_put_back(output) is expected
