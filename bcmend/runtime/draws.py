"""Random numbers of an arm, drawn before the arm.

The backward of ``torch.cond`` runs an arm again and would draw other numbers than its forward, and
running both arms draws those of the side that was not taken. So where gradients flow, what an arm
draws is taken out of it: each operation that draws is written as the ATen operators that it
consists of, and each operator that fills a tensor with random numbers, which never depend on what
the tensor held, becomes an input of the arm. A ``torch.cond`` without differentiable operands draws
them, those of the side that is taken and in the order of eager execution. What is left of the arm
draws nothing and is lowered as any other.

Reads traced arms; rewrites their graphs, and adds the drawing to the main graph. Relies on
``make_fx`` calling ATen as eager execution does, and on ``Node.meta["example_value"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.fx.node import map_aggregate, map_arg
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.operations import (
    AUTOCAST,
    OF_GENERATORS,
    draws,
    hazards_of,
    is_in_place,
    run,
    stand_in,
    unjudged,
)

__all__ = ["Stays", "decomposed", "drawn_before", "expand", "require_one_run", "take_out"]

#: Operators that overwrite the whole of their first argument.
_OVERWRITING: Final = frozenset(
    "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_".split()
)
#: Operators that read only the size, strides, dtype and device of their first argument.
_ALIKE: Final = frozenset(["bernoulli", "rand_like", "randint_like", "randn_like"])


_DROPOUTS: Final = (torch.nn.functional.dropout, torch.dropout)


class Stays(Exception):
    """Something that draws has to stay in its arm."""


@dataclass(frozen=True, slots=True)
class Form:
    """A tensor of which only the form matters."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, example: torch.Tensor) -> Form:
        return cls(tuple(example.size()), tuple(example.stride()), example.dtype, example.device)

    @property
    def order(self) -> list[int]:
        """The dimensions, from the one with the largest stride in memory to that with the least."""
        return sorted(range(len(self.size)), key=lambda each: -self.stride[each])


@dataclass(frozen=True, slots=True)
class Draw:
    """One operator taken out of an arm, with a ``Form`` in place of each tensor.

    ``inner`` stands for its result in the arm's graph; ``symbols`` maps the symbols of the sizes
    to what holds them in the main graph.
    """

    operator: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    result: Form
    inner: Node
    symbols: dict[Any, Proxy]


def take_out(tx: Any, arms: Sequence[ArmTrace]) -> str:
    """Take what they draw out of ``arms``, whose ``draws`` it becomes.

    Returns:
        What cannot be taken out; the arms are as they were then. Empty where all was.
    """
    try:
        require_one_run(tx)
        planned = [list(_plan(tx, arm)) for arm in arms]
    except Stays as reason:
        return str(reason)
    for arm, steps in zip(arms, planned, strict=True):
        for node, module in steps:
            arm.draws.extend(_taken_out(tx, node, module))
    return ""


def _taken_out(tx: Any, node: Node, module: GraphModule) -> list[Draw]:
    """Write ``node`` as its ATen operators, with inputs of the arm in place of those that draw."""
    graph, found = node.graph, []

    def drawn(each: Node, arguments: tuple[Any, ...]) -> Node:
        numbers = graph.placeholder("drawn")
        numbers.meta["example_value"] = each.meta["val"]
        found.append(replace(_form_of_draw(tx, each), inner=numbers))
        return _with_drawn(graph, each, numbers, arguments)

    expand(node, module, drawn)
    return found


def require_one_run(tx: Any) -> None:
    """Raise ``Stays`` within operators that may run what they hold again, as checkpoints do."""
    tracer = tx.output.current_tracer
    while tracer.parent is not None:
        name = getattr(tracer.source_target, "__name__", "")
        if name != "bcmend_branch":
            raise Stays(f"inside {name or 'another operator'}")
        tracer = tracer.parent


def _plan(tx: Any, arm: ArmTrace) -> Iterator[tuple[Node, GraphModule]]:
    """Yield each node that draws with the ATen operators that it consists of."""
    partial = ""
    for node in arm.graph.nodes:
        hazards = hazards_of([node], tx.fake_mode, tx.output.nn_modules)
        if hazards.random:
            if partial:  # it would draw although the arm has failed before it in eager execution
                raise Stays(f"{hazards.random} after {partial}, which may fail")
            if hazards.random in OF_GENERATORS:
                raise Stays("a draw in the midst of what only the data tell")
            module = decomposed(node, tx.fake_mode, hazards.random)
            for each in module.graph.nodes:
                if draws(each):
                    _form_of_draw(tx, each)
            yield node, module
        partial = partial or hazards.partial


