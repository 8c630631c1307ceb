"""The operations behind a tensor, as a program of its own.

While a frame is traced the graph holds how each tensor is computed. What is behind one of them is
cut out as a ``ProgramSlice``: it can be run on its own, in another call too, where its inputs are
found by what Dynamo calls them. Two slices are equal if they make the same calls of the same
inputs.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, Final

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.node import map_aggregate

from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.models import graph_inputs
from bcmend.names import NUMBERS
from bcmend.tracing.effects import random_draws
from bcmend.tracing.effects.hazards import AUTOCAST
from bcmend.tracing.numbers.written_memory import (
    is_of_arrays,
    is_of_functorch,
    is_of_torch,
    is_written,
    memory_written_by,
    parts_of,
    sets_default,
    storages,
)
from bcmend.tracing.programs import host_draws, random_forms
from bcmend.tracing.programs.drawn_steps import Start, numbers_of
from bcmend.tracing.programs.program_slices import (
    Constant,
    Input,
    Operation,
    ProgramSlice,
    Result,
    Step,
    copied,
)
from bcmend.tracing.programs.straight_code import Scope
from bcmend.tracing.sites.lifted_inputs import before_arms
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt

#: Operations behind a tensor. They are computed twice: in front of the graph, and in it.
_OPERATIONS: Final = 256

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter, int)
_SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


def outside(tx: compat.Tracer, node: Node) -> Node:
    """Return what a node is outside of all arms that its value was lifted into."""
    return before_arms(tx, Proxy(node)).node


def _first(tx: compat.Tracer, node: Node) -> Node:
    """Return what a node is outside of all arms; of a size, the input of the graph that it is."""
    outer = outside(tx, node)
    example = outer.meta.get("example_value")
    if outer.op == "placeholder" or not isinstance(example, torch.SymInt):
        return outer
    bound = tx.output.root_tracer.bound_symbols.get(example.node.expr)
    given = bound.node if isinstance(bound, Proxy) else outer
    return outer if graph_inputs.source_of(given) is None else given


#: Functions that read the sizes, the type and the place of a tensor, and no number of it.
_LIKE: Final[dict[Any, int | None]] = {
    torch.zeros_like: 0,
    torch.ones_like: 1,
    torch.full_like: None,
}


def _sizes_alone(node: Node) -> tuple[int, ...] | None:
    """Return the sizes of what a node makes of the sizes of a tensor; ``None`` for other nodes."""
    example = node.meta.get("example_value")
    if node.op != "call_function" or node.target not in _LIKE or len(node.all_input_nodes) != 1:
        return None
    if not isinstance(example, torch.Tensor) or not node.kwargs.keys() <= {"dtype"}:
        return None
    if len(node.args) != (2 if node.target is torch.full_like else 1):
        return None
    sizes = tuple(example.shape)
    return sizes if all(type(each) is int for each in sizes) else None


def behind(
    tx: compat.Tracer,
    node: Node,
    may_be_run: Callable[[Node], bool],
    most: int,
    *,
    sizes_apart: bool = False,
) -> list[Node]:
    """Return a node and those that it is computed from, inputs first.

    With ``sizes_apart`` those are left out that nothing but sizes are read of.

    Raises:
        Refusal: there are more than ``most`` of them, or some may not be run.
    """
    found, begun, waiting = list[Node](), set[Node](), [(node, False)]
    while waiting:  # not by recursion: a chain of 200 would be too long for Python's stack
        each, is_complete = waiting.pop()
        if is_complete:
            found.append(each)
        elif each not in begun:
            begun.add(each)
            outer = _first(tx, each)
            if len(begun) > most or not (outer is not each or may_be_run(each)):
                raise NotThisWay()
            waiting.append((each, True))
            inputs = each.all_input_nodes if outer is each else [outer]
            if sizes_apart and (_sizes_alone(each) is not None or random_forms.is_drawn(each)):
                inputs = []
            waiting.extend((before, False) for before in inputs)
    return found


def _with_conditions(tx: compat.Tracer, nodes: list[Node]) -> list[Node]:
    """Return nodes in the order of the graph, with what decides what is drawn before them.

    Raises:
        Refusal: what is drawn depends on more than forms of tensors and conditions of branches.
    """
    graph, modules, found = tx.output.root_tracer.graph, tx.output.nn_modules, set(nodes)
    if random_draws.seeds_torch(tx.output):
        raise NotThisWay()
    for node in _up_to_draws(graph, found):
        if is_of_functorch(node) or node.target in AUTOCAST:
            raise NotThisWay()
        if random_forms.draws(node, modules) and random_forms.is_choice(node):
            predicate: Any = node.args[0]
            found.update(
                behind(tx, predicate, _may_be_run_with_draws, _OPERATIONS, sizes_apart=True)
            )
    if any(each.graph is not graph for each in found):
        raise NotThisWay()
    return [each for each in graph.nodes if each in found]


def _with_draws(tx: compat.Tracer, nodes: list[Node]) -> list[Node]:
    """Return nodes in the order of the graph, with all that is drawn before the last of them."""
    graph, modules, found = tx.output.root_tracer.graph, tx.output.nn_modules, set(nodes)
    found.update(each for each in _up_to_draws(graph, found) if random_forms.draws(each, modules))
    return [each for each in graph.nodes if each in found]


def _up_to_draws(graph: Graph, nodes: Collection[Node]) -> list[Node]:
    """Return the nodes of a graph up to the last of some that is random."""
    in_order = list(graph.nodes)
    while in_order and not (in_order[-1] in nodes and random_forms.is_drawn(in_order[-1])):
        in_order.pop()
    return in_order


def _cut_out(
    tx: compat.Tracer,
    nodes: list[Node],
    wanted: Node,
    scope: Scope,
    *,
    writes: bool,
    written: Sequence[Node],
) -> ProgramSlice:
    """Return the calls of nodes, inputs first, one of which is what is wanted.

    ``scope`` is that of the call being traced. ``writes`` says whether some change the result of
    another, ``written`` are the inputs of the graph that it has changed so far. Of such an input
    among the nodes the calls change a copy.

    Raises:
        Refusal: an input of the graph has no place where it is found at another call.
    """
    places: dict[Node, int] = {}
    steps: list[Step] = []
    state: int | None = None
    modules = tx.output.nn_modules
    given: dict[Node, int] = {}
    for node in nodes:
        outer = _first(tx, node)
        if outer is not node:
            places[node] = places[outer]
            continue
        if node.op == "placeholder":
            steps.extend(_chain(node, scope, len(steps)))
            given[node] = len(steps) - 1
            if node in written:
                steps.append(Operation(copied, (Result(given[node]),), {}))
        elif random_forms.draws(node, modules):
            if state is None:
                steps.append(Start())
                state = len(steps) - 1
            steps.append(random_forms.step_of(node, places, state, modules))
            state = len(steps) - 1
            if random_forms.is_kept(node):
                steps.append(Operation(numbers_of, (Result(state),), {}))
        else:
            steps.append(_operation(node, places))
        places[node] = len(steps) - 1
    for node in written:
        if node not in given:
            steps.extend(_chain(node, scope, len(steps)))
            given[node] = len(steps) - 1
    apart = _apart(given, [each for each in given if storages([each])], written)
    return ProgramSlice(tuple(steps), places[wanted], writes, apart)


def _apart(
    given: Mapping[Node, int], read: Sequence[Node], written: Sequence[Node]
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Return which inputs must not share memory: those that are written with any other one."""
    rest = tuple(given[each] for each in read if each not in written)
    found = [(rest, tuple(given[each] for each in written))]
    found += [
        ((given[each],), tuple(given[other] for other in written[:place]))
        for place, each in enumerate(written)
    ]
    return tuple(each for each in found if each[0] and each[1])


