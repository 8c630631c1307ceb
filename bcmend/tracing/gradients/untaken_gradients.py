"""Finds the inputs of a graph whose gradient only the sides not taken may ask for, or none at all.

Eager execution leaves such a gradient at ``None``. The graph is made to return the predicates that
decide about it, and runs behind the identity of ``gradient_switch``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat, fx_graph, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.tracing.deopt import graph_failure, undo_log
from bcmend.tracing.effects.operator_runs import facts_of_node, storage_of, target_name
from bcmend.tracing.gradients import arm_selects, gates
from bcmend.tracing.gradients.gradient_flow import Flow, has_gradient, may_get_gradient, tensors_of
from bcmend.tracing.gradients.gradient_paths import RESULT, Routes
from bcmend.tracing.gradients.gradient_switch import switched
from bcmend.tracing.gradients.returned_predicates import handed_out

#: Operations after which a tensor that had a history has none, or has another one.
_LOSES_HISTORY: Final = frozenset(["detach_", "requires_grad_", "set_", "set_data", "backward"])


@dataclass(frozen=True, slots=True)
class _Plan:
    """The inputs by position, what decides about them, and how many results hold predicates.

    Attributes:
        apart: the inputs, by position, that no gradient ever reaches.
    """

    places: tuple[int, ...]
    apart: tuple[int, ...]
    routes: Routes
    results: int


_IS_ASKED: Final = Slot(bool, rolls_back=False)
_PLAN: Final[Slot[_Plan | None]] = Slot(lambda: None, rolls_back=False)


def mark_and_examine(tx: compat.Tracer, node: Node) -> None:
    """Note that ``node`` takes a side, and have the graph examined when it is complete."""
    arm_selects.mark_select(tx, node)
    output = tx.output
    if not _IS_ASKED.of(output) and not output.export and torch.is_grad_enabled():
        _IS_ASKED.put(output, True)
        at_the_end_of_a_graph(output, Phase.EDIT, partial(_plan, output))


def _plan(output: compat.OutputGraph, module: GraphModule) -> None:
    if not _is_followed(output, module):
        return
    flow = Flow(output.fake_mode)
    paths = flow.back(module, _seeds(module), ())
    found = _decided(output, module, flow, paths)
    places, starts = [place for place in found if found[place]], list(filter(None, found.values()))
    _detach_unreached(module, paths, flow)
    gates.insert(module, paths, flow)
    _gate_in_arms(module, output.fake_mode)
    if not found:
        return
    routes, numbers = flow.paths.routes(starts)
    known = list(flow.predicates)
    asked = [(known[each], flow.inside[known[each].graph]) for each in numbers]
    order, results = handed_out(module, asked, output.fake_mode)
    apart = tuple(place for place in found if not found[place])
    _PLAN.put(output, _Plan(tuple(places), apart, routes.in_order(order), results))


def _is_followed(output: compat.OutputGraph, module: GraphModule) -> bool:
    """Return whether gradients flow through sides of branches of a graph, and can be followed."""
    return (
        any(map(has_gradient, _inputs(module)))
        and any(map(may_get_gradient, _results(module)))
        and any(map(arm_selects.is_marked, module.graph.nodes))
        and output.package is None
        and compat.peek_interpreter_stack() is None
        and not any(map(_hides_history, _all_nodes(module)))
    )


def _inputs(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _results(module: GraphModule) -> list[Node]:
    given: Any = module.graph.output_node().args[0]
    return [each for each in given if isinstance(each, Node)]


def _decided(
    output: compat.OutputGraph, module: GraphModule, flow: Flow, paths: Mapping[Node, int]
) -> dict[int, int]:
    """Return the paths from each input whose gradient sides decide, by its position.

    There is none from an input that a branch is given and no gradient reaches.
    """
    decided, results = dict[int, int](), _results(module)
    apart = {storage_of(each) for node in results for each in tensors_of(node)}
    changed = undo_log.changed_inputs(output)
    for place, node in enumerate(_inputs(module)):
        found = flow.paths.simplified(paths[node])
        is_decided = found > RESULT or (not found and _enters_an_operator(node))
        if is_decided and node not in changed and _is_plain(node, apart):
            decided[place] = found
    return decided


def _gate_in_arms(module: GraphModule, fake_mode: Any) -> None:
    """Gate what operations are given inside of arms of ``torch.cond``: one that runs is taken."""
    for node in module.graph.nodes:
        if node.target is not torch.ops.higher_order.cond or not arm_selects.is_marked(node):
            continue
        for arm in fx_graph.graphs_given(node, module._modules):
            if any(map(arm_selects.is_marked, arm.graph.nodes)):
                flow = Flow(fake_mode)
                paths = flow.back(arm, _seeds(arm), ())
                _detach_unreached(arm, paths, flow)
                gates.insert(arm, paths, flow)
                _gate_in_arms(arm, fake_mode)


def _detach_unreached(module: GraphModule, paths: Mapping[Node, int], flow: Flow) -> None:
    """Give branches without its history what no gradient comes back to, as what is compared only.

    To a back end the operator depends on it, and sends back zeros, of which an operation before it
    may make what is not a number. Inputs of the graph are given so by ``gradient_switch``.
    """
    for node in list(module.graph.nodes):
        if node.target is not torch.ops.higher_order.cond or not arm_selects.is_marked(node):
            continue
        for operand in dict.fromkeys(node.all_input_nodes):
            is_reached = bool(flow.paths.simplified(paths.get(operand, 0)))
            if is_reached or operand.op == "placeholder" or not gates.is_one_tensor(operand):
                continue
            with module.graph.inserting_before(node):
                node.replace_input_with(operand, _detached(operand))
        unread = {user.args[1] for user in node.users} - {
            user.args[1] for user in node.users if flow.paths.simplified(paths.get(user, 0))
        }
        for arm in fx_graph.graphs_given(node, module._modules):
            _detach_results(arm, unread)
    module.recompile()


def _detach_results(arm: GraphModule, places: Collection[Any]) -> None:
    """Have what an arm returns at some places, to which no gradient comes back, be detached."""
    output = arm.graph.output_node()
    returned: Any = output.args[0]
    with arm.graph.inserting_before(output):
        returned = tuple(
            _detached(each) if at in places and gates.is_one_tensor(each) else each
            for at, each in enumerate(returned)
        )
    output.args = (returned,)
    arm.recompile()


def _detached(node: Node) -> Node:
    found = node.graph.call_method("detach", (node,))
    found.meta["example_value"] = node.meta["example_value"].detach()
    return found


def _seeds(module: GraphModule) -> list[int]:
    """Return the paths from each result of a graph."""
    given: Any = module.graph.output_node().args[0]
    return [RESULT if isinstance(each, Node) and may_get_gradient(each) else 0 for each in given]


def _enters_an_operator(node: Node) -> bool:
    """Return whether a branch is given what an input leads to.

    To a back end every result of ``torch.cond`` depends on all that it is given, also on what is
    compared only, to which no path leads.
    """
    seen, waiting = {node}, [node]
    while waiting:
        users = [each for each in waiting.pop().users if each not in seen]
        if any(each.target is torch.ops.higher_order.cond for each in users):
            return True
        seen.update(users)
        waiting += users
    return False


def _is_plain(node: Node, apart: set[int]) -> bool:
    """Return whether an input is an ordinary tensor whose memory no result has."""
    example = node.meta.get("example_value")
    if not isinstance(example, torch.Tensor) or type(example) is not compat.FakeTensor:
        return False
    return example.requires_grad and storage_of(example) not in apart


def _all_nodes(module: GraphModule) -> Iterator[Node]:
    for each in module.modules():
        if isinstance(each, GraphModule):
            yield from each.graph.nodes


def _hides_history(node: Node) -> bool:
    """Return whether what tracing says of a tensor's history does not hold for all its readers."""
    name = target_name(node)
    return name in _LOSES_HISTORY or "_nesting" in name or facts_of_node(node).replaces_storage


@hooks.around(
    compat.OutputGraph, methods.INSTALL_GLOBAL, "gradients of untaken sides", gate=None, place=1
)
def _install_global(inner: Any, output: compat.OutputGraph, name: str, value: Any) -> None:
    plan = _PLAN.of(output)
    if plan is not None and name.startswith("__compiled_fn"):
        run: Any = switched(value, plan.places, plan.apart, plan.routes, plan.results)
        run.__code__ = graph_failure.unseen(run.__code__)
        value = run
    inner(output, name, value)