def decomposed(node: Node, fake_mode: Any, name: str) -> GraphModule:
    """Return the ATen operators behind ``node``; its arguments in order are the placeholders."""
    if any(each.target in AUTOCAST for each in node.graph.nodes):
        raise Stays(f"{name} in an arm that enters autocast")
    in_place = is_in_place(node)
    inputs = node.all_input_nodes
    is_one = not isinstance(node.target, torch._ops.HigherOrderOperator)
    if node.op not in ("call_function", "call_method") or not is_one:
        raise Stays(name)

    def call(*values: Any) -> Any:
        known = dict(zip(inputs, values, strict=True))
        arguments, keywords = (
            map_arg(each, known.__getitem__) for each in (node.args, node.kwargs)
        )
        return _run(node, arguments, keywords)

    try:
        with fake_mode, fake_mode.shape_env.ignore_fresh_unbacked_symbols():
            examples = []
            for each in inputs:
                example = each.meta["example_value"]
                examples.append(stand_in(example))
                if isinstance(example, torch.Tensor) and not in_place:
                    examples[-1].requires_grad_(example.requires_grad)
            return make_fx(call)(*examples)
    except Exception:
        raise Stays(name) from None


def _run(node: Node, arguments: Any, keywords: Any) -> Any:
    """Make the call of ``node``; do what dropout does without asking whether there is anything.

    Only the data tell that of a tensor of a size that they decide. Of nothing, nothing is drawn.
    """
    if node.target in _DROPOUTS and free_unbacked_symbols(arguments[0]):
        return _dropout(*arguments, **keywords)
    return run(node, arguments, keywords)


def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if inplace or not training or not 0 < p < 1:
        raise Stays("dropout in place, or of all or nothing")
    return input * torch.empty_like(input).bernoulli_(1 - p).div_(1 - p)


def _form_of_draw(tx: Any, node: Node) -> Draw:
    """Describe what an ATen node draws. Raises ``Stays`` where that may depend on data."""
    operator = node.target
    assert isinstance(operator, torch._ops.OpOverload)
    name = operator.overloadpacket.__name__
    symbols: dict[Any, Proxy] = {}

    def value(argument: Any) -> Any:
        if isinstance(argument, torch.Generator):
            raise Stays(f"{name} with a generator")
        if not isinstance(argument, Node):
            return argument
        example = argument.meta.get("val")
        if isinstance(example, torch.SymInt):
            symbols.update(_held(tx, example))
            return example
        if argument is not node.args[0] or not _reads_only_the_form(operator):
            raise Stays(f"{name} from data")
        return _form(tx, name, example, symbols)

    arguments, keywords = (map_aggregate(each, value) for each in (node.args, node.kwargs))
    result = _form(tx, name, node.meta.get("val"), symbols)
    return Draw(operator, arguments, keywords, result, node, symbols)  # type: ignore[arg-type]


def _form(tx: Any, name: str, example: Any, symbols: dict[Any, Proxy]) -> Form:
    """Return the form of what an operator reads or returns; add the symbols of its sizes."""
    if not isinstance(example, torch.Tensor):
        raise Stays(name)
    if not is_non_overlapping_and_dense_or_false(example):
        raise Stays(f"{name} into a part of a tensor")
    found = Form.of(example)
    for number in (*found.size, *found.stride):
        symbols.update(_held(tx, number))
    return found


def _reads_only_the_form(operator: torch._ops.OpOverload) -> bool:
    name = operator.overloadpacket.__name__
    if name == "bernoulli":
        return operator is torch.ops.aten.bernoulli.p
    return name in _OVERWRITING or name in _ALIKE


def _held(tx: Any, number: Any) -> dict[Any, Proxy]:
    """Return what holds the symbols of a size in the graphs around the arm."""
    found = {}
    for symbol in free_symbols(number):
        tracer = tx.output.current_tracer
        while tracer is not None and symbol not in tracer.bound_symbols:
            tracer = tracer.parent
        if tracer is None:
            raise Stays("a size computed inside the arm")
        held = tracer.bound_symbols[symbol]
        found[symbol] = held if isinstance(held, Proxy) else held()
    return found


def expand(node: Node, module: GraphModule, drawn: Callable[[Node, tuple[Any, ...]], Node]) -> None:
    """Write ``node`` as its ATen operators.

    ``drawn`` writes those that draw, given them and what stands for their arguments.
    """
    graph = node.graph
    known: dict[Node, Node] = {}
    inputs = iter(node.all_input_nodes)
    entered = _leave_autocast(node, module)
    for each in module.graph.nodes:
        if each.op == "placeholder":
            known[each] = next(inputs)
            continue
        if each.op == "output":
            result = map_arg(each.args[0], known.__getitem__)
            break
        with graph.inserting_before(node):
            if draws(each):
                known[each] = drawn(each, map_arg(each.args, known.__getitem__))
            else:
                known[each] = graph.node_copy(each, known.__getitem__)
            known[each].meta = {**unjudged(node.meta), "example_value": each.meta["val"]}
    with graph.inserting_before(node):
        for each in reversed(entered):
            graph.call_function(_exit_autocast, (each,))
    node.op, node.kwargs, node.meta = "call_function", {}, unjudged(node.meta)
    if isinstance(result, Node):
        node.target, node.args = torch.ops.aten.alias.default, (result,)
    else:
        node.target, node.args = _packed, tuple(result)


