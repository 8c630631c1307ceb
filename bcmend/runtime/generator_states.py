"""Random numbers that an arm draws in the midst of what only its data tell.

Where gradients flow, what an arm draws is drawn before it (``draws``), since the backward of
``torch.cond`` runs the arm again. A mask for as many tokens as the data send to an expert has no
size before the arm. So here the arm is given the state of torch's generator as a tensor, each draw
in it is a function of the state (``bcmend::drawn_from``) that returns the next one too, and the
state that the taken side ends with is set behind the branch. Run again, the arm draws the same.

The state is read and set by operators that have effects in torch's sense, in the main graph alone,
so that they keep their order. Only the generator of the CPU has a state that can be handed on so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch.fx import GraphModule, Node, Proxy

from bcmend.runtime import draws, operators
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.merge import Pair
from bcmend.runtime.operations import draws as is_draw
from bcmend.runtime.operations import hazards_of

__all__ = ["entered", "leave", "take_out"]

#: Operators that fill a tensor with numbers, given numbers.
_FILLING: Final = {
    torch.ops.aten.bernoulli_.float: "bernoulli_",
    torch.ops.aten.normal_.default: "normal_",
    torch.ops.aten.uniform_.default: "uniform_",
    torch.ops.aten.exponential_.default: "exponential_",
}
#: What makes a tensor that lies in memory as its form says, without a gap.
_MAKING: Final = frozenset(
    [
        torch.ops.aten.empty_like.default,
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.new_empty.default,
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


def take_out(tx: Any, arms: Sequence[ArmTrace]) -> str:
    """Make what ``arms`` draw a function of the generator's state, which they get in ``states``.

    Returns:
        What has to draw as it does; the arms are as they were then. Empty where nothing has to.
    """
    if tx.output.current_tracer.parent is not None:
        return "a draw inside another operator"
    planned: list[list[tuple[Node, GraphModule]]] = []
    for arm in arms:
        try:
            planned.append(list(_plan(tx, arm)))
        except draws.Stays as reason:
            return str(reason)
    for arm, steps in zip(arms, planned, strict=True):
        if steps:
            arm.states.append(_written(arm, steps))
    return ""


def _plan(tx: Any, arm: ArmTrace) -> Iterator[tuple[Node, GraphModule]]:
    """Yield each node that draws with the ATen operators that it consists of."""
    for node in arm.graph.nodes:
        name = hazards_of([node], tx.fake_mode, tx.output.nn_modules).random
        if not name:
            continue
        module = draws.decomposed(node, tx.fake_mode, name)
        for each in module.graph.nodes:
            if is_draw(each) and not _can_be_written(each):
                raise draws.Stays(f"{name} in the midst of what only the data tell")
        yield node, module


def _can_be_written(node: Node) -> bool:
    form, *numbers = node.args
    return (
        node.target in _FILLING
        and not node.kwargs
        and isinstance(form, Node)
        and form.target in _MAKING
        and form.meta["val"].device.type == "cpu"
        and all(type(each) in (int, float) for each in numbers)
    )


def _written(arm: ArmTrace, steps: Sequence[tuple[Node, GraphModule]]) -> States:
    graph = arm.graph
    with graph.inserting_before(next(iter(graph.nodes))):
        first = state = graph.placeholder("generator_state")
    for node, module in steps:

        def drawn(each: Node, form: Node | None) -> Node:
            nonlocal state
            arguments = (state, _FILLING[each.target], form, [float(n) for n in each.args[1:]])  # type: ignore[index, arg-type]
            both = graph.call_function(_DRAWN, arguments)
            numbers, state = (graph.call_function(_item, (both, position)) for position in range(2))
            numbers.meta["example_value"] = each.meta["val"]
            return graph.call_function(torch.ops.aten.copy_.default, (form, numbers))

        draws.expand(node, module, drawn)
    return States(first, state)


def _item(pair: Any, position: int) -> Any:
    return pair[position]


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
        states.first.meta["example_value"] = example
        last = Proxy(states.last, tx.output.current_tracer)
        given.append(replace(arm, lifted={**arm.lifted, before.as_proxy(): Proxy(states.first)}))
        after.append(wrap_fx_proxy(tx, last, example_value=example))
    return (given[0], given[1]), [Pair(*after)]


def leave(tx: Any, state: Any) -> None:
    """Set the state that the taken side has ended with."""
    wrap_fx_proxy(tx, tx.output.create_proxy("call_function", _SET, (state.as_proxy(),), {}))
