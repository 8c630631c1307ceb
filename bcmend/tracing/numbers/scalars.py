"""Numbers and truths that traced code takes out of tensors.

``x.item()``, ``float(x)``, ``torch.equal(x, y)`` and their kin end a graph. In code that is mended,
while a call is captured whole, they give symbolic numbers instead. Beside each number the graph
holds its tensor, for predicates to be computed from, until nobody reads one of the two.

Torch may assume of a number that sets the size of a tensor that it is not 1, say. Unless the user
asked for one graph (``fullgraph=True``, where stock Dynamo does the same), a graph in which that
happens is traced again with breaks in their place.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NoReturn, TypeGuard

import torch
from torch.fx import GraphModule, Node, Proxy

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph, hooks, shape_env
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.dynamo.values import TensorValue, Value, constant, example_of, is_batched
from bcmend.tracing.backends import early_backward
from bcmend.tracing.deopt import graph_failure, rerun_policy
from bcmend.tracing.numbers import ahead, constant_tensors, filled_masks, size_questions
from bcmend.tracing.numbers.dead_numbers import (
    COMPARISONS,
    NEGATIONS,
    ORDERS,
    STEPS,
    drop_unread,
    is_item,
    symbols_of_form,
    symbols_taken,
)
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states, capture_mode
from bcmend.tracing.sites.lifted_inputs import before_arms

#: Of an integer and a fraction: what holds for the fraction holds for the integer below it.
_TIGHT_BELOW: Final = frozenset([operator.gt, operator.le])
_SAME_VALUE: Final = frozenset([(torch.sym_float, torch.float64), (torch.sym_int, torch.int64)])
#: Up to here every integer is a double, and a comparison with a double is exact.
EXACT_IN_DOUBLE: Final = 2**53

#: Whether a trace takes numbers out of tensors.
_TAKES: Final = Slot(bool, rolls_back=False)
#: The tensors that are held beside numbers, and the numbers that loops count from.
_TENSORS: Final[Slot[dict[Node, TensorValue]]] = Slot(dict, rolls_back=False)
_COUNTERS: Final[Slot[set[Node]]] = Slot(set, rolls_back=False)


def _begin(tx: compat.Tracer) -> None:
    """Let this trace have numbers from tensors, and look at its graph when it is complete."""
    output = tx.output
    if _TAKES.of(output):
        return
    _TAKES.put(output, True)
    rerun_policy.note(tx)  # torch asserts in the graph, in its own words, what it is told of one
    environment, code = output.shape_env, output.root_tx.f_code
    size_questions.begin_answering(environment)
    asked_for = bool(tx.one_graph)
    if not asked_for:
        shape_env.allow_unbacked(environment)
        body_states.state_of(code).takes_numbers = True

    def leave() -> NoReturn:
        body_states.take_ahead(tx)
        falsify(Finding(Claim.NUMBERS, body_states.state_of(code)))

    def finish(module: GraphModule) -> None:
        size_questions.complete(environment)
        assumes = _assumes(environment, module)
        is_assumed = assumes and (not asked_for or size_questions.assumed_of(environment))
        if is_assumed and not graph_failure.can_be_put_back(output):
            leave()
        if _needs_gradients_of_unknown_sizes(module):
            instead = partial(body_states.take_ahead, tx) if asked_for else leave
            early_backward.compile_with_forward(output, instead, is_used=asked_for)
        if drop_unread(module.graph, size_questions.assumed_of(environment)):
            module.recompile()

    at_the_end_of_a_graph(output, Phase.NUMBERS, finish)


@hooks.around(
    compat.ShapeEnv, methods.ALLOW_DYNAMIC_OUTPUTS, "tensors of unbacked sizes", gate=None
)
def _allows_shapes(inner: Any, environment: Any) -> bool:
    """Return whether an operation may give a tensor of unbacked sizes."""
    tx = size_questions.translator_of_this_thread()
    if tx is not None and tx.output.shape_env is environment and capture_mode.in_mended_code(tx):
        _begin(tx)
    return bool(inner(environment))


def _needs_gradients_of_unknown_sizes(module: GraphModule) -> bool:
    """Return whether gradients flow into tensors of unbacked sizes."""
    # Back ends may fail for such graphs when they compile their backward, which is too late.
    nodes = fx_graph.nodes_in(module)
    # Of a number in an argument Dynamo knows the value at this call; later stages do not.
    numbers = [node.meta.get("example_value") for node in nodes if node.target == "item"]
    taken = {
        symbol
        for each in numbers
        if isinstance(each, (torch.SymInt, torch.SymFloat))
        for symbol in compat.free_symbols(each)
    }
    examples = (node.meta.get("example_value") for node in nodes)
    return any(
        isinstance(each, torch.Tensor)
        and each.requires_grad
        and (compat.free_unbacked_symbols(each) or not taken.isdisjoint(compat.free_symbols(each)))
        for each in examples
    )


def _assumes(environment: Any, module: GraphModule) -> bool:
    """Return whether torch assumed something about a data-dependent number."""
    # What it says of others, as of the iterations of a loop stored for the backward, is its own.
    nodes = fx_graph.nodes_in(module)
    asserted = {
        symbol
        for each in environment.deferred_runtime_asserts.values()
        for known in each
        for symbol in known.expr.free_symbols
    }
    if not asserted.isdisjoint(_data_dependent(nodes)):
        return True
    taken = {symbol for node in nodes if is_item(node) for symbol in symbols_taken(node)}
    return not taken.isdisjoint({each for node in nodes for each in symbols_of_form(node)})


def _data_dependent(nodes: Iterable[Node]) -> set[Any]:
    """Return the numbers that operations of the program take out of tensors, or give as sizes."""
    known: set[Any] = set()
    found: set[Any] = set()
    for node in nodes:
        example = node.meta.get("example_value")
        # The expression as it was taken; torch may have concluded what the number is.
        taken = getattr(getattr(example, "node", None), "_expr", None)
        own = set() if taken is None else set(compat.free_unbacked_symbols(taken))
        fresh = (shape_env.symbols_in(example) | own) - known
        known |= fresh
        if not isinstance(node.target, compat.HigherOrderOperator):
            found |= fresh
    return found


def take(tx: compat.Tracer, variable: TensorValue) -> Value | None:
    """Take the number out of a tensor of one element; ``None`` where Dynamo does it as well."""
    # The tensor is held as it is now, whatever is written to it later.
    proxy = variable.as_proxy()
    example = proxy.node.meta["example_value"]
    count = example.numel()
    if type(variable) is not compat.TensorVariable or not isinstance(count, int) or count != 1:
        return None
    known = constant_tensors.number_in(tx, variable)
    if known is not None:
        return constant(known)
    if (first := _first_item(proxy.node)) is not None:
        return first
    if is_batched(example):  # of which eager execution takes none
        return None
    if (computed := ahead.number_in(tx, variable)) is not None:
        return computed
    _begin(tx)
    held = _copied(tx, variable, example)
    number = compat.wrap_fx_proxy(tx, tx.output.create_proxy("call_method", "item", (proxy,), {}))
    if held is not None and isinstance(number, compat.SymNodeVariable):
        _tensors(tx)[number.as_proxy().node] = held
    for symbol in shape_env.symbols_in(getattr(number, "sym_num", None)):
        if ahead.is_a_variant_each(example):
            ahead.note_variant(tx, variable, symbol)
    filled_masks.bound_count(tx, number)
    assert isinstance(number, compat.VariableTracker)
    return number


def is_integer_of_array(value: Value) -> TypeGuard[TensorValue]:
    """Return whether a value is an integer of numpy's, to Dynamo an array without dimensions."""
    if type(value) is not compat.NumpyNdarrayVariable:
        return False
    example = example_of(value)
    return example.dim() == 0 and example.dtype is torch.int64