def _chain(node: Node, scope: Scope, place: int) -> list[Step]:
    """Return an input of the graph behind what it is read of, which begins at a place.

    Raises:
        Refusal: it is not found at another call, or reading it may do something.
    """
    kind: type = float
    source = graph_inputs.fraction_of(node)
    if source is None:
        given = graph_inputs.source_of(node)
        if given is None or type(given[1]) not in (*_PLAIN, *_SYMBOLIC):
            raise NotThisWay()
        if (drawn := graph_inputs.place_drawn(node)) is not None:
            return [host_draws.given_by(drawn)]
        source, kind = given[0], type(given[1]) if type(given[1]) in _PLAIN else int
    *holders, last = graph_inputs.expressions_of(source)
    if last.startswith(f"L[{NUMBERS!r}]"):  # of an earlier slice
        holders = []
    found: list[Step] = []
    holder = None
    for each in holders:
        try:
            value = scope.value(each)
        except Exception as error:
            raise NotThisWay() from error
        if not _is_plain_holder(type(value)):
            raise NotThisWay()
        found.append(Input(each, type(value), holder))
        holder = place + len(found) - 1
    found.append(Input(last, kind, holder))
    if kind is float:
        found.append(_as_tensor(place + len(found) - 1))
    return found


def _as_tensor(place: int) -> Operation:
    """Return the step that makes a fraction what a graph gets for it."""
    named = {"dtype": torch.float64, "device": "cpu"}
    kind = {name: Constant.of(each) for name, each in named.items()}
    return Operation(torch.tensor, (Result(place),), kind)


