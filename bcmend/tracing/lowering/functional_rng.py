"""Random operators in an arm as functions of the state of torch's CPU generator.

For what ``hoist_random`` cannot move out of an arm, such as draws of an unbacked size: the arm gets
the generator's state as a tensor, each random operator becomes a function of the state
(``bcmend::drawn_from``) that returns the next state too, and the last state of the taken arm is set
after the branch. When backward runs the arm again, it draws the same. The operators that read and
set the state stand in the main graph only: in an arm that gets a state, that replaces them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.node import map_arg

from bcmend.dynamo import compat, fx_graph, operators
from bcmend.dynamo.values import Value, example_of, fake_mode_of
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.effects.hazards import hazards_of, unjudged
from bcmend.tracing.effects.operator_runs import call_target
from bcmend.tracing.effects.operator_runs import node_draws as is_draw
from bcmend.tracing.lowering import hoist_random
from bcmend.tracing.lowering.arm_graphs import with_example
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.programs.random_forms import FILLING, MADE
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation.arms import ArmTrace

_CALLS: Final = ("call_function", "call_method")
#: What makes a dense tensor.
_MAKING: Final = {
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.new_empty.default,
    torch.empty,
    torch.empty_strided,
}


def _set_state(state: torch.Tensor) -> torch.Tensor:
    torch.set_rng_state(state)
    return operators.token()


def _drawn_from(
    state: torch.Tensor, operator: str, form: torch.Tensor, numbers: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor like ``form``, filled by ``operator``, and the next state."""
    generator = torch.Generator()
    generator.set_state(state)
    drawn = getattr(torch.empty_like(form), operator)(*numbers, generator=generator)
    return drawn, generator.get_state()


def _fake_state() -> torch.Tensor:
    return torch.empty((len(torch.get_rng_state()),), dtype=torch.uint8, device="cpu")


_STATE: Final = operators.define(
    "generator_state() -> Tensor", lambda: torch.get_rng_state(), _fake_state, skips_autograd=True
)
_SET: Final = operators.define(
    "set_generator_state(Tensor state) -> Tensor",
    _set_state,
    lambda state: operators.token(),
    skips_autograd=True,
)
for _operator in (_STATE, _SET):
    effects.declare(_operator, EffectFacts(is_random=True, handles_generator=True))
_DRAWN: Final = operators.define(
    "drawn_from(Tensor state, str operator, Tensor form, float[] numbers) -> (Tensor, Tensor)",
    _drawn_from,
    lambda state, operator, form, numbers: (torch.empty_like(form), torch.empty_like(state)),
    has_effect=False,
    skips_autograd=True,
)


@dataclass(frozen=True, slots=True)
class States:
    """The first and the last state of the generator in the graph of an arm."""

    first: Node
    last: Node


@dataclass(frozen=True, slots=True)
class _Step:
    """A node of an arm that uses the generator: it draws, or reads or sets the state.

    ``module`` holds its ATen operators, if it is none itself; ``branches`` the graphs of a
    ``torch.cond`` that draws, with the steps in each.
    """

    node: Node
    module: GraphModule | None = None
    branches: tuple[tuple[GraphModule, list[_Step]], ...] = ()


def make_draws_functional(tx: compat.Tracer, arms: Sequence[ArmTrace]) -> None:
    """Make what ``arms`` draw a function of the generator's state, which they get in ``states``.

    Raises ``Refusal``, with the arms unchanged, where that is not possible.
    """
    hoist_random.require_one_run(tx)
    planned = [list(_plan(tx, arm.graph)) for arm in arms]
    for arm, steps in zip(arms, planned, strict=True):
        if steps:
            arm.states.append(_written(tx, arm.graph, steps))


def is_read_in(graph: Graph) -> bool:
    """Return whether the graph of an arm reads or sets the generator's state."""
    return any(node.target in (_STATE, _SET) for node in graph.nodes)


def _plan(tx: compat.Tracer, graph: Graph) -> Iterator[_Step]:
    """Yield what uses the generator, in order. Raises ``Refusal``."""
    for node in graph.nodes:
        name = hazards_of([node], fake_mode_of(tx), tx.output.nn_modules).random
        if not name:
            continue
        if node.target in (_STATE, _SET) or _can_be_written(node):
            yield _Step(node)
        elif node.target is torch.ops.higher_order.cond:
            yield _Step(node, branches=tuple(_plan_branches(tx, node)))
        else:
            module = hoist_random.decomposed(node, fake_mode_of(tx), name)
            for each in module.graph.nodes:
                if is_draw(each) and not _can_be_written(each):
                    raise Refusal("random-under-gradients", f"{name} of a data-dependent size")
            yield _Step(node, module)


def _plan_branches(tx: compat.Tracer, node: Node) -> Iterator[tuple[GraphModule, list[_Step]]]:
    attributes: Any = node.args[1:3]
    for attribute in attributes:
        module = tx.output.nn_modules[attribute.target]
        _describe(module.graph, fake_mode_of(tx))
        yield module, list(_plan(tx, module.graph))


def _describe(graph: Graph, fake_mode: Any) -> None:
    """Compute missing example values of nodes, as in the graphs of ``hoist_random``."""

    def example(node: Node) -> Any:
        return node.meta.get("example_value")

    with fake_mode:
        for node in graph.nodes:
            is_known = "example_value" in node.meta or node.op not in _CALLS
            if not is_known and all(example(each) is not None for each in node.all_input_nodes):
                node.meta["example_value"] = call_target(
                    node.target, *map_arg((node.args, node.kwargs), example)
                )