def as_tensor(tx: compat.Tracer, value: Value) -> Value:
    """Return an integer of numpy's as the tensor that it is to the graph; others as they are."""
    if not is_integer_of_array(value):
        return value
    tensor: Value = fx_graph.variable_of(tx, value.as_proxy())
    return tensor


def _first_item(node: Node) -> Value | None:
    """Return the number that is known to be the first item of what a node reads it from."""
    if node.target is not operator.getitem or node.args[1:] != (0,):
        return None
    (tensor,) = node.all_input_nodes
    example = tensor.meta["example_value"]
    known: Value | None = getattr(example, meta_keys.FIRST_ITEM, None)
    return known if known is not None and example._version == 0 else None


def _tensors(tx: compat.Tracer) -> dict[Node, TensorValue]:
    """Return the tensors of numbers by their nodes, without those that were taken back."""
    known = _TENSORS.of(tx.output)
    if fx_graph.ERASED.of(tx.output):
        fx_graph.ERASED.put(tx.output, False)
        for node in [each for each, tensor in known.items() if fx_graph.is_erased(tensor)]:
            del known[node]
    return known


def _copied(tx: compat.Tracer, variable: TensorValue, example: torch.Tensor) -> TensorValue | None:
    """Copy a tensor in a type that has each of its values as Python has it; ``None`` if none."""
    dtype = _python_like(example)
    if dtype is None:
        return None
    if example.requires_grad:
        variable = _method(tx, variable, "detach")
    copied = _method(tx, variable, "to", dtype=dtype, copy=True)
    return _method(tx, copied, "reshape", ()) if example.dim() else copied


