"""Random numbers that an arm draws in the midst of what only its data tell.

Where gradients flow, what an arm draws is drawn before it (``draws``), since the backward of
``torch.cond`` runs the arm again. A mask for as many tokens as the data send to an expert has no
size before the arm. So here the arm is given the state of torch's generator as a tensor, each draw
in it is a function of the state (``bcmend::drawn_from``) that returns the next one too, and the
state that the taken side ends with is set behind the branch. Run again, the arm draws the same.

The state is read and set by operators that have effects in torch's sense, in the main graph alone,
so that they keep their order. Where the branch stands in an arm itself, they are taken out again
when that arm gets a state of its own, and so are the draws of a ``torch.cond`` in it. Only the
generator of the CPU has a state that can be handed on so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.node import map_arg

from bcmend.runtime import draws, operators
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.merge import Pair
from bcmend.runtime.operations import draws as is_draw
from bcmend.runtime.operations import hazards_of, run, unjudged

__all__ = ["are_read_in", "entered", "leave", "take_out"]

#: Operators that fill a tensor with numbers, given numbers.
_FILLING: Final = {
    torch.ops.aten.bernoulli_.float: "bernoulli_",
    torch.ops.aten.normal_.default: "normal_",
    torch.ops.aten.uniform_.default: "uniform_",
    torch.ops.aten.exponential_.default: "exponential_",
}
#: Operators that make a tensor and fill it: what makes it, what fills it, and the numbers for that
#: (aten/src/ATen/native/TensorFactories.cpp).
_MADE: Final[dict[Any, tuple[Any, str, tuple[float, ...]]]] = {
    torch.ops.aten.rand.default: (torch.ops.aten.empty.memory_format, "uniform_", (0.0, 1.0)),
    torch.ops.aten.randn.default: (torch.ops.aten.empty.memory_format, "normal_", (0.0, 1.0)),
    torch.ops.aten.rand_like.default: (torch.ops.aten.empty_like.default, "uniform_", (0.0, 1.0)),
    torch.ops.aten.randn_like.default: (torch.ops.aten.empty_like.default, "normal_", (0.0, 1.0)),
}
_CALLS: Final = ("call_function", "call_method")
#: What makes a tensor that lies in memory as its form says, without a gap.
_MAKING: Final = frozenset(
    [
        torch.ops.aten.empty_like.default,
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.new_empty.default,
        torch.empty,
        torch.empty_strided,
    ]
)


# The operators


def _state() -> torch.Tensor:
    return torch.get_rng_state()


def _set_state(state: torch.Tensor) -> torch.Tensor:
    torch.set_rng_state(state)
    return _token()


def _token() -> torch.Tensor:
    return torch.empty((0,), dtype=torch.int64, device="cpu")


def _drawn_from(
    state: torch.Tensor, operator: str, form: torch.Tensor, numbers: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what an operator fills a tensor like ``form`` with, and the state afterwards."""
    generator = torch.Generator()
    generator.set_state(state)
    drawn = getattr(torch.empty_like(form), operator)(*numbers, generator=generator)
    return drawn, generator.get_state()