def _can_be_written(node: Node) -> bool:
    if node.target in MADE:
        made = _example_of(node)
        return made.device.type == "cpu" and made.is_floating_point()
    form, *numbers = node.args or [None]
    return (
        node.target in FILLING
        and not node.kwargs
        and isinstance(form, Node)
        and form.target in _MAKING
        and _example_of(form).device.type == "cpu"
        and all(type(each) in (int, float) for each in numbers)
    )


def _example_of(node: Node) -> torch.Tensor:
    example = node.meta["val"] if "val" in node.meta else node.meta["example_value"]
    assert isinstance(example, torch.Tensor)
    return example


def _written(tx: compat.Tracer, graph: Graph, steps: Sequence[_Step]) -> States:
    """Give a graph the state as its last input, and write each step as a function of it."""
    body = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(body):
        first = state = graph.placeholder("generator_state")
    with fake_mode_of(tx):
        first.meta["example_value"] = _fake_state()
    for step in steps:
        if step.branches:
            state = _write_branches(tx, step, state)
        elif step.module is not None:
            state = _write_operation(step.node, step.module, state)
        elif step.node.target in (_STATE, _SET):
            state = _write_access(step.node, state)
        else:
            state = _write_draw(step.node, state)
    return States(first, state)


def _write_access(node: Node, state: Node) -> Node:
    """Give a branch within the arm the arm's state, or take its state over."""
    if node.target is _STATE:
        node.replace_all_uses_with(state)
    else:
        (state,) = node.all_input_nodes
    node.graph.erase_node(node)
    return state


def _write_operation(node: Node, module: GraphModule, state: Node) -> Node:
    """Write an operation as its ATen operators."""

    def drawn(each: Node, arguments: tuple[Any, ...]) -> Node:
        nonlocal state
        result, state = _drawn_numbers(node.graph, state, each, arguments)
        return result

    hoist_random.expand(node, module, drawn)
    return state


def _write_draw(node: Node, state: Node) -> Node:
    with node.graph.inserting_before(node):
        result, state = _drawn_numbers(node.graph, state, node, node.args)
    node.replace_all_uses_with(result)
    result.meta = unjudged(node.meta)
    node.graph.erase_node(node)
    return state


def _drawn_numbers(
    graph: Graph, state: Node, node: Node, arguments: tuple[Any, ...]
) -> tuple[Node, Node]:
    """Write a random ATen operator for ``arguments``; return its result and the next state."""
    target: Any = node.target
    if target in MADE:
        make, name = MADE[target]
        made = graph.call_function(make, arguments, dict(node.kwargs))
        form, numbers = with_example(made, _example_of(node)), [0.0, 1.0]
    else:
        name, (form, *given) = FILLING[target], arguments
        numbers = list(map(float, given))
    pair = graph.call_function(_DRAWN, (state, name, form, numbers))
    result, after = (
        graph.call_function(operator.getitem, (pair, position)) for position in range(2)
    )
    result.meta["example_value"] = _example_of(node)
    if target in FILLING:
        result = graph.call_function(torch.ops.aten.copy_.default, (form, result))
    return result, after


def _write_branches(tx: compat.Tracer, step: _Step, state: Node) -> Node:
    """Pass the state through both graphs of a ``torch.cond``, as its last operand and result."""
    node = step.node
    for module, steps in step.branches:
        states = _written(tx, module.graph, steps)
        output = module.graph.output_node()
        with module.graph.inserting_before(output):
            copy = module.graph.call_method("clone", (states.last,))
        last = with_example(copy, states.first.meta["example_value"])
        output.args = ((*output.args[0], last),)  # type: ignore[misc]
        module.recompile()
    *others, operands = node.args
    node.args = (*others, (*operands, state))  # type: ignore[misc]
    before = node.meta["example_value"]
    with fake_mode_of(tx):
        node.meta = unjudged(node.meta) | {"example_value": (*before, _fake_state())}
    with node.graph.inserting_after(node):
        return node.graph.call_function(operator.getitem, (node, len(before)))


def entered(
    tx: compat.Tracer, arms: tuple[ArmTrace, ArmTrace]
) -> tuple[tuple[ArmTrace, ArmTrace], list[Pair]]:
    """Give the state to the arms that use it; return them, and the pair of last states."""
    if not any(arm.states for arm in arms):
        return arms, []
    before = fx_graph.function(tx, _STATE)
    example = example_of(before)
    given, after = [], list[Value]()
    for arm in arms:
        last: Value = before
        for states in arm.states:  # one, if any
            states.last.meta.pop("example_value", None)  # Dynamo sets it itself
            proxy = Proxy(states.last, tx.output.current_tracer)
            last = compat.wrap_fx_proxy(tx, proxy, example_value=example)
            arm = replace(arm, lifted={**arm.lifted, before.as_proxy(): Proxy(states.first)})
        given.append(arm)
        after.append(last)
    return (given[0], given[1]), [Pair(after[0], after[1])]


def set_last_state(tx: compat.Tracer, state: Any) -> None:
    """Set the last state of the taken arm."""
    fx_graph.function(tx, _SET, state)