def _is_plain_holder(kind: type) -> bool:
    """Return whether nothing but reading is done where an object is asked for items, attributes.

    Properties are no matter: Dynamo inlines them, so that no input of a graph is named by one.
    """
    if kind in _CONTAINERS or issubclass(kind, torch.Tensor):
        return kind in (*_CONTAINERS, *_PLAIN)
    own = {name: getattr(kind, name, None) for name in ("__getattr__", "__getattribute__")}
    plain = (*_PLAIN_READS, torch.nn.Module.__getattr__)
    items = getattr(kind, "__getitem__", None)  # modules in a list are found by their numbers
    is_of_modules = getattr(items, "__module__", None) == torch.nn.ModuleList.__module__
    is_known = items is None or items is tuple.__getitem__ or is_of_modules
    return is_known and all(each in plain for each in own.values())


_PLAIN_READS: Final = (None, object.__getattribute__, tuple.__getattribute__)
_CONTAINERS: Final = (list, tuple, dict, OrderedDict, torch.Size, ModuleType, FunctionType)


def _operation(node: Node, places: Mapping[Node, int]) -> Operation:
    def named(given: Any) -> Any:
        if isinstance(given, Node):
            return Result(places[given])
        if isinstance(given, (torch.Tensor, *_SYMBOLIC)):
            raise NotThisWay()
        return Constant.of(given)

    if (sizes := _sizes_alone(node)) is not None:
        example = node.meta["example_value"]
        number = node.args[1] if node.target is torch.full_like else _LIKE[node.target]
        kind = {"dtype": named(example.dtype), "device": named(example.device)}
        return Operation(torch.full, (named(sizes), named(number)), kind)
    return Operation(
        node.target, map_aggregate(node.args, named), map_aggregate(node.kwargs, named)
    )


#: Elements of a tensor on the way to a number.
_SMALL: Final = 2**18

_WIDE: Final = (torch.float32, torch.float64)


def is_small(example: Any) -> bool:
    """Return whether a value is no weight, and as precise in front of the graph as in it."""
    if isinstance(example, (int, float, torch.SymInt, torch.SymBool, torch.SymFloat)):
        return True
    if not isinstance(example, torch.Tensor) or example.layout is not torch.strided:
        return False
    if example.requires_grad or example.is_complex() or example.is_quantized:
        return False
    is_precise = not example.is_floating_point() or example.dtype in _WIDE
    count = shape_env.hint_of(example.numel())  # none of a size that the data say
    return is_precise and (count is None or count <= _SMALL)


def slice_behind(tx: compat.Tracer, wanted: Node, *, may_draw: bool = False) -> ProgramSlice:
    """Return what is behind a node.

    ``may_draw`` says whether it may be random: the graph then draws again what the slice has drawn.

    Raises:
        Refusal: it cannot be run on its own.
    """
    return _slice_behind(tx, wanted, _may_be_run_with_draws if may_draw else _may_be_run)