def _python_like(example: torch.Tensor) -> torch.dtype | None:
    if example.dtype is torch.bool:
        return torch.bool
    if example.is_floating_point():
        return None if example.device.type == "mps" else torch.float64  # which has no doubles
    if example.is_complex() or example.dtype is torch.uint64 or example.is_quantized:
        return None
    return torch.int64


def _method(
    tx: compat.Tracer, variable: TensorValue, name: str, *rest: Any, **named: Any
) -> TensorValue:
    result = fx_graph.method(tx, name, variable, *rest, **named)
    result.as_proxy().node.meta[meta_keys.BESIDE_NUMBER] = True
    return result


def carry_out(
    tx: compat.Tracer,
    numbers: Iterable[compat.SymNodeVariable],
    double: Callable[[Any, Proxy], TensorValue],
) -> None:
    """Hold the tensors of numbers that an arm leaves behind; ``double`` makes that of a float."""
    known = _tensors(tx)
    for number in numbers:
        node, example = number.as_proxy().node, number.sym_num
        if _kind(node, known) is torch.bool or node in known:
            tensor = _tensor_of(tx, node, known)
        elif not compat.free_unbacked_symbols(example):
            continue
        elif isinstance(example, torch.SymFloat):
            tensor = double(tx, number.as_proxy())
        else:
            dtype = torch.bool if isinstance(example, torch.SymBool) else torch.int64
            tensor = fx_graph.function(tx, torch.scalar_tensor, number.as_proxy(), dtype=dtype)
        tensor.as_proxy().node.meta.pop(meta_keys.BESIDE_NUMBER, None)
        known[node] = tensor


def tensor_behind(tx: compat.Tracer, number: Proxy) -> TensorValue | None:
    """Return the tensor of exactly the value of a number, if it is held."""
    return _tensors(tx).get(number.node)


def is_taken(tx: compat.Tracer, number: compat.SymNodeVariable) -> bool:
    """Return whether a number was taken out of a tensor, or computed from one that was."""
    pending, nodes = [number.as_proxy().node], set[Node]()
    while pending:
        found: set[Node] = set()
        fx_graph.close_over(found, pending)
        nodes |= found
        outer = {before_arms(tx, Proxy(each)).node for each in found if each.op == "placeholder"}
        pending = [*(outer - nodes)]
    return not nodes.isdisjoint(_tensors(tx))


def tensor_of_count(tx: compat.Tracer, number: compat.SymNodeVariable) -> TensorValue | None:
    """Return the int64 tensor of a number that is another one plus constants; else ``None``."""
    return _counted(tx, number.as_proxy().node, _tensors(tx))


def integer_tensor(tx: compat.Tracer, number: Value) -> TensorValue:
    """Return a 0-d tensor with the value of an integer."""
    if not isinstance(number, compat.SymNodeVariable):
        return fx_graph.function(tx, torch.full, (), number.as_python_constant(), dtype=torch.int64)
    known = tensor_of_count(tx, number)
    return known or fx_graph.function(tx, torch.scalar_tensor, number.as_proxy(), dtype=torch.int64)


