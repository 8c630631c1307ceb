"""Views of one tensor that an arm writes to enter the arm as views of it."""

from __future__ import annotations

from typing import Any

import torch

from bcmend.dynamo import fx_graph
from bcmend.dynamo.values import constant, example_of
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.merging.shared_memory import enter_as_views, example_behind, lifted_tensors
from tests.tracing.plain_trace import arm, traced


def _enter(*names: str) -> tuple[Any, Any, Any]:
    """Trace an arm that adds to views; return its arm, what they became, and their base."""
    found: list[Any] = []

    def step(tx: Any, x: Any) -> Any:
        base = fx_graph.function(tx, torch.mul, x, 2)
        views = {
            "head": fx_graph.method(tx, "narrow", base, 0, 0, 2),
            "tail": fx_graph.method(tx, "narrow", base, 0, 1, 2),
            "base": base,
            "other": x,
        }

        def compute() -> Any:
            for name in names:
                fx_graph.method(tx, "add_", views[name], 1)
            return constant(None)

        with torch.no_grad():
            traced_arm = arm(tx, compute)
            storage = storage_of(example_of(base))
            found.extend((traced_arm, enter_as_views(tx, [traced_arm], [storage]), base))
        return x

    traced(step, torch.ones(3))
    return found[0], found[1], found[2]


def test_two_views_become_views_of_one_input() -> None:
    found, behind, base = _enter("head", "tail")
    assert [proxy.node for proxy in behind.values()] == [base.as_proxy().node] * 2
    assert [example_behind(each) for each in lifted_tensors(found)] == [example_of(base)]
    views = [node for node in found.graph.nodes if node.target is torch.as_strided]
    forms = sorted(node.args[1:] for node in views)
    assert forms == [((2,), (1,), 0), ((2,), (1,), 1)], "size, stride and offset of head and tail"
    (behind_both,) = {node.args[0] for node in views}
    assert behind_both.op == "placeholder"
    found.graph.lint()


def test_a_view_beside_the_tensor_itself_uses_its_input() -> None:
    found, behind, _ = _enter("base", "head")
    assert len(behind) == 1
    assert [node.op for node in found.graph.nodes].count("placeholder") == 1


def test_a_single_tensor_and_other_memory_stay_as_they_are() -> None:
    for names in (("head",), ("base", "other")):
        found, behind, _ = _enter(*names)
        assert behind == {}
        assert not any(node.target is torch.as_strided for node in found.graph.nodes)
