"""What nodes of a graph draw from the generator of the CPU, as fillings of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph
from bcmend.tracing.effects.operator_runs import OperatorCall, facts_of_node, run_of
from bcmend.tracing.effects.random_draws import drawing_inside, may_draw
from bcmend.tracing.programs.drawn_steps import PERMUTATION, Draw, DrawOfSide, Filling
from bcmend.tracing.programs.program_slices import Result
from bcmend.tracing.sites.refusal import NotThisWay

#: Operators that fill a tensor with numbers, given numbers.
FILLING: Final = {
    torch.ops.aten.bernoulli_.float: "bernoulli_",
    torch.ops.aten.normal_.default: "normal_",
    torch.ops.aten.uniform_.default: "uniform_",
    torch.ops.aten.exponential_.default: "exponential_",
}
#: Operators that make a tensor and fill it, from 0 to 1 or with mean 0 and deviation 1: what makes
#: it and what fills it (aten/src/ATen/native/TensorFactories.cpp).
MADE: Final[dict[Any, tuple[Any, str]]] = {
    torch.ops.aten.rand.default: (torch.ops.aten.empty.memory_format, "uniform_"),
    torch.ops.aten.randn.default: (torch.ops.aten.empty.memory_format, "normal_"),
    torch.ops.aten.rand_like.default: (torch.ops.aten.empty_like.default, "uniform_"),
    torch.ops.aten.randn_like.default: (torch.ops.aten.empty_like.default, "normal_"),
}
#: Operators that make a tensor of integers: how many of the first arguments are its bounds.
_INTEGERS: Final = {torch.ops.aten.randint.default: 1, torch.ops.aten.randint.low: 2}
_OF_INTEGERS: Final = ("random_", PERMUTATION)
#: Functions whose result is what they draw, of which nothing but the form is said.
_DRAWING: Final = (torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.randint)

#: Numbers of a tensor that something is computed of.
_FEW: Final = 2**10

Fillings = tuple[Filling, ...]


def is_drawn(node: Node) -> bool:
    """Return whether a node is a tensor of random numbers and nothing else."""
    is_call = node.op == "call_function" and node.target in _DRAWING
    return is_call and not {"out", "generator"} & node.kwargs.keys()


def draws(node: Node, modules: Mapping[str, Any]) -> bool:
    """Return whether a node, or a graph that it runs, may draw random numbers."""
    return may_draw(node) or bool(drawing_inside(node, modules))


def is_choice(node: Node) -> bool:
    """Return whether a node runs the one or the other of two graphs, by the truth of a tensor."""
    return node.target is torch.ops.higher_order.cond and isinstance(node.args[0], Node)


def fillings_of(node: Node) -> Fillings:
    """Return what an operation draws, in order.

    Raises:
        Refusal: that depends on data, or on sizes of the call, or is not known.
    """
    known = node.meta.get(meta_keys.FILLINGS)
    if known is None:
        known = node.meta[meta_keys.FILLINGS] = _fillings_of(node)
    if isinstance(known, str):
        raise NotThisWay()
    found: Fillings = known
    return found


_NOT_KNOWN: Final = "not known"


def _fillings_of(node: Node) -> Fillings | str:
    drawing: OperatorCall | None = node.meta.get(meta_keys.DRAWS_AS)
    if drawing is not None:
        calls = [drawing]
    elif facts_of_node(node).handles_generator or (run := run_of(node)) is None:
        return _NOT_KNOWN
    else:
        calls = [each for each in run.calls if each.draws and not _is_elsewhere(each)]
    found = tuple(map(_filling, calls))
    return _NOT_KNOWN if None in found else found  # type: ignore[return-value]


def fillings_of_sides(node: Node, modules: Mapping[str, Any]) -> tuple[Fillings, Fillings]:
    """Return what the two graphs of a branch draw.

    Raises:
        Refusal: that is not known.
    """
    graphs = fx_graph.graphs_given(node, modules)
    if not is_choice(node) or len(graphs) != 2:
        raise NotThisWay()
    then_side, else_side = (
        tuple(
            filling
            for each in graph.graph.nodes
            if draws(each, graph._modules)
            for filling in fillings_of(each)
        )
        for graph in graphs
    )
    return then_side, else_side


def step_of(
    node: Node, places: Mapping[Node, int], state: int, modules: Mapping[str, Any]
) -> Draw | DrawOfSide:
    """Return the step that draws what a node draws, behind the step at the place ``state``.

    ``places`` are those of the results of nodes before.

    Raises:
        Refusal: what it draws is not known.
    """
    if is_choice(node):
        predicate: Any = node.args[0]
        sides = fillings_of_sides(node, modules)
        return DrawOfSide(Result(state), Result(places[predicate]), sides)
    return Draw(Result(state), fillings_of(node), keeps=is_kept(node))


def is_kept(node: Node) -> bool:
    """Return whether a node is a tensor of random numbers that a program can compute with.

    Raises:
        Refusal: what it draws is not known.
    """
    fillings = fillings_of(node) if is_drawn(node) else ()
    return bool(fillings) and math.prod(fillings[-1].size) <= _FEW


def _is_elsewhere(call: OperatorCall) -> bool:
    """Return whether an operator draws from the generator of another device."""
    given = [each for each in compat.tree_leaves(call.arguments) if isinstance(each, torch.Tensor)]
    devices = {each.device.type for each in given or [call.result]}
    return "cpu" not in devices


def _filling(call: OperatorCall) -> Filling | None:
    """Return what an ATen operator fills; ``None`` if that is not known before it is called."""
    if call.operator in FILLING:
        form, *numbers = call.arguments
        method = FILLING[call.operator]
    elif call.operator in MADE:
        form, numbers, (_, method) = call.result, [], MADE[call.operator]
    elif call.operator in _INTEGERS:
        count = _INTEGERS[call.operator]
        form, method, numbers = call.result, "random_", [0, *call.arguments[:count]][-2:]
    elif call.operator is torch.ops.aten.randperm.default:
        form, method, numbers = call.result, PERMUTATION, []
    elif call.operator is torch.ops.aten.bernoulli.p:
        form, method, numbers = call.result, "bernoulli_", [call.arguments[1]]
    else:
        return None
    is_known = all(type(each) in (int, float) for each in numbers)
    if not is_known or call.keywords.get("generator") is not None:
        return None
    return _into(form, method, tuple(numbers))


def _into(form: Any, method: str, numbers: tuple[float, ...]) -> Filling | None:
    if not isinstance(form, torch.Tensor) or form.layout is not torch.strided:
        return None
    size, stride = tuple(form.size()), tuple(form.stride())
    is_plain = form.device.type == "cpu" and (form.is_floating_point() or method in _OF_INTEGERS)
    if not is_plain or any(type(each) is not int for each in (*size, *stride)):
        return None
    if not compat.is_non_overlapping_and_dense_or_false(form):
        return None
    return Filling(method, numbers, size, stride, form.dtype)
