"""Numbers and truths that traced code takes out of tensors.

``x.item()``, ``float(x)``, ``torch.equal(x, y)`` and their kin give Python numbers, which end a
graph, or make it impossible. In code that is mended, while a call is captured whole, they become
symbolic numbers instead, so that a branch on one can be mended like a branch on a tensor. Beside
each number the graph keeps its tensor, for predicates to be computed from; whichever of the two
nobody reads is taken out of the graph again.

A symbolic number is a Python number wherever it can be seen. But torch may assume of one that sets
the size of a tensor what need not hold (that it is not 1, say). Unless the user asked for one graph
(``fullgraph=True``, where stock Dynamo does the same), a graph in which that happens is traced
again with breaks in their place.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node, Proxy
from torch.fx.experimental.symbolic_shapes import (
    ShapeEnv,
    free_symbols,
    free_unbacked_symbols,
)

from bcmend.names import BUFFER
from bcmend.runtime import (
    backoff,
    calls,
    failing_graphs,
    inline,
    known_tensors,
    per_trace,
    repeats,
    sizes,
)
from bcmend.runtime.entries import before_arms
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.unread import (
    COMPARISONS,
    KEPT,
    NEGATIONS,
    ORDERS,
    STEPS,
    close_over,
    drop_unread,
    is_item,
    symbols_of_form,
    symbols_taken,
)
from bcmend.runtime.watches import SiteChanged

__all__ = [
    "count_from",
    "counted",
    "hand_on",
    "has_tensor",
    "install",
    "integer_tensor",
    "is_taken",
    "may_take",
    "take",
    "tensor_behind",
    "tensor_of",
]

#: Of an integer and a fraction: what holds for the fraction holds for the integer below it.
_TIGHT_BELOW: Final = frozenset([operator.gt, operator.le])
_SAME_VALUE: Final = frozenset([(torch.sym_float, torch.float64), (torch.sym_int, torch.int64)])
#: Up to here every integer is a double, and a comparison with a double is exact.
_EXACT_IN_DOUBLE: Final = 2**53


# Taking numbers out


def may_take(tx: Any) -> bool:
    """Whether ``tx`` traces mended code in one piece."""
    if not _is_mended(tx):
        return False
    if tx.one_graph:
        return True
    root = tx.output.root_tx
    return bool(
        tx.error_on_graph_break
        and root.symbolic_locals.get(BUFFER) is not None
        and not backoff.state_of(root.f_code).leaves_numbers
    )


def _is_mended(tx: Any) -> bool:
    frame = tx
    while frame is not None:
        if BUFFER in frame.symbolic_locals:
            return True
        frame = getattr(frame, "parent", None)
    return False


def _begin(tx: Any) -> None:
    """Let this trace have numbers from tensors, and look at its graph when it is complete."""
    output = tx.output
    if getattr(output, "_bcmend_takes_numbers", False):
        return
    output._bcmend_takes_numbers = True
    repeats.note(tx)  # torch asserts in the graph what it is told of a number, in its own words
    environment, code = output.shape_env, output.root_tx.f_code
    asked_for = bool(tx.one_graph)
    if not asked_for:
        environment.settings = dataclasses.replace(
            environment.settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
        )
        backoff.state_of(code).takes_numbers = True

    def finish(module: GraphModule) -> None:
        sizes.complete(environment)
        assumes = _assumes(environment, module)
        if assumes and inline.writes(output):
            inline.must_wait(output)  # what it has written would be written again
        is_assumed = assumes and (not asked_for or sizes.has_assumed(environment))
        if (is_assumed and not failing_graphs.can_be_put_back(output)) or (
            not asked_for and _needs_gradients_of_unknown_sizes(module)
        ):
            backoff.state_of(code).leave_numbers()
            raise SiteChanged(restart_reason="bcmend: a number out of a tensor shapes another")
        if drop_unread(module.graph):
            module.recompile()

    output.register_finalizer_fns.append(finish)


def _allows_shapes(environment: Any) -> bool:
    """Whether an operation may give a tensor whose size only the data tell."""
    tx = sizes.being_traced()
    if tx is not None and tx.output.shape_env is environment and may_take(tx):
        _begin(tx)
    return bool(environment.settings.allow_dynamic_output_shape_ops)


def _needs_gradients_of_unknown_sizes(module: GraphModule) -> bool:
    """Whether gradients flow into tensors of sizes that only the data tell.

    Inductor compiles the backward of a graph when it is first run, and fails for most such graphs:
    too late to leave the numbers where they were.
    """
    graphs = [part.graph for part in module.modules() if isinstance(part, GraphModule)]
    nodes = [node for graph in graphs for node in graph.nodes]
    # Of a number in an argument Dynamo knows the value at this call; later stages do not.
    numbers = [node.meta.get("example_value") for node in nodes if node.target == "item"]
    taken = {
        symbol
        for each in numbers
        if isinstance(each, (torch.SymInt, torch.SymFloat))
        for symbol in free_symbols(each)
    }
    examples = (node.meta.get("example_value") for node in nodes)
    return any(
        isinstance(each, torch.Tensor)
        and each.requires_grad
        and (free_unbacked_symbols(each) or not taken.isdisjoint(free_symbols(each)))
        for each in examples
    )


def _may_assume(tx: Any) -> bool:
    """Whether what the graph asserts may fail: a boundary makes the call in plain Python then."""
    return may_take(tx) and BUFFER in tx.output.root_tx.symbolic_locals


def install() -> None:
    """Let operations have results whose sizes only the data tell, where numbers may be taken."""
    ShapeEnv.allow_dynamic_output_shape_ops = property(_allows_shapes)  # type: ignore[assignment]
    sizes.may_assume = _may_assume
    sizes.install()


def _assumes(environment: Any, module: GraphModule) -> bool:
    """Whether torch assumed something about a number that only the data can tell.

    What it says of other numbers, as of the turns of a loop that it keeps for the backward, is its
    own affair.
    """
    graphs = [part.graph for part in module.modules() if isinstance(part, GraphModule)]
    nodes = [node for graph in graphs for node in graph.nodes]
    asserted = {
        symbol
        for each in environment.deferred_runtime_asserts.values()
        for known in each
        for symbol in known.expr.free_symbols
    }
    if not asserted.isdisjoint(_given_by_the_data(nodes)):
        return True
    taken = {symbol for node in nodes if is_item(node) for symbol in symbols_taken(node)}
    return not taken.isdisjoint({each for node in nodes for each in symbols_of_form(node)})


def _symbols_as_taken(number: Any) -> set[Any]:
    """Return the symbols of a number as it was taken; torch may have concluded what it is."""
    taken = getattr(getattr(number, "node", None), "_expr", None)
    return set() if taken is None else set(free_unbacked_symbols(taken))


def _given_by_the_data(nodes: Iterable[Node]) -> set[Any]:
    """Return the numbers that operations of the program take out of tensors, or give as sizes."""
    known: set[Any] = set()
    found: set[Any] = set()
    for node in nodes:
        example = node.meta.get("example_value")
        symbols = (sizes.symbols_in(example) | _symbols_as_taken(example)) - known
        known |= symbols
        if not isinstance(node.target, HigherOrderOperator):
            found |= symbols
    return found


def take(tx: Any, variable: TensorVariable) -> VariableTracker | None:
    """Take the number out of a tensor of one element; ``None`` where Dynamo's own way is as good.

    The tensor is kept as it is now, whatever is written to it later.
    """
    proxy = variable.as_proxy()
    example = proxy.node.meta["example_value"]
    count = example.numel()
    if type(variable) is not TensorVariable or not isinstance(count, int) or count != 1:
        return None
    known = known_tensors.number_in(tx, variable)
    if known is not None:
        return constant(known)
    _begin(tx)
    kept = _kept(tx, variable, example)
    number = wrap_fx_proxy(tx, tx.output.create_proxy("call_method", "item", (proxy,), {}))
    if kept is not None and isinstance(number, SymNodeVariable):
        _kept_by_node(tx)[number.as_proxy().node] = kept
    assert isinstance(number, VariableTracker)
    return number


def _kept_by_node(tx: Any) -> dict[Node, TensorVariable]:
    return per_trace.kept(tx.output, "kept", dict)


def _kept(tx: Any, variable: TensorVariable, example: torch.Tensor) -> TensorVariable | None:
    """Copy a tensor in a type that has each of its values as Python has it; ``None`` if none."""
    dtype = _python_like(example)
    if dtype is None:
        return None
    if example.requires_grad:
        variable = _method(tx, variable, "detach")
    kept = _method(tx, variable, "to", dtype=dtype, copy=True)
    return _method(tx, kept, "reshape", ()) if example.dim() else kept


def _python_like(example: torch.Tensor) -> torch.dtype | None:
    if example.dtype is torch.bool:
        return torch.bool
    if example.is_floating_point():
        return None if example.device.type == "mps" else torch.float64  # which has no doubles
    if example.is_complex() or example.dtype is torch.uint64 or example.is_quantized:
        return None
    return torch.int64


def _method(
    tx: Any, variable: TensorVariable, name: str, *rest: Any, **named: Any
) -> TensorVariable:
    result = calls.method(tx, name, variable, *rest, **named)
    result.as_proxy().node.meta[KEPT] = True
    return result


def hand_on(
    tx: Any, numbers: Iterable[SymNodeVariable], double: Callable[[Any, Proxy], TensorVariable]
) -> None:
    """Keep the tensors behind numbers that an arm leaves behind, which ends with its trace.

    ``double`` makes the tensor of a float for which none was kept.
    """
    known = _kept_by_node(tx)
    for number in numbers:
        node, example = number.as_proxy().node, number.sym_num
        if _kind(node, known) is torch.bool or node in known:
            tensor = _tensor_of(tx, node, known)
        elif not free_unbacked_symbols(example):
            continue
        elif isinstance(example, torch.SymFloat):
            tensor = double(tx, number.as_proxy())
        else:
            dtype = torch.bool if isinstance(example, torch.SymBool) else torch.int64
            tensor = calls.function(tx, torch.scalar_tensor, number.as_proxy(), dtype=dtype)
        tensor.as_proxy().node.meta.pop(KEPT, None)
        known[node] = tensor


def tensor_behind(tx: Any, number: Proxy) -> TensorVariable | None:
    """Return the tensor of exactly the value of a number, if it was kept."""
    return _kept_by_node(tx).get(number.node)


def is_taken(tx: Any, number: SymNodeVariable) -> bool:
    """Whether a number was taken out of a tensor, or computed from one that was."""
    pending, nodes = [number.as_proxy().node], set[Node]()
    while pending:
        found: set[Node] = set()
        close_over(found, pending)
        nodes |= found
        inner = (each for each in found if each.op == "placeholder")
        outer = (before_arms(tx, Proxy(each)).node for each in inner)
        pending = [each for each in outer if each not in nodes]
    return not nodes.isdisjoint(_kept_by_node(tx))


def counted(tx: Any, number: SymNodeVariable) -> TensorVariable | None:
    """Return the integer tensor of a number that is another one more or less some constants.

    It is as wide as torch's own symbolic integers; ``None`` for a number made in another way.
    """
    return _counted(tx, number.as_proxy().node, _kept_by_node(tx))


def integer_tensor(tx: Any, number: VariableTracker) -> TensorVariable:
    """Return a 0-d tensor with the value of an integer."""
    if not isinstance(number, SymNodeVariable):
        return calls.function(tx, torch.full, (), number.as_python_constant(), dtype=torch.int64)
    known = counted(tx, number)
    return known or calls.function(tx, torch.scalar_tensor, number.as_proxy(), dtype=torch.int64)


def count_from(tx: Any, number: VariableTracker) -> None:
    """Note that a number is what a loop counts from, in steps that will not leave 64 bits."""
    per_trace.kept(tx.output, "counters", set).add(number.as_proxy().node)


def _is_count(tx: Any, node: Any) -> bool:
    """Whether a number is one that a loop counts, by some constant steps."""
    if not isinstance(node, Node) or node in per_trace.kept(tx.output, "counters", set):
        return isinstance(node, Node)
    if node.target not in STEPS:
        return False
    one, other = node.args
    return (type(other) is int and _is_count(tx, one)) or (
        type(one) is int and node.target is not operator.sub and _is_count(tx, other)
    )


def _keep_counts(tx: Any, node: Node) -> None:
    """Keep the tensors of the counts that a condition is computed from."""
    known = _kept_by_node(tx)
    for each in (node, *node.all_input_nodes):
        if each not in known and _is_count(tx, each):
            found = _counted(tx, each, known)
            if found is not None:
                known[each] = found
    if node.target in NEGATIONS:
        for each in node.all_input_nodes:
            _keep_counts(tx, each)


def _counted(tx: Any, node: Any, known: Mapping[Node, TensorVariable]) -> TensorVariable | None:
    if node in known:
        found = known[node]
        found.as_proxy().node.meta.pop(KEPT, None)
        return found if example_of(found).dtype is torch.int64 else None
    if not isinstance(node, Node) or node.target not in STEPS:
        return None
    one, other = node.args
    if type(one) is int and node.target is not operator.sub:
        one, other = other, one
    found_one = _counted(tx, one, known) if type(other) is int else None
    return None if found_one is None else calls.function(tx, STEPS[node.target], found_one, other)


# Conditions as tensors


def has_tensor(tx: Any, condition: SymNodeVariable) -> bool:
    """Whether the truth of a number can be had from the tensor that it was taken out of."""
    node = condition.as_proxy().node
    _keep_counts(tx, node)
    return _kind(node, _kept_by_node(tx)) is not None


def tensor_of(tx: Any, condition: SymNodeVariable) -> TensorVariable | None:
    """Return a 0-d boolean tensor with the truth of a number that was taken out of a tensor.

    ``None`` where only the number itself is known to be exact.
    """
    known = _kept_by_node(tx)
    node = condition.as_proxy().node
    _keep_counts(tx, node)
    kind = _kind(node, known)
    if kind is None:
        return None
    found = _tensor_of(tx, node, known)
    if kind is not torch.bool:
        found = calls.function(tx, torch.ne, found, 0)  # NaN is true, as in Python
    found.as_proxy().node.meta.pop(KEPT, None)  # from now on somebody has it
    return found


def _kind(node: Node, known: Mapping[Node, TensorVariable]) -> torch.dtype | None:
    """Return the dtype of the tensor that stands for a number; ``None`` if none does exactly."""
    if node in known:
        return example_of(known[node]).dtype
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    inner = _kind(node.args[0], known)
    if inner is None:
        return None
    if node.target in NEGATIONS:
        return torch.bool
    if node.target in COMPARISONS:
        other = node.args[1]
        if isinstance(other, Node):
            return torch.bool if _kind(other, known) is inner else None
        return torch.bool if _is_exact_beside(node.target, other, inner) else None
    return inner if (node.target, inner) in _SAME_VALUE else None


def _tensor_of(tx: Any, node: Node, known: Mapping[Node, TensorVariable]) -> TensorVariable:
    """Compute what ``_kind`` has promised. Python never rounds a number to compare it."""
    if node in known:
        return known[node]
    assert isinstance(node.args[0], Node)
    one = _tensor_of(tx, node.args[0], known)
    if node.target in NEGATIONS:
        return calls.function(tx, torch.logical_not, one)
    if node.target not in COMPARISONS:
        return one
    other: Any = node.args[1]
    if isinstance(other, Node):
        return calls.function(tx, node.target, one, _tensor_of(tx, other, known))
    if type(other) is float and example_of(one).dtype is torch.int64:
        whole = math.floor(other) if node.target in _TIGHT_BELOW else math.ceil(other)
        return calls.function(tx, node.target, one, whole)
    return calls.function(tx, node.target, one, other)


def _is_exact_beside(comparison: Any, constant: Any, dtype: torch.dtype) -> bool:
    """Whether a tensor of ``dtype`` can be compared with a constant without a rounding."""
    if dtype is torch.bool or type(constant) not in (int, float):
        return False
    if type(constant) is int or dtype is torch.int64:
        whole = type(constant) is int or constant.is_integer()
        return abs(constant) <= _EXACT_IN_DOUBLE and (whole or comparison in ORDERS)
    return True
