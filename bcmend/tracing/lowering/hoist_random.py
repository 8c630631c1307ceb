"""Random operators of an arm, moved in front of the arm.

The backward of ``torch.cond`` runs an arm again and would draw other numbers, and running both arms
draws those of the arm that is not taken. So where gradients flow, each ATen operator of an arm that
fills a tensor with random numbers becomes an input of the arm. A ``torch.cond`` without
differentiable operands draws them, for the taken arm and in the order of eager execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import torch
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.node import map_aggregate, map_arg

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph, shape_env
from bcmend.dynamo.models import graph_inputs
from bcmend.dynamo.values import TensorValue, fake_mode_of
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.effects.hazards import AUTOCAST, hazards_of, unjudged
from bcmend.tracing.effects.operator_runs import (
    CALLERS,
    OperatorCall,
    call_target,
    is_in_place,
    node_draws,
    stand_in,
)
from bcmend.tracing.lowering.arm_graphs import installed, with_example
from bcmend.tracing.search import strict
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation.arms import ArmTrace

_ATEN: Final = torch.ops.aten
#: Operators that overwrite the whole of their first argument.
_OVERWRITING: Final = frozenset(
    getattr(_ATEN, f"{name}_")
    for name in "bernoulli cauchy exponential geometric log_normal normal random uniform".split()
)
#: Operators that read only the size, strides, dtype and device of their first argument.
_ALIKE: Final = frozenset([_ATEN.rand_like, _ATEN.randint_like, _ATEN.randn_like])
#: Operators that ask for certain strides, and what does the same with any: a back end that takes
#: other operators apart gives them other ones.
_WITHOUT_STRIDES: Final[dict[Any, Any]] = {
    _ATEN.view.default: _ATEN.reshape.default,
    _ATEN._unsafe_view.default: _ATEN.reshape.default,
}
_DROPOUTS: Final = (torch.nn.functional.dropout, torch.dropout)


@dataclass(frozen=True, slots=True)
class Draw:
    """One operator taken out of an arm; its tensors are fake ones, of which the form is read.

    ``inner`` is the input of the arm's graph for its result; ``symbols`` maps the symbols of the
    sizes to proxies of the main graph.
    """

    operator: compat.OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    result: torch.Tensor
    inner: Node
    symbols: dict[Any, Proxy]


def move_draws_before(tx: compat.Tracer, arms: Sequence[ArmTrace]) -> None:
    """Move the random operators of ``arms`` to ``node_draws``.

    Raises ``Refusal``, with the arms unchanged, where that is not possible.
    """
    require_one_run(tx)
    planned = [list(_plan(tx, arm)) for arm in arms]
    for arm, steps in zip(arms, planned, strict=True):
        for node, module in steps:
            arm.draws.extend(_taken_out(tx, node, module))


def _taken_out(tx: compat.Tracer, node: Node, module: GraphModule) -> list[Draw]:
    """Write ``node`` as its ATen operators, with inputs of the arm for those that draw."""
    graph, found = node.graph, []

    def drawn(each: Node, arguments: tuple[Any, ...]) -> Node:
        numbers = with_example(graph.placeholder("drawn"), each.meta["val"])
        draw = replace(_form_of_draw(tx, each), inner=numbers)
        found.append(draw)
        if draw.operator.overloadpacket in _OVERWRITING:
            return graph.call_function(torch.ops.aten.copy_.default, (arguments[0], numbers))
        # The arm may change it.
        return graph.call_function(torch.ops.aten.clone.default, (numbers,))

    expand(node, module, drawn)
    return found


def require_one_run(tx: compat.Tracer) -> None:
    """Raise ``Refusal`` within operators that may run what they hold again, as checkpoints do."""
    for name in fx_graph.operators_around(tx):
        if name != "bcmend_branch":
            raise Refusal("random-under-gradients", f"inside {name or 'another operator'}")


def _plan(tx: compat.Tracer, arm: ArmTrace) -> Iterator[tuple[Node, GraphModule]]:
    """Yield each node that draws, with its ATen operators."""
    partial = ""
    for node in arm.graph.nodes:
        hazards = hazards_of([node], fake_mode_of(tx), tx.output.nn_modules)
        if name := hazards.random:
            if partial:  # in eager the arm may fail before it draws
                raise Refusal("random-under-gradients", f"{name} after {partial}, which may fail")
            if effects.facts_of_target(node.target).handles_generator:
                raise Refusal("random-under-gradients", "a draw of a data-dependent size")
            module = decomposed(node, fake_mode_of(tx), name)
            for each in module.graph.nodes:
                if node_draws(each):
                    _form_of_draw(tx, each)
            yield node, module
        partial = partial or hazards.partial


def decomposed(node: Node, fake_mode: Any, name: str) -> GraphModule:
    """Return the ATen operators behind ``node``, with its input nodes as placeholders."""
    if any(each.target in AUTOCAST for each in node.graph.nodes):
        raise Refusal("random-under-gradients", f"{name} in an arm that enters autocast")
    inputs = node.all_input_nodes
    is_one = not isinstance(node.target, compat.HigherOrderOperator)
    if node.op not in ("call_function", "call_method") or not is_one:
        raise Refusal("random-under-gradients", name)
    if compat.peek_interpreter_stack() is not None:
        raise Refusal("random-under-gradients", f"{name} in a transform of torch.func")

    def call(*values: Any) -> Any:
        known: Any = dict(zip(inputs, values, strict=True)).__getitem__
        arguments, keywords = cast(Any, map_arg((node.args, node.kwargs), known))
        if node.target in _DROPOUTS and compat.free_unbacked_symbols(arguments[0]):
            return _dropout(*arguments, **keywords)
        return call_target(node.target, arguments, keywords)

    try:
        with fake_mode, fake_mode.shape_env.ignore_fresh_unbacked_symbols():
            examples = []
            for each in inputs:
                example = each.meta["example_value"]
                examples.append(stand_in(example))
                if isinstance(example, torch.Tensor) and not is_in_place(node):
                    examples[-1].requires_grad_(example.requires_grad)
            return compat.make_fx(call)(*examples)
    except Refusal:
        raise
    # ``make_fx`` cannot trace the operation: a test of data inside it, a custom kernel without a
    # form for fake tensors, an operand without strides. The draws of this arm stay where they are.
    except Exception as error:
        strict.require_foreign(error, *CALLERS, _dropout)
        raise Refusal("random-under-gradients", name) from None


def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """Do what dropout does, without its test for an empty tensor: the size is unbacked."""
    if inplace or not training or not 0 < p < 1:
        raise Refusal("random-under-gradients", "dropout in place, or of all or nothing")
    return input * torch.empty_like(input).bernoulli_(1 - p).div_(1 - p)


def _form_of_draw(tx: compat.Tracer, node: Node) -> Draw:
    """Describe what an ATen node draws. Raises ``Refusal`` where that may depend on data."""
    operator = node.target
    assert isinstance(operator, compat.OpOverload)
    name = operator.overloadpacket.__name__
    symbols: dict[Any, Proxy] = {}

    def value(argument: Any) -> Any:
        if isinstance(argument, torch.Generator):
            raise Refusal("random-under-gradients", f"{name} with a generator")
        if not isinstance(argument, Node):
            return argument
        example = argument.meta.get("val")
        if isinstance(example, torch.SymInt):
            symbols.update(_held(tx, example))
            return example
        if argument is not node.args[0] or not _reads_only_the_form(operator):
            raise Refusal("random-under-gradients", f"{name} from data")
        return _with_form(tx, name, example, symbols)

    arguments, keywords = map_aggregate((node.args, node.kwargs), value)
    result = _with_form(tx, name, node.meta.get("val"), symbols)
    return Draw(operator, arguments, keywords, result, node, symbols)


def _with_form(
    tx: compat.Tracer, name: str, example: Any, symbols: dict[Any, Proxy]
) -> torch.Tensor:
    """Return an operand or result; add the symbols of its sizes to ``symbols``."""
    if not isinstance(example, torch.Tensor):
        raise Refusal("random-under-gradients", name)
    if not compat.is_non_overlapping_and_dense_or_false(example):
        raise Refusal("random-under-gradients", f"{name} into a part of a tensor")
    for number in (*example.size(), *example.stride()):
        symbols.update(_held(tx, number))
    return example


def _reads_only_the_form(operator: compat.OpOverload) -> bool:
    packet = operator.overloadpacket
    return operator is _ATEN.bernoulli.p or packet in _OVERWRITING or packet in _ALIKE


def _held(tx: compat.Tracer, number: Any) -> dict[Any, Proxy]:
    """Return the proxies, in graphs around the arm, of the symbols of a size."""
    found = {}
    for symbol in compat.free_symbols(number):
        bound = (each.bound_symbols for each in fx_graph.tracers(tx))
        held = next((each[symbol] for each in bound if symbol in each), None)
        if held is None:
            raise Refusal("random-under-gradients", "a size computed inside the arm")
        found[symbol] = held if isinstance(held, Proxy) else held()
    return found


def expand(node: Node, module: GraphModule, drawn: Callable[[Node, tuple[Any, ...]], Node]) -> None:
    """Write ``node`` as its ATen operators; ``drawn`` writes those that draw."""
    graph = node.graph
    *nodes, output = module.graph.nodes
    entered = _leave_autocast(node, module)
    known = dict(zip(nodes, node.all_input_nodes, strict=False))
    for each in nodes[len(known) :]:
        with graph.inserting_before(node):
            if node_draws(each):
                known[each] = drawn(each, map_arg(each.args, known.__getitem__))
            else:
                known[each] = graph.node_copy(each, known.__getitem__)
                known[each].target = _WITHOUT_STRIDES.get(each.target, each.target)
            known[each].meta = {**unjudged(node.meta), "example_value": each.meta["val"]}
    with graph.inserting_before(node):
        for each in reversed(entered):
            graph.call_function(compat._exit_autocast, (each,))
    result = map_arg(output.args[0], known.__getitem__)
    node.op, node.kwargs, node.meta = "call_function", {}, unjudged(node.meta)
    if isinstance(result, Node):
        node.target, node.args = torch.ops.aten.alias.default, (result,)
    else:
        node.target, node.args = _packed, tuple(result)


def _leave_autocast(node: Node, module: GraphModule) -> list[Node]:
    """Switch autocast off before ``node``, whose ATen operators already contain the casts."""
    values = [each.meta.get("val") for each in module.graph.nodes]
    kinds = {each.device.type for each in values if isinstance(each, torch.Tensor)}
    enabled = [kind for kind in sorted(kinds) if torch.is_autocast_enabled(kind)]
    cached = torch.is_autocast_cache_enabled()
    settings = [(kind, torch.get_autocast_dtype(kind), False, cached) for kind in enabled]
    with node.graph.inserting_before(node):
        return [node.graph.call_function(compat._enter_autocast, each) for each in settings]


def _packed(*items: Any) -> tuple[Any, ...]:
    return items


effects.declare(_packed, EffectFacts())


def drawn_before(
    tx: compat.Tracer, predicate: TensorValue, arms: tuple[ArmTrace, ArmTrace]
) -> tuple[ArmTrace, ArmTrace]:
    """Write ``node_draws`` into the main graph; return the arms with the results as inputs."""
    drawn = [draw for arm in arms for draw in arm.draws]
    if not drawn:
        return arms
    symbols = {symbol: proxy for draw in drawn for symbol, proxy in draw.symbols.items()}
    graphs = [
        installed(tx, f"draw_{suffix}", _drawing(drawn, arm.draws, symbols))
        for suffix, arm in zip(("true", "false"), arms, strict=True)
    ]
    operands = (predicate.as_proxy(), *graphs, tuple(symbols.values()))
    cond = tx.output.create_proxy("call_function", torch.ops.higher_order.cond, operands, {})
    results = compat.wrap_fx_proxy(tx, cond)
    inputs: dict[Node, Proxy] = {
        draw.inner: result.as_proxy()
        for draw, result in zip(drawn, results.items, strict=True)  # type: ignore[attr-defined]
    }
    then_arm, else_arm = (
        replace(arm, lifted=arm.lifted | {inputs[x.inner]: Proxy(x.inner) for x in arm.draws})
        for arm in arms
    )
    return then_arm, else_arm


def _drawing(drawn: Sequence[Draw], taken: Sequence[Draw], symbols: dict[Any, Proxy]) -> Graph:
    """Return a graph over the sizes that runs ``taken``, with zeros for the rest of ``drawn``."""
    graph = Graph()
    numbers = {}
    for symbol, outer in symbols.items():
        placeholder = graph_inputs.placeholder_for(graph, outer.node.name, outer.node)
        numbers[symbol] = Proxy(placeholder)

    def bernoulli(call: OperatorCall) -> Node:
        form, *arguments = call.arguments
        order = sorted(range(form.dim()), key=lambda each: -form.stride()[each])
        size = tuple(inside(form.size(each)) for each in order)
        kind: dict[str, Any] = {"dtype": form.dtype, "device": form.device}
        filled = graph.call_function(torch.empty, (size,), kind)
        drawn = graph.call_function(torch.ops.aten.bernoulli_.float, (filled, *arguments))
        drawn.meta[meta_keys.DRAWS_AS] = call
        back = tuple(order.index(each) for each in range(len(order)))
        return graph.call_method("permute", (drawn, back))

    def inside(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            size, stride = (tuple(map(inside, each)) for each in (value.size(), value.stride()))
            form: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
            return graph.call_function(torch.empty_strided, (size, stride), form)
        if isinstance(value, torch.SymInt):
            found = shape_env.computed_of(numbers, value.node.expr)
            return found.node if isinstance(found, Proxy) else found
        return value

    def result(draw: Draw) -> Node:
        if not any(draw is each for each in taken):
            return graph.call_method("zero_", (inside(draw.result),))
        call = OperatorCall(draw.operator, draw.result, draw.arguments, draw.keywords)
        if draw.operator is torch.ops.aten.bernoulli_.float:
            return bernoulli(call)
        arguments, keywords = map_aggregate((draw.arguments, draw.keywords), inside)
        drawn = graph.call_function(draw.operator, arguments, keywords)
        drawn.meta[meta_keys.DRAWS_AS] = call
        return drawn

    graph.output(tuple(map(result, drawn)))
    return graph
