"""Adds operations to the graph being traced, and takes back what is not to stay.

Arguments of operations are Dynamo's variables, their proxies, or plain values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch.fx import Graph, GraphModule, Node, Proxy

from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.slots import Slot


def function(
    tx: compat.Tracer, target: Any, *arguments: Any, **named: Any
) -> compat.TensorVariable:
    """Call a function in the graph."""
    return _add(tx, "call_function", target, arguments, named)


def method(tx: compat.Tracer, name: str, *arguments: Any, **named: Any) -> compat.TensorVariable:
    """Call a method of the first argument in the graph."""
    return _add(tx, "call_method", name, arguments, named)


def graphs_given(node: Node, modules: Mapping[str, Any]) -> list[GraphModule]:
    """Return the graphs that an operator is given to run; ``modules`` has them by their names."""
    named = [each for each in node.all_input_nodes if each.op == "get_attr"]
    given = [modules.get(str(each.target)) for each in named]
    return [each for each in given if isinstance(each, GraphModule)]


def graphs_in(module: GraphModule) -> list[Graph]:
    """Return the graph of a module and those inside it."""
    return [each.graph for each in module.modules() if isinstance(each, GraphModule)]


def nodes_in(module: GraphModule) -> list[Node]:
    """Return the nodes of the graph of a module and of those inside it."""
    return [node for graph in graphs_in(module) for node in graph.nodes]


def calls(module: GraphModule, operator: Any) -> bool:
    """Return whether the graph of a module, or one inside it, calls an operator."""
    found = (each.find_nodes(op="call_function", target=operator) for each in graphs_in(module))
    return any(found)


def in_kind_of(tx: compat.Tracer, model: compat.VariableTracker, value: Any) -> Any:
    """Return ``value``, as a numpy array (a tensor to the graph) if ``model`` is one."""
    if type(model) is not compat.NumpyNdarrayVariable or type(value) is not compat.TensorVariable:
        return value
    return variable_of(tx, value.as_proxy(), compat.NumpyNdarrayVariable)


def variable_of(
    tx: compat.Tracer, proxy: Proxy, kind: type[compat.TensorVariable] = compat.TensorVariable
) -> Any:
    """Return another variable for a tensor that is in the graph."""
    example = proxy.node.meta["example_value"]
    return kind(proxy, **compat.get_specialized_props(kind, tx, example, None))


def tracers(tx: compat.Tracer) -> Iterator[Any]:
    """Yield the tracer of the graph being written, then those of the graphs around it."""
    tracer: Any = tx.output.current_tracer
    while tracer is not None:
        yield tracer
        tracer = tracer.parent


def operators_around(tx: compat.Tracer) -> Iterator[str]:
    """Yield the names of the operators whose bodies are being written, from the inside out."""
    bodies = (each for each in tracers(tx) if each.parent is not None)
    yield from (getattr(each.source_target, "__name__", "") for each in bodies)


def _add(
    tx: compat.Tracer, kind: str, target: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> compat.TensorVariable:
    given = tuple(
        each.as_proxy() if isinstance(each, compat.VariableTracker) else each for each in arguments
    )
    result = compat.wrap_fx_proxy(tx, tx.output.create_proxy(kind, target, given, named))
    assert isinstance(result, compat.TensorVariable)
    return result


#: Whether nodes were taken back that a variable may still refer to.
ERASED: Final = Slot(bool, rolls_back=False)


class Transaction:
    """What is written into the graph of a trace from now on, until ``commit``.

    ``roll_back`` removes its nodes and subgraphs, and what torch has come to assert of sizes.
    Inputs and attributes of the graph and the numbers in them stay: Dynamo finds them by source.
    """

    def __init__(self, tx: compat.Tracer) -> None:
        self._output, self._tracer = tx.output, tx.output.current_tracer
        self._last = next(iter(reversed(self._tracer.graph.nodes)), None)
        self._modules = frozenset(tx.output.nn_modules)
        self._knowledge = shape_env.Knowledge(tx.output.shape_env)
        self.is_committed = False

    def commit(self) -> None:
        """Let everything stay."""
        self.is_committed = True

    def roll_back(self) -> None:
        """Remove what has been written."""
        for node in list(reversed(self._tracer.graph.nodes)):
            if node is self._last:
                break
            if not node.users and not is_known_by_a_source(node):
                self._tracer.graph.erase_node(node)
        used = {node.target for node in self._tracer.graph.nodes if node.op == "get_attr"}
        modules = self._output.nn_modules
        for name in modules.keys() - self._modules - used:
            if isinstance(modules[name], GraphModule):
                del modules[name]
        for symbol, proxy in list(self._tracer.bound_symbols.items()):
            if isinstance(proxy, Proxy) and proxy.node._erased:
                del self._tracer.bound_symbols[symbol]
        self._knowledge.take_back_all()
        ERASED.put(self._output, True)


def is_known_by_a_source(node: Node) -> bool:
    """Return whether Dynamo finds a node by a source, so that it may be used again."""
    if node.op == "get_attr":
        return not str(node.target).startswith("cond_")
    is_of_an_input = all(each.op == "placeholder" for each in node.all_input_nodes)
    return node.op == "placeholder" or (node.target == "item" and is_of_an_input)


def is_erased(value: compat.VariableTracker) -> bool:
    """Return whether the node of a value was taken back."""
    return bool(value.as_proxy().node._erased)


def close_over(found: set[Node], pending: list[Node]) -> None:
    """Add to ``found`` everything that the pending nodes are computed from."""
    while pending:
        node = pending.pop()
        found.add(node)
        pending.extend(each for each in node.all_input_nodes if each not in found)