def count_from(tx: compat.Tracer, number: Value) -> None:
    """Note that a number is what a loop counts from, in steps that will not leave 64 bits."""
    _COUNTERS.of(tx.output).add(number.as_proxy().node)


def _step_to(node: Any) -> tuple[Any, int] | None:
    """Return the number and the constant that ``node`` adds or subtracts; else ``None``."""
    if not isinstance(node, Node) or node.target not in STEPS:
        return None
    one, other = node.args
    if type(one) is int and STEPS[node.target] is operator.add:
        one, other = other, one
    return (one, other) if type(other) is int else None


def _is_count(tx: compat.Tracer, node: Any) -> bool:
    """Return whether a number is one that a loop counts, by some constant steps."""
    if not isinstance(node, Node) or node in _COUNTERS.of(tx.output):
        return isinstance(node, Node)
    step = _step_to(node)
    return step is not None and _is_count(tx, step[0])


def _hold_counts(tx: compat.Tracer, node: Node) -> None:
    """Hold the tensors of the counts that a condition is computed from."""
    known = _tensors(tx)
    for each in (node, *node.all_input_nodes):
        if each not in known and _is_count(tx, each):
            found = _counted(tx, each, known)
            if found is not None:
                known[each] = found
    if node.target in NEGATIONS:
        for each in node.all_input_nodes:
            _hold_counts(tx, each)


def _counted(tx: compat.Tracer, node: Any, known: Mapping[Node, TensorValue]) -> TensorValue | None:
    if node in known:
        found = known[node]
        found.as_proxy().node.meta.pop(meta_keys.BESIDE_NUMBER, None)
        return found if example_of(found).dtype is torch.int64 else None
    step = _step_to(node)
    count = None if step is None else _counted(tx, step[0], known)
    if step is None or count is None:
        return None
    return fx_graph.function(tx, STEPS[node.target], count, step[1])


def has_tensor(tx: compat.Tracer, condition: compat.SymNodeVariable) -> bool:
    """Return whether the truth of a number can be had from the tensor that it was taken out of."""
    node = condition.as_proxy().node
    _hold_counts(tx, node)
    return _kind(node, _tensors(tx)) is not None


def tensor_of(tx: compat.Tracer, condition: compat.SymNodeVariable) -> TensorValue | None:
    """Return the truth of a number that was taken out of a tensor; ``None`` if none is exact."""
    known = _tensors(tx)
    node = condition.as_proxy().node
    _hold_counts(tx, node)
    kind = _kind(node, known)
    if kind is None:
        return None
    found = _tensor_of(tx, node, known)
    if kind is not torch.bool:
        found = fx_graph.function(tx, torch.ne, found, 0)  # NaN is true, as in Python
    found.as_proxy().node.meta.pop(meta_keys.BESIDE_NUMBER, None)  # from now on somebody has it
    return found


def _kind(node: Node, known: Mapping[Node, TensorValue]) -> torch.dtype | None:
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


def _tensor_of(tx: compat.Tracer, node: Node, known: Mapping[Node, TensorValue]) -> TensorValue:
    """Compute what ``_kind`` has promised. Python never rounds a number to compare it."""
    if node in known:
        return known[node]
    assert isinstance(node.args[0], Node)
    one = _tensor_of(tx, node.args[0], known)
    if node.target in NEGATIONS:
        return fx_graph.function(tx, torch.logical_not, one)
    if node.target not in COMPARISONS:
        return one
    other: Any = node.args[1]
    if isinstance(other, Node):
        other = _tensor_of(tx, other, known)
    elif type(other) is float and example_of(one).dtype is torch.int64:
        other = math.floor(other) if node.target in _TIGHT_BELOW else math.ceil(other)
    return fx_graph.function(tx, node.target, one, other)


def _is_exact_beside(comparison: Any, constant: Any, dtype: torch.dtype) -> bool:
    """Return whether a tensor of ``dtype`` can be compared with a constant without a rounding."""
    if dtype is torch.bool or type(constant) not in (int, float):
        return False
    if type(constant) is int or dtype is torch.int64:
        whole = type(constant) is int or constant.is_integer()
        return abs(constant) <= EXACT_IN_DOUBLE and (whole or comparison in ORDERS)
    return True
