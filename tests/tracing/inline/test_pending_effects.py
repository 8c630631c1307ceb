"""What a check that fails inside the graph brings about first, called as the operator calls it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.delivery.emission import Plan
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import constant
from bcmend.tracing.inline.inline_values import Gathered
from bcmend.tracing.inline.pending_effects import changed_arguments, changes_in_place, effects
from bcmend.tracing.sites.refusal import Refusal
from tests.tracing.plain_trace import traced


class Box:
    """An object with attributes."""

    held: Any = None


def test_an_argument_that_the_graph_has_changed_is_changed() -> None:
    def step(tx: Any, x: Any, y: Any) -> Any:
        gathered = Gathered(tx, Plan())
        assert changes_in_place(tx, gathered) == []
        fx_graph.method(tx, "add_", x, 1)
        assert changed_arguments(tx.output.root_tracer) == [x.as_proxy().node]
        (finish,) = changes_in_place(tx, gathered)
        assert gathered.plan.sources == [x.source]
        argument, present = torch.zeros(2), torch.ones(2)
        finish([present], [argument])
        assert argument.equal(torch.ones(2))
        shape = torch.zeros(3)
        finish([present], [shape])
        assert shape.equal(torch.zeros(3)), "another form than the graph's cannot be given to it"
        return fx_graph.function(tx, torch.add, x, y)

    traced(step, torch.zeros(2), torch.ones(2))


def test_attributes_and_lists_get_what_was_stored_by_then() -> None:
    def step(tx: Any, x: Any, box: Any, items: Any) -> Any:
        gathered, side_effects = Gathered(tx, Plan()), tx.output.side_effects
        assert effects(tx, gathered) == []
        side_effects.store_attr(box, "held", constant(3))
        items.call_method(tx, "append", [constant(4)], {})
        finishes = effects(tx, gathered)
        objects: list[Any] = [None] * len(gathered.plan.sources)
        own_box, own_list = Box(), [1]
        objects[gathered.plan.sources.index(box.source)] = own_box
        objects[gathered.plan.sources.index(items.source)] = own_list
        for finish in finishes:
            finish([], objects)
        assert own_box.held == 3 and own_list == [1, 4]
        return x

    traced(step, torch.ones(2), Box(), [1])


def test_what_cannot_be_brought_about() -> None:
    def step(tx: Any, x: Any, box: Any, table: Any) -> Any:
        side_effects = tx.output.side_effects
        side_effects.store_attr(box, "held", compat.TupleVariable([]))
        with pytest.raises(Refusal, match="a stored object"):
            effects(tx, Gathered(tx, Plan()))
        del side_effects.store_attr_mutations[box]
        table.call_method(tx, "__setitem__", [constant("key"), constant(1)], {})
        with pytest.raises(Refusal, match="a container"):
            effects(tx, Gathered(tx, Plan()))
        return x

    traced(step, torch.ones(2), Box(), {})