def _slice_behind(
    tx: compat.Tracer, wanted: Node, may_be_run: Callable[[Node], bool]
) -> ProgramSlice:
    nodes = behind(tx, wanted, may_be_run, _OPERATIONS, sizes_apart=True)
    is_random = any(map(random_forms.is_drawn, nodes))
    if is_random:
        nodes = _with_conditions(tx, nodes)
    written = _inputs_written(tx)
    writes = is_written(tx, nodes)
    if writes:
        nodes = _with_writes(tx, nodes)
    if writes and is_random:
        raise NotThisWay()
    if is_random:
        nodes = _with_draws(tx, nodes)
    return _cut_out(tx, nodes, wanted, scope_of(tx), writes=writes, written=written)


def slice_of_draws(tx: compat.Tracer, wanted: Node) -> ProgramSlice:
    """Return what is behind a node, which may be what Python and numpy draw before the graph.

    Raises:
        Refusal: it cannot be run on its own.
    """
    return _slice_behind(tx, wanted, _may_be_run_with_host_draws)


def are_whole(tx: compat.Tracer, wanted: Node) -> bool:
    """Return whether what is behind a node are host draws and whole numbers of the call alone.

    A back end may round other numbers in its own way.
    """
    nodes = behind(tx, wanted, lambda _: True, _OPERATIONS)
    given = [each for each in nodes if each.op == "placeholder" and _first(tx, each) is each]
    return all(
        graph_inputs.place_drawn(each) is not None
        or isinstance(each.meta.get("example_value"), torch.SymInt)
        for each in given
    )


def scope_of(tx: compat.Tracer) -> Scope:
    """Return the variables of the call being traced."""
    return Scope(dict(tx.output.local_scope), tx.output.global_scope)


def _inputs_written(tx: compat.Tracer) -> list[Node]:
    """Return the inputs that the graph may have written to so far.

    At another call others may share their memory.

    Raises:
        Refusal: it has also set something by which other operations differ.
    """
    graph = tx.output.root_tracer.graph
    inputs = [each for each in graph.nodes if each.op == "placeholder" and storages([each])]
    memory, written = storages(inputs), set[int]()
    for each in graph.nodes:
        if sets_default(each):
            raise NotThisWay()
        written |= memory_written_by(tx, each, memory)
    return [each for each in inputs if not written.isdisjoint(storages([each]))]


def _with_writes(tx: compat.Tracer, nodes: list[Node]) -> list[Node]:
    """Return nodes with those that write to what they give, in the order of the graph.

    Raises:
        Refusal: they cannot be run on their own.
    """
    graph, found = tx.output.root_tracer.graph, dict.fromkeys(nodes)
    if any(each.graph is not graph for each in nodes):
        raise NotThisWay()
    is_complete = False
    while not is_complete:
        is_complete, memory = True, storages(found)
        for each in graph.nodes:
            if each not in found and memory_written_by(tx, each, memory):
                found |= dict.fromkeys(behind(tx, each, _may_be_run, _OPERATIONS, sizes_apart=True))
                is_complete = False
    return [each for each in graph.nodes if each in found]


def _may_be_run(node: Node) -> bool:
    """Return whether a node is given to the call, or computes something small."""
    if node.op == "placeholder":
        if graph_inputs.place_drawn(node) is not None:
            return False
        has_place = graph_inputs.source_of(node) or graph_inputs.fraction_of(node)
        return all(map(is_small, parts_of(node))) and has_place is not None
    is_call = node.op in ("call_function", "call_method") and is_of_torch(node.target)
    if type(node.target).__module__.startswith("torch._dynamo"):
        return False  # an object that is made for each trace
    gives_nothing = node.target is operator.setitem
    return (
        is_call
        and not random_draws.may_draw(node)
        and (gives_nothing or all(map(is_small, parts_of(node))))
    )


def _may_be_run_with_host_draws(node: Node) -> bool:
    if node.op == "placeholder":
        return graph_inputs.place_drawn(node) is not None or _may_be_run(node)
    is_of_numpy = is_of_arrays(node.target) or str(node.target).startswith("bcmend.numpy.")
    return (is_of_numpy and all(map(is_small, parts_of(node)))) or _may_be_run(node)


def _may_be_run_with_draws(node: Node) -> bool:
    if random_forms.is_drawn(node):
        return not isinstance(attempt(lambda: random_forms.is_kept(node)), Refusal)
    return _may_be_run(node)