def _fake_drawn(
    state: torch.Tensor, operator: str, form: torch.Tensor, numbers: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(form), torch.empty_like(state)


def _fake_state() -> torch.Tensor:
    return torch.empty((len(torch.get_rng_state()),), dtype=torch.uint8, device="cpu")


_STATE: Final = operators.define(
    "generator_state() -> Tensor", _state, _fake_state, skips_autograd=True
)
_SET: Final = operators.define(
    "set_generator_state(Tensor state) -> Tensor",
    _set_state,
    lambda state: _token(),
    skips_autograd=True,
)
_DRAWN: Final = operators.define(
    "drawn_from(Tensor state, str operator, Tensor form, float[] numbers) -> (Tensor, Tensor)",
    _drawn_from,
    _fake_drawn,
    has_effect=False,
    skips_autograd=True,
)


# In the arms


@dataclass(frozen=True, slots=True)
class States:
    """The state that an arm is given, and the one that it ends with, in its graph."""

    first: Node
    last: Node


@dataclass(frozen=True, slots=True)
class _Step:
    """A node of an arm that has to do with the generator.

    Attributes:
        node: draws, or reads or sets the state for a branch within the arm.
        module: the ATen operators that it consists of, if it is none itself.
        branches: of a ``torch.cond`` that draws, its graphs and what draws in them.
    """

    node: Node
    module: GraphModule | None = None
    branches: tuple[tuple[GraphModule, list[_Step]], ...] = ()


def take_out(tx: Any, arms: Sequence[ArmTrace]) -> str:
    """Make what ``arms`` draw a function of the generator's state, which they get in ``states``.

    Returns:
        What has to draw as it does; the arms are as they were then. Empty where nothing has to.
    """
    try:
        draws.require_one_run(tx)
        planned = [list(_plan(tx, arm.graph)) for arm in arms]
    except draws.Stays as reason:
        return str(reason)
    for arm, steps in zip(arms, planned, strict=True):
        if steps:
            arm.states.append(_written(tx, arm.graph, steps))
    return ""


def are_read_in(graph: Graph) -> bool:
    """Whether a branch in an arm has its state from the arm, which so far reads the generator's."""
    return any(node.target in (_STATE, _SET) for node in graph.nodes)


def _plan(tx: Any, graph: Graph) -> Iterator[_Step]:
    """Yield what has to do with the generator, in order. Raises ``Stays``."""
    for node in graph.nodes:
        name = hazards_of([node], tx.fake_mode, tx.output.nn_modules).random
        if not name:
            continue
        if node.target in (_STATE, _SET) or _can_be_written(node):
            yield _Step(node)
        elif node.target is torch.ops.higher_order.cond:
            yield _Step(node, branches=tuple(_plan_branches(tx, node)))
        else:
            module = draws.decomposed(node, tx.fake_mode, name)
            for each in module.graph.nodes:
                if is_draw(each) and not _can_be_written(each):
                    raise draws.Stays(f"{name} in the midst of what only the data tell")
            yield _Step(node, module)


def _plan_branches(tx: Any, node: Node) -> Iterator[tuple[GraphModule, list[_Step]]]:
    for attribute in node.args[1:3]:
        module = tx.output.nn_modules[attribute.target]  # type: ignore[union-attr]
        _describe(module.graph, tx.fake_mode)
        yield module, list(_plan(tx, module.graph))


def _describe(graph: Graph, fake_mode: Any) -> None:
    """Note what the nodes of a graph give, where that is not known, as in those of ``draws``."""
    with fake_mode:
        for node in graph.nodes:
            inputs = [each.meta.get("example_value") for each in node.all_input_nodes]
            is_known = "example_value" in node.meta or node.op not in _CALLS
            if is_known or any(each is None for each in inputs):
                continue
            arguments, keywords = (
                map_arg(each, lambda one: one.meta["example_value"])
                for each in (node.args, node.kwargs)
            )
            node.meta["example_value"] = run(node, arguments, keywords)


def _can_be_written(node: Node) -> bool:
    if node.target in _MADE:
        made = _example_of(node)
        return made.device.type == "cpu" and made.is_floating_point()
    if node.target not in _FILLING or node.kwargs:
        return False
    form, *numbers = node.args
    return (
        isinstance(form, Node)
        and form.target in _MAKING
        and _example_of(form).device.type == "cpu"
        and all(type(each) in (int, float) for each in numbers)
    )


def _example_of(node: Node) -> torch.Tensor:
    example = node.meta["val"] if "val" in node.meta else node.meta["example_value"]
    assert isinstance(example, torch.Tensor)
    return example


def _written(tx: Any, graph: Graph, steps: Sequence[_Step]) -> States:
    """Give a graph the state as its last input, and write each step as a function of it."""
    body = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(body):
        first = state = graph.placeholder("generator_state")
    with tx.fake_mode:
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
    """Have a branch within the arm given the arm's state, or leave the arm its own."""
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

    draws.expand(node, module, drawn)
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
    """Write what an ATen operator that draws gives for ``arguments``, and the state behind it."""
    operator: Any = node.target
    if operator in _MADE:
        make, name, numbers = _MADE[operator]
        form = graph.call_function(make, arguments, dict(node.kwargs))
        form.meta["example_value"] = _example_of(node)
    else:
        name, (form, *given) = _FILLING[operator], arguments
        numbers = tuple(map(float, given))
    pair = graph.call_function(_DRAWN, (state, name, form, list(numbers)))
    result, after = (graph.call_function(_item, (pair, position)) for position in range(2))
    result.meta["example_value"] = _example_of(node)
    if operator in _FILLING:
        result = graph.call_function(torch.ops.aten.copy_.default, (form, result))
    return result, after


def _write_branches(tx: Any, step: _Step, state: Node) -> Node:
    """Hand the state through both graphs of a ``torch.cond``, as its last operand and result."""
    node = step.node
    for module, steps in step.branches:
        states = _written(tx, module.graph, steps)
        output = module.graph.output_node()
        with module.graph.inserting_before(output):
            last = module.graph.call_method("clone", (states.last,))
        last.meta["example_value"] = states.first.meta["example_value"]
        output.args = ((*output.args[0], last),)  # type: ignore[misc]
        module.recompile()
    *others, operands = node.args
    node.args = (*others, (*operands, state))  # type: ignore[misc]
    before = node.meta["example_value"]
    with tx.fake_mode:
        node.meta = unjudged(node.meta) | {"example_value": (*before, _fake_state())}
    with node.graph.inserting_after(node):
        return node.graph.call_function(_item, (node, len(before)))


def _item(several: Any, position: int) -> Any:
    return several[position]


# In the main graph


def entered(
    tx: Any, arms: tuple[ArmTrace, ArmTrace]
) -> tuple[tuple[ArmTrace, ArmTrace], list[Pair]]:
    """Give the state to the arms that want it; return them, and what becomes of it to be merged."""
    if not any(arm.states for arm in arms):
        return arms, []
    before = wrap_fx_proxy(tx, tx.output.create_proxy("call_function", _STATE, (), {}))
    example = before.as_proxy().node.meta["example_value"]
    given, after = [], []
    for arm in arms:
        if not arm.states:
            given.append(arm)
            after.append(before)
            continue
        (states,) = arm.states
        states.last.meta.pop("example_value", None)  # Dynamo sets it itself
        last = Proxy(states.last, tx.output.current_tracer)
        given.append(replace(arm, lifted={**arm.lifted, before.as_proxy(): Proxy(states.first)}))
        after.append(wrap_fx_proxy(tx, last, example_value=example))
    return (given[0], given[1]), [Pair(*after)]


def leave(tx: Any, state: Any) -> None:
    """Set the state that the taken side has ended with."""
    wrap_fx_proxy(tx, tx.output.create_proxy("call_function", _SET, (state.as_proxy(),), {}))
