"""The graphs of `torch.while_loop`, made of hand-written iterations and run on real tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule, Proxy

from bcmend.dynamo import compat, fx_graph
from bcmend.tracing.loops.while_operator import (
    Body,
    Ends,
    _body_graph,
    _condition_graph,
    write_while,
)
from bcmend.tracing.lowering.arm_graphs import with_example
from bcmend.tracing.speculation.arms import ArmTrace, Effects
from tests.tracing.plain_trace import arm, traced

YES, NO = torch.tensor(True), torch.tensor(False)


def _proxies(*examples: Any) -> list[Proxy]:
    graph = Graph()
    return [
        Proxy(with_example(graph.placeholder(f"x{at}"), each)) for at, each in enumerate(examples)
    ]


def _goes_on(ends: Ends, *carried: Any) -> bool:
    graph = _condition_graph(_proxies(*carried), _proxies(torch.ones(2)), ends)
    return bool(GraphModule({}, graph)(*carried, torch.ones(2)))


@pytest.mark.parametrize("stays_if", [True, False])
@pytest.mark.parametrize("condition", [YES, NO])
def test_a_loop_goes_on_while_its_condition_is_as_it_has_to_be(
    stays_if: bool, condition: Any
) -> None:
    assert _goes_on(Ends(stays_if, None, None), condition) is (bool(condition) is stays_if)


@pytest.mark.parametrize(("made", "goes_on"), [(0, True), (2, True), (3, False)])
def test_a_loop_over_a_range_ends_with_the_range(made: int, goes_on: bool) -> None:
    assert _goes_on(Ends(True, 3, None), YES, torch.tensor(made)) is goes_on
    assert not _goes_on(Ends(True, 3, None), NO, torch.tensor(made))


def test_a_loop_over_an_open_range_ends_where_there_is_no_more_number() -> None:
    ends = Ends(False, None, 2)
    assert _goes_on(ends, NO, torch.tensor(5), YES)
    assert not _goes_on(ends, NO, torch.tensor(5), NO)
    assert not _goes_on(ends, YES, torch.tensor(5), YES)


def test_a_loop_ends_with_a_side_exit() -> None:
    ends = Ends(True, None, None, range(1, 3))
    assert _goes_on(ends, YES, NO, NO)
    assert not _goes_on(ends, YES, YES, NO)
    assert not _goes_on(ends, YES, NO, YES)


def _variable(proxy: Proxy) -> Any:
    example, variable = proxy.node.meta["example_value"], SimpleNamespace()
    variable.as_proxy = lambda: proxy
    assert isinstance(example, torch.Tensor)
    return variable


class _Halving:
    """`while ...: x = x / 2 + y`, with `y` of the main graph."""

    def __init__(self, *, changed: bool = False) -> None:
        x, y = torch.tensor([4.0]), torch.tensor([1.0])
        graph = Graph()
        entered, inner = (
            Proxy(with_example(graph.placeholder(name), each))
            for name, each in (("x", x), ("y", y))
        )
        (self.outer,) = _proxies(y)
        if changed:
            with_example(graph.call_method("add_", (inner.node, 1)), y)
        half = with_example(graph.call_function(torch.div, (entered.node, 2)), x)
        after = with_example(graph.call_function(torch.add, (half, inner.node)), x)
        more = with_example(graph.call_function(torch.gt, (after, 2.5)), YES)
        nothing: Any = None
        trace = ArmTrace(nothing, graph, {self.outer: inner}, Effects(), ())
        values = [_variable(Proxy(after))]
        given = [self.outer] if changed else []
        self.body = Body(trace, [entered], _variable(Proxy(more)), values, False, given)


def test_an_iteration_returns_its_condition_and_what_it_passes_on() -> None:
    halving = _Halving()
    given = _proxies(YES, torch.tensor([4.0]))
    captured = halving.body.captured()
    assert captured == [halving.outer]
    module = GraphModule({}, _body_graph(halving.body, given, captured))
    more, x = module(YES, torch.tensor([4.0]), torch.tensor([1.0]))
    assert bool(more) and x.item() == 3.0
    more, x = module(YES, torch.tensor([2.0]), torch.tensor([0.0]))
    assert not bool(more) and x.item() == 1.0


def test_iterations_of_a_range_are_counted() -> None:
    halving = _Halving()
    given = _proxies(YES, torch.tensor([4.0]), torch.tensor(0))
    module = GraphModule({}, _body_graph(halving.body, given, halving.body.captured()))
    *_, count = module(YES, torch.tensor([4.0]), torch.tensor(6), torch.tensor([1.0]))
    assert count.item() == 7


def test_what_an_iteration_changes_in_place_is_carried_and_copied() -> None:
    halving = _Halving(changed=True)
    assert halving.body.change_of(halving.outer) == 0
    assert halving.body.captured() == []
    given = _proxies(YES, torch.tensor([4.0]), torch.tensor([1.0]))
    module = GraphModule({}, _body_graph(halving.body, given, []))
    y = torch.tensor([1.0])
    _, x, changed = module(YES, torch.tensor([4.0]), y)
    assert (x.item(), changed.item(), y.item()) == (4.0, 2.0, 1.0)


def _doubling(tx: Any, x: Any) -> Any:
    """Write `while x < 10: x = x * 2`, and return the last `x`."""
    entered: list[Any] = []
    outcome: list[Any] = []
    gradients = x.as_proxy().node.meta["example_value"].requires_grad

    def iterate() -> Any:
        tracer: Any = tx.output.current_tracer
        example = torch.empty_like(x.as_proxy().node.meta["example_value"])
        example.requires_grad_(gradients)
        entered.append(tracer.create_graph_input("carried", torch.Tensor, example))
        inner = compat.wrap_fx_proxy(tx, entered[0], example_value=example)
        after = fx_graph.function(tx, torch.mul, inner, 2)
        outcome.extend([fx_graph.function(tx, torch.lt, after, 10), after])
        return after

    trace = arm(tx, iterate)
    body = Body(trace, entered, outcome[0], outcome[1:], gradients)
    start = [fx_graph.function(tx, torch.lt, x, 10), fx_graph.function(tx, torch.mul, x, 1)]
    return write_while(tx, body, start, Ends(True, None, None))[1]


@pytest.mark.parametrize(("first", "last"), [(3.0, 12.0), (1.0, 16.0), (11.0, 11.0)])
@pytest.mark.parametrize("gradients", [False, True])
def test_the_operator_iterates_as_often_as_the_condition_says(
    first: float, last: float, gradients: bool
) -> None:
    x = torch.tensor(first, requires_grad=gradients)
    found = traced(_doubling, x)
    assert torch.ops.higher_order.while_loop in found.targets
    assert found.run(x)[0].item() == last
