"""Random operators: which nodes draw numbers, and how a frame that draws can be run again.

Code at the start of such a frame saves the states of all generators that it can draw from.
"""

from __future__ import annotations

import operator
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from bcmend.bytecode import emit
from bcmend.dynamo import compat, fx_graph, plain_python
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.dynamo.values import load_global
from bcmend.tracing.effects.operator_runs import facts_of_node, is_in_place, run_of, target_name
from bcmend.tracing.search.calls import CURRENT


def may_draw(node: Node) -> bool:
    """Return whether a node may draw random numbers."""
    facts = facts_of_node(node)
    if not (facts.is_composite and facts.draws(node.args, node.kwargs)):
        return facts.draws(node.args, node.kwargs)
    found = run_of(node)
    return found is None or any(each.draws for each in found.calls)


def nodes_of(output: compat.OutputGraph) -> list[Node]:
    """Return the nodes of a complete graph and of the graphs inside it."""
    modules = output.nn_modules.values()
    inside = [each.graph for each in modules if isinstance(each, GraphModule)]
    return [node for graph in (output.graph, *inside) for node in graph.nodes]


def frame_draws(output: compat.OutputGraph) -> bool:
    """Return whether a frame draws random numbers, in its graph or in calls before it."""
    return bool(output.random_calls) or any(map(may_draw, nodes_of(output)))


def seeds_torch(output: compat.OutputGraph) -> bool:
    """Return whether torch's generator is seeded before the graph runs."""
    modules = (getattr(each[0], "__module__", None) or "" for each in output.random_calls)
    return any(each.partition(".")[0] == "torch" for each in modules)


def _draws_of_python(output: compat.OutputGraph) -> bool:
    """Return whether a frame draws from the generators of Python or numpy."""
    nodes = output.graph.nodes
    return bool(output.random_calls) or any(facts_of_node(node).draws_on_host for node in nodes)


def take_before(output: compat.OutputGraph) -> None:
    """Have the states saved at the start of the frame being traced, if it draws numbers.

    Whether it does is known when its graph is complete.
    """
    start = compat.create_instruction(emit.nothing.op)
    output.pregraph_bytecode.append(start)

    def insert(module: Any) -> None:
        if not frame_draws(output):
            return
        _keep_unused(module)
        codegen = compat.PyCodegen(output.root_tx)
        codegen.add_push_null(lambda: load_global(codegen, _take))
        codegen.append_output(codegen.create_load_const(_draws_of_python(output)))
        codegen.extend_output(compat.create_call_function(1, False))
        codegen.append_output(compat.create_instruction(emit.pop_top.op))
        written = output.output_instructions
        place = next(at for at, each in enumerate(written) if each is start)
        written[place + 1 : place + 1] = codegen.get_instructions()

    at_the_end_of_a_graph(output, Phase.EDIT, insert)


def _keep_unused(module: GraphModule) -> None:
    """Give random operators without users an assertion that cannot fail as a user.

    A back end removes operators without users, and all later random numbers would change.
    """
    graph, modules = module.graph, module._modules
    for inner in [each for node in graph.nodes for each in fx_graph.graphs_given(node, modules)]:
        _keep_unused(inner)
    used = {graph.output_node()}
    for node in reversed(graph.nodes):
        if node in used:
            used.update(node.all_input_nodes)
    drawing = [node for node in graph.nodes if may_draw(node) or drawing_inside(node, modules)]
    unused = [node for node in drawing if node not in used and not is_in_place(node)]
    for node in unused:
        place, drawn = node.next, node.meta.get("example_value")
        with graph.inserting_before(place):
            if isinstance(drawn, tuple | list) and drawn:
                node, drawn = graph.call_function(operator.getitem, (node, 0)), drawn[0]
            if not isinstance(drawn, torch.Tensor):
                continue
            equal = graph.call_function(torch.eq, (node, node))
            number = graph.call_method("sum", (equal,))
            holds = graph.call_function(torch.ge, (number, 0))
            text = "a number of elements is not negative"
            graph.call_function(compat.ASSERT_ASYNC, (holds, text))
    if unused:
        module.recompile()


def drawing_inside(node: Node, modules: Mapping[str, Any]) -> str:
    """Return the name of what may draw random numbers in the graphs that ``node`` runs."""
    for given in fx_graph.graphs_given(node, modules):
        for each in given.graph.nodes:
            found = target_name(each) if may_draw(each) else drawing_inside(each, given._modules)
            if found:
                return found
    return ""


def hidden_in(node: Node, modules: Mapping[str, Any]) -> str:
    """Return the name of what may have a state of its own, of a node and the graphs it runs."""
    if facts_of_node(node).has_hidden_state:
        return target_name(node)
    for given in fx_graph.graphs_given(node, modules):
        for each in given.graph.nodes:
            if found := hidden_in(each, given._modules):
                return found
    return ""


def _take(of_python: bool) -> None:
    """Save the states of the generators that code being compiled can draw from."""
    plain_python.run(_take_states, of_python)


def _take_states(of_python: bool) -> None:
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = torch.cuda.default_generators if started else ()
    generators = (torch.default_generator, *devices)
    of_torch = tuple((each, each.get_state()) for each in generators)
    CURRENT.states = of_torch, states_of_python() if of_python else None


def states_of_python() -> tuple[Any, Any]:
    """Return the states of Python's generator and of numpy's, if that is imported."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def put_back_python(states: tuple[Any, Any]) -> None:
    """Restore what ``states_of_python`` returned."""
    of_python, of_numpy = states
    random.setstate(of_python)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)


def restore_states() -> None:
    """Restore the states that the frame entered last has saved, if it has."""
    of_torch, of_python = CURRENT.states or ((), None)
    for generator, state in of_torch:
        generator.set_state(state)
    if of_python is not None:
        put_back_python(of_python)
    CURRENT.states = None


plain_python.have_dynamo_skip(_take, restore_states)
