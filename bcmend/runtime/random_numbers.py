"""Random numbers: which nodes draw them, and how a frame that draws them can be run once more.

Reads the complete graph of a frame. Where it draws numbers, code is put in front of the frame that
takes the states of all generators that it can draw from, for this thread to put back.
"""

from __future__ import annotations

import operator
import random
import sys
import threading
from typing import Any, Final

import torch
from torch._dynamo.bytecode_transformation import create_call_function, create_instruction
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.eval_frame import skip_code
from torch.fx import GraphModule, Node

__all__ = [
    "draws",
    "forget",
    "may_draw",
    "nodes_of",
    "put_back",
    "put_back_python",
    "states_of_python",
    "take_before",
]

#: Parts of the names of functions and methods that draw random numbers.
_RANDOM: Final = (
    "rand", "dropout", "bernoulli", "multinomial", "normal_", "uniform_", "exponential_", "poisson",
    "rrelu", "geometric_", "cauchy_", "random_", "gumbel",
    "host_function", "set_generator_state",
)  # fmt: skip


def may_draw(node: Node) -> bool:
    """Whether a node may draw random numbers, going by its name and arguments."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = _name(node)
    if name == "scaled_dot_product_attention":
        return bool(node.kwargs.get("dropout_p", 0.0)) or len(node.args) > 4
    if not any(part in name for part in _RANDOM):
        return False
    switched_off = node.kwargs.get("training") is False or node.args[2:3] == (False,)
    return not ("dropout" in name and switched_off)


def _name(node: Node) -> str:
    name: str = (
        node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    )
    return name


def nodes_of(output: Any) -> list[Node]:
    """Return the nodes of a complete graph and of the graphs inside it."""
    modules = output.nn_modules.values()
    inside = [each.graph for each in modules if isinstance(each, GraphModule)]
    return [node for graph in (output.graph, *inside) for node in graph.nodes]


def draws(output: Any) -> bool:
    """Whether a frame draws random numbers, in its graph or in calls that are made before it."""
    return bool(output.random_calls) or any(map(may_draw, nodes_of(output)))


def _draws_of_python(output: Any) -> bool:
    """Whether a frame draws from the generators of Python or numpy, in its graph or before it."""
    calls = (node for node in output.graph.nodes if node.op == "call_function")
    return bool(output.random_calls) or any("host_function" in _name(node) for node in calls)


class _Taken(threading.local):
    """The states that the frame which this thread has entered last took, if it did."""

    of_torch: tuple[tuple[torch.Generator, torch.Tensor], ...] = ()
    of_python: Any = None


_TAKEN = _Taken()


def take_before(output: Any) -> None:
    """Have the states taken before the frame being traced does anything, if it draws numbers.

    That is known when its graph is complete, but not yet called.
    """
    start = create_instruction("NOP")
    output.pregraph_bytecode.append(start)

    def insert(module: Any) -> None:
        if not draws(output):
            return
        _keep_unused(module)
        codegen = PyCodegen(output.root_tx)
        codegen.add_push_null(lambda: codegen.load_import_from(__name__, _take.__name__))
        codegen.append_output(codegen.create_load_const(_draws_of_python(output)))
        codegen.extend_output(create_call_function(1, False))
        codegen.append_output(create_instruction("POP_TOP"))
        written = output.output_instructions
        place = next(at for at, each in enumerate(written) if each is start)
        written[place + 1 : place + 1] = codegen.get_instructions()

    output.register_finalizer_fns.append(insert)


def _keep_unused(module: GraphModule) -> None:
    """Keep random draws of which nothing comes, as that of an argument which nobody reads.

    A back end takes operations without a use out of a graph, and every later number would be
    another; stock has drawn it where its graph has ended in between. An assertion that cannot fail
    is a use that stays. An operator that draws in a graph of its own is used as well.
    """
    graph = module.graph
    for inner in [each for node in graph.nodes for each in _graphs_given(module, node)]:
        _keep_unused(inner)
    used = _read_for(next(node for node in reversed(graph.nodes) if node.op == "output"))
    drawing = [node for node in graph.nodes if may_draw(node) or _draws_inside(module, node)]
    unused = [node for node in drawing if node not in used and not _name(node).endswith("_")]
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
            graph.call_function(torch.ops.aten._assert_async.msg, (holds, text))
    if unused:
        module.recompile()


def _graphs_given(module: GraphModule, node: Node) -> list[GraphModule]:
    """Return the graphs that an operator is given to run."""
    named = [each for each in node.all_input_nodes if each.op == "get_attr"]
    given = [getattr(module, str(each.target), None) for each in named]
    return [each for each in given if isinstance(each, GraphModule)]


def _draws_inside(module: GraphModule, node: Node) -> bool:
    return any(
        may_draw(each) or _draws_inside(inner, each)
        for inner in _graphs_given(module, node)
        for each in inner.graph.nodes
    )


def _read_for(last: Node) -> set[Node]:
    """Return the nodes that ``last`` depends on, itself included."""
    found, pending = {last}, [last]
    while pending:
        fresh = [each for each in pending.pop().all_input_nodes if each not in found]
        found.update(fresh)
        pending.extend(fresh)
    return found


def _take(of_python: bool) -> None:
    """Take the states of the generators that code being compiled can draw from."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = torch.cuda.default_generators if started else ()
    generators = (torch.default_generator, *devices)
    _TAKEN.of_torch = tuple((each, each.get_state()) for each in generators)
    _TAKEN.of_python = states_of_python() if of_python else None


def states_of_python() -> tuple[Any, Any]:
    """Return the states of Python's generator and of numpy's, if that is imported."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def put_back_python(states: tuple[Any, Any]) -> None:
    """Put back what ``states_of_python`` returned."""
    of_python, of_numpy = states
    random.setstate(of_python)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)


def forget() -> None:
    """Forget the states: the frame that is entered next may not take any."""
    _TAKEN.of_torch, _TAKEN.of_python = (), None


def put_back() -> None:
    """Put back the states that the frame entered last took, if it did."""
    for generator, state in _TAKEN.of_torch:
        generator.set_state(state)
    if _TAKEN.of_python is not None:
        put_back_python(_TAKEN.of_python)
    forget()


for _function in (_take, forget, put_back):
    skip_code(_function.__code__)
