"""Whatever an arm changes is found, known or not, and is put back."""

from __future__ import annotations

import operator
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Graph

from bcmend.tracing.speculation import closed_world
from bcmend.tracing.speculation.closed_world import DynamoTables
from tests.tracing.in_trace import during_trace


def _owner() -> SimpleNamespace:
    return SimpleNamespace(
        names=["a"], stores={"x": {"y": 1}}, kinds=OrderedDict(a=1, b=2), count=3, other=object()
    )


def test_a_table_that_nobody_knows_is_compared_and_restored() -> None:
    owner = _owner()
    other, tables = owner.other, DynamoTables(owner, frozenset(["count"]))
    assert tables.changed() == []
    owner.names.append("b")
    owner.stores["x"]["y"] = 2
    owner.kinds.move_to_end("a")
    owner.count, owner.new = 4, {1}
    assert tables.changed() == ["names", "stores", "kinds", "new"]
    tables.restore()
    assert tables.changed() == []
    assert (owner.names, owner.stores, list(owner.kinds)) == (["a"], {"x": {"y": 1}}, ["a", "b"])
    assert owner.count == 4, "not compared"
    assert owner.other is other
    assert not hasattr(owner, "new")


def test_a_table_that_is_gone_comes_back() -> None:
    owner = _owner()
    tables = DynamoTables(owner)
    del owner.names
    assert tables.changed() == ["names"]
    tables.restore()
    assert owner.names == ["a"]


def _change_of(act: Any) -> tuple[Any, Any]:
    """Return what is found after ``act``, and what is left after all was put back."""

    def body(tx: Any, x: Any) -> tuple[Any, Any]:
        world = closed_world.outside_of_an_arm(tx)
        act(tx, x)
        found = world.change(Graph())
        world.put_back()
        return found, world.change(Graph())

    found: tuple[Any, Any] = during_trace(body, torch.ones(2))
    return found


def test_side_effects_settings_and_nodes_are_compared() -> None:
    def hook(tx: Any, x: Any) -> None:
        tx.output.side_effects.tensor_hooks[0] = (x, x, x, "register_hook")

    def saving(tx: Any, x: Any) -> None:
        tx.output.side_effects.save_for_backward.append((x, [x]))

    def unknown(tx: Any, x: Any) -> None:
        tx.output.side_effects.of_a_later_torch = {x: 1}

    def setting(tx: Any, x: Any) -> None:
        torch.set_float32_matmul_precision("high")

    def node(tx: Any, x: Any) -> None:
        tx.output.current_tracer.create_proxy("call_function", torch.sin, (x.as_proxy(),), {})

    def numbers(tx: Any, x: Any) -> None:
        tx.output.random_calls.append((operator.add, (1, 2), {}))

    hooks = "a hook of a tensor is registered or removed"
    assert _change_of(lambda tx, x: None) == (None, None)
    assert _change_of(hook) == (("arm-hook", hooks), None)
    assert _change_of(saving) == (("arm-effects", "save_for_backward"), None)
    detail = "a side effect of Dynamo's: of_a_later_torch"
    assert _change_of(unknown) == (("arm-effects", detail), None)
    assert _change_of(setting) == (("arm-setting", "precision of matrix products"), None)
    found, left = _change_of(node)
    assert (found[0], left) == ("arm-effects", None)
    assert _change_of(numbers) == (("arm-effects", "a table of the trace: random_calls"), None)


def test_blocks_that_an_arm_has_not_left_are_left() -> None:
    left: list[str] = []

    def enter(tx: Any, x: Any) -> None:
        tx.output.add_cleanup_hook(lambda: left.append("outer"))
        tx.output.add_cleanup_hook(lambda: left.append("inner"))

    _change_of(enter)
    assert left == ["inner", "outer"]