def _leave_autocast(node: Node, module: GraphModule) -> list[Node]:
    """Switch autocast off before ``node``: below ATen operators its casts are already made."""
    values = [each.meta.get("val") for each in module.graph.nodes]
    kinds = {each.device.type for each in values if isinstance(each, torch.Tensor)}
    cached = torch.is_autocast_cache_enabled()
    with node.graph.inserting_before(node):
        return [
            node.graph.call_function(
                _enter_autocast, (kind, torch.get_autocast_dtype(kind), False, cached)
            )
            for kind in sorted(kinds)
            if torch.is_autocast_enabled(kind)
        ]


def _with_drawn(graph: Graph, node: Node, drawn: Node, arguments: tuple[Any, ...]) -> Node:
    """Return the numbers drawn as a tensor of the arm's own, which the arm may change."""
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    if name in _OVERWRITING:
        return graph.call_function(torch.ops.aten.copy_.default, (arguments[0], drawn))
    return graph.call_function(torch.ops.aten.clone.default, (drawn,))


def _packed(*items: Any) -> tuple[Any, ...]:
    return items


def drawn_before(
    tx: Any, predicate: TensorVariable, arms: tuple[ArmTrace, ArmTrace]
) -> tuple[ArmTrace, ArmTrace]:
    """Draw in the main graph what was taken out of the arms; return them with it as inputs."""
    drawn = [draw for arm in arms for draw in arm.draws]
    if not drawn:
        return arms
    symbols = {symbol: proxy for draw in drawn for symbol, proxy in draw.symbols.items()}
    names = []
    for suffix, arm in zip(("true", "false"), arms, strict=True):
        module = GraphModule({}, _drawing(drawn, arm.draws, symbols))
        names.append(tx.output.install_subgraph(f"draw_{suffix}", module))
    attributes = [tx.output.create_proxy("get_attr", name, (), {}) for name in names]
    operands = (predicate.as_proxy(), *attributes, tuple(symbols.values()))
    cond = tx.output.create_proxy("call_function", torch.ops.higher_order.cond, operands, {})
    results = wrap_fx_proxy(tx, cond)
    inputs: dict[Node, Proxy] = {
        draw.inner: result.as_proxy()
        for draw, result in zip(drawn, results.items, strict=True)  # type: ignore[attr-defined]
    }
    then_arm, else_arm = (
        replace(
            arm,
            lifted={**arm.lifted, **{inputs[each.inner]: Proxy(each.inner) for each in arm.draws}},
        )
        for arm in arms
    )
    return then_arm, else_arm


def _drawing(drawn: Sequence[Draw], taken: Sequence[Draw], symbols: dict[Any, Proxy]) -> Graph:
    """Return a graph over the sizes that makes the draws of ``taken``, and zeros for the others."""
    graph = Graph()
    numbers = {}
    for symbol, outer in symbols.items():
        placeholder = graph.placeholder(outer.node.name)
        placeholder.meta.update(outer.node.meta)
        numbers[symbol] = Proxy(placeholder)

    def bernoulli(form: Form, *arguments: Any) -> Node:
        order = form.order
        size = tuple(inside(form.size[each]) for each in order)
        kind: dict[str, Any] = {"dtype": form.dtype, "device": form.device}
        filled = graph.call_function(torch.empty, (size,), kind)
        drawn = graph.call_function(torch.ops.aten.bernoulli_.float, (filled, *arguments))
        back = tuple(order.index(each) for each in range(len(order)))
        return graph.call_method("permute", (drawn, back))

    def inside(value: Any) -> Any:
        if isinstance(value, Form):
            size, stride = (tuple(map(inside, each)) for each in (value.size, value.stride))
            form: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
            return graph.call_function(torch.empty_strided, (size, stride), form)
        if isinstance(value, torch.SymInt):
            found = sympy_interp(PythonReferenceAnalysis, numbers, value.node.expr)
            return found.node if isinstance(found, Proxy) else found
        return value

    results = []
    for draw in drawn:
        if draw.operator is torch.ops.aten.bernoulli_.float and any(draw is each for each in taken):
            results.append(bernoulli(*draw.arguments))
        elif any(draw is each for each in taken):
            arguments, keywords = (
                map_aggregate(each, inside) for each in (draw.arguments, draw.keywords)
            )
            results.append(graph.call_function(draw.operator, arguments, keywords))  # type: ignore[arg-type]
        else:
            results.append(graph.call_method("zero_", (inside(draw.result),)))
    graph.output(tuple(results))
    return graph
