"""``torch.tensor(array)``, ``torch.Tensor(array)`` of a numpy array that the graph has as a tensor.

Dynamo writes ``torch.tensor`` of that tensor into the graph, at which torch warns when the graph
runs, as eager execution does not. ``torch.Tensor`` keeps the type of the array there.
``torch.sparse_coo_tensor`` of indices and values is no tensor of a graph either.
``torch.as_tensor`` of a list with tensors of one number reads those numbers, which a graph has not.
``torch.LongTensor`` and its kin of a list with numbers out of tensors would fix these in a graph.
``one_hot`` of classes that the data say fixes how many they are.
``repeat_interleave`` by a tensor of counts makes an index, and a size, anew in each call.
``torch.tensor`` of a range up to a number out of a tensor is ``torch.arange``.
A number of numpy's is a double to ``torch.tensor``.
``tensor.random_`` between two bounds has a keyword of Python's for a name in a graph.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.values import (
    Value,
    constant,
    example_of,
    function_of,
    is_symbolic_int,
    is_unbacked,
)
from bcmend.tracing.heap import roots
from bcmend.tracing.indexing import coordinates, one_hot_rows, repeated_rows, stacked_items
from bcmend.tracing.loops import open_ranges
from bcmend.tracing.sites import body_states, capture_mode
from bcmend.tracing.substitutes.autograd_leaf import is_plain
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, bound, traced


@answers_to("tensor of array")
def _tensor(call: ReplacedCall) -> Answer:
    """Answer ``torch.tensor(array, dtype=None, device=None)``: a copy in memory of its own."""
    if (double := _as_double(call)) is not None:
        return double
    given = call.args[0].realize() if len(call.args) == 1 else None
    kind = _kind_of(call.kwargs)
    if kind is not None and isinstance(given, open_ranges.OpenRange):
        return _of_range(call.tx, given, kind)
    if kind is None or not isinstance(given, compat.NumpyNdarrayVariable):
        return PASS
    return fx_graph.method(call.tx, "to", given, **kind, copy=True)


def _of_range(tx: compat.Tracer, numbers: open_ranges.OpenRange, kind: dict[str, Any]) -> Answer:
    """Return the numbers of a range as a tensor of integers."""
    is_kept = kind.get("dtype") is torch.int64  # else torch makes floats of no numbers
    found = numbers.as_tensor(tx, kind["device"]) if is_kept else None
    if found is None:
        body_states.take_ahead(tx, numbers.asked_about())
        return PASS
    return found


def _kind_of(named: Mapping[str, Value]) -> dict[str, Any] | None:
    """Return the type and device that arguments ask for; ``None`` where others are given."""
    if not named.keys() <= {"dtype", "device"}:
        return None
    if not all(each.is_python_constant() for each in named.values()):
        return None
    given = {name: each.as_python_constant() for name, each in named.items()}
    kind: dict[str, Any] = {name: each for name, each in given.items() if each is not None}
    kind.setdefault("device", torch.get_default_device())
    return kind


@answers_to("tensor of items")
def _tensor_of_items(call: ReplacedCall) -> Answer:
    """Answer ``torch.as_tensor(items, dtype=None, device=None)`` for tensors of one number."""
    if (double := _as_double(call)) is not None:
        return double
    kind = _kind_of(call.kwargs) if len(call.args) == 1 else None
    if kind is None or torch.device(kind["device"]).type != "cpu":
        return PASS
    stacked = stacked_items.stacked(call.tx, call.args[0].realize(), kind.get("dtype"))
    return stacked or _of_numbers(call, kind.get("dtype"))


@answers_to("default tensor of array")
def _default_tensor(call: ReplacedCall) -> Answer:
    """Answer ``torch.Tensor(array)``: a copy of the default type."""
    if len(call.args) != 1 or call.kwargs or torch.get_default_device().type != "cpu":
        return PASS
    array = call.args[0].realize()
    if not isinstance(array, compat.NumpyNdarrayVariable):
        return _of_numbers(call, torch.get_default_dtype())
    return fx_graph.method(call.tx, "to", array, dtype=torch.get_default_dtype(), copy=True)


#: The types of tensors that are made by a class of this name, on the CPU.
_LEGACY: Final = {
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
}


@answers_to("tensor of numbers")
def _tensor_of_numbers(call: ReplacedCall) -> Answer:
    """Answer ``torch.LongTensor(numbers)`` and its kin, for numbers out of tensors."""
    name = call.row.name.rpartition(".")[2]
    return PASS if call.kwargs or len(call.args) != 1 else _of_numbers(call, _LEGACY[name])


def _of_numbers(call: ReplacedCall, dtype: torch.dtype | None) -> Answer:
    """Answer a call with a list that has numbers only, some of them of the graph, as on the CPU."""
    numbers = call.args[0].realize()
    found = list(stacked_items.leaves(numbers)) if stacked_items.is_sequence(numbers) else []
    kinds = (int, float) if dtype is None or dtype.is_floating_point else (int, bool)
    if not all(each.python_type() in kinds for each in found):
        return PASS
    if not any(isinstance(each, compat.SymNodeVariable) for each in found):
        return PASS
    kind = {"dtype": constant(dtype), "device": constant("cpu")}
    answer: Answer = function_of(call.tx, torch.tensor).call_function(call.tx, [numbers], kind)
    return answer


@answers_to("coordinates")
def _coordinates(call: ReplacedCall) -> Answer:
    """Answer ``torch.sparse_coo_tensor(indices, values, size)``."""
    if len(call.args) != 3 or call.kwargs:
        return PASS
    indices, values, size = (each.realize() for each in call.args)
    return coordinates.sparse_tensor(indices, values, size) or PASS


@answers_to("one hot")
def _one_hot(call: ReplacedCall) -> Answer:
    """Answer ``one_hot(tensor, num_classes=-1)`` where the data say how many classes there are."""
    if not 1 <= len(call.args) <= 2 or not call.kwargs.keys() <= {"num_classes"}:
        return PASS
    tensor, *others = (each.realize() for each in (*call.args, *call.kwargs.values()))
    if len(others) > 1 or type(tensor) is not compat.TensorVariable:
        return PASS
    example, classes = example_of(tensor), others[0] if others else constant(-1)
    is_empty = any(type(size) is int and size == 0 for size in example.shape)
    if example.dtype is not torch.int64 or is_empty:
        return PASS  # torch has an error of its own for it
    if classes.is_python_constant():
        if classes.as_python_constant() != -1:
            return PASS
        call = replace(call, args=(tensor,), kwargs={})
    elif not (is_symbolic_int(classes) or type(classes) is compat.TensorVariable):
        return PASS
    found: Answer = traced(call, one_hot_rows.rows)
    return found


_REPEATS: Final = inspect.signature(lambda input, repeats, dim=None, *, output_size=None: None)


@answers_to("repeated rows")
def _repeated_rows(call: ReplacedCall) -> Answer:
    """Answer ``torch.repeat_interleave(input, repeats, dim=None)`` and the method of that name."""
    owner = [] if call.owner is None else [call.owner]
    given: Any = bound(_REPEATS, replace(call, args=(*owner, *call.args)))
    if given is None or not capture_mode.in_mended_code(call.tx):
        return PASS
    tensor, counts, dim, size = given.values()
    if not (is_plain(tensor) and is_plain(counts) and size.is_constant_none()):
        return PASS
    if not dim.is_python_constant() or compat.peek_interpreter_stack() is not None:
        return PASS
    found = repeated_rows.repeated(call.tx, tensor, counts, dim.as_python_constant())
    return PASS if found is None else found


@answers_to("random integers")
def _random_integers(call: ReplacedCall) -> Answer:
    """Answer ``tensor.random_(to)`` and ``tensor.random_(from, to)``, as ``torch.randint`` fills.

    Source: ``randint_out``, aten/src/ATen/native/TensorFactories.cpp. The items of a tensor that is
    not contiguous are drawn in another order.
    """
    tx, tensor, bounds = call.tx, call.owner, [each.realize() for each in call.args]
    named = {name: each.realize() for name, each in call.kwargs.items()}
    has_own_generator = any(not each.is_constant_none() for each in named.values())
    if not is_plain(tensor) or not named.keys() <= {"generator"} or has_own_generator:
        return PASS
    if not 1 <= len(bounds) <= 2 or not all(map(open_ranges.is_number, bounds)):
        return PASS
    example = example_of(tensor)
    if not _is_contiguous(example) or (example.requires_grad and torch.is_grad_enabled()):
        return PASS
    if compat.peek_interpreter_stack() is not None:
        return PASS  # a transform has its own ways to draw
    size = tensor.call_method(tx, "size", [], {})
    kind = {"dtype": constant(example.dtype), "device": constant(example.device)}
    drawn = function_of(tx, torch.randint).call_function(tx, [*bounds, size], kind)
    found: Answer = drawn if _is_fresh(tx, tensor) else tensor.call_method(tx, "copy_", [drawn], {})
    return found


def _is_fresh(tx: compat.Tracer, tensor: compat.TensorVariable) -> bool:
    """Return whether a tensor was made to be filled, and nothing but this call refers to it.

    What fills it stands for it then: of that is known which numbers are drawn.
    """
    node = tensor.as_proxy().node
    is_made = node.target is torch.empty and node.kwargs.keys() <= {"dtype", "device", "size"}
    return is_made and not node.users and not roots.is_held(tx, tensor)


def _is_contiguous(example: torch.Tensor) -> bool:
    """Return whether a tensor is known to be contiguous."""
    step: Any = 1
    for size, stride in zip(reversed(example.shape), reversed(example.stride()), strict=True):
        if not any(map(compat.statically_known_true, (size == 1, stride == step))):
            return False
        step = step * size
    return True


def _as_double(call: ReplacedCall) -> Value | None:
    """Return the tensor that is made of a number of numpy's, or a list with one: of doubles."""
    given = call.args[0].realize() if len(call.args) == 1 else None
    if "dtype" in call.kwargs or given is None:
        return None
    items = stacked_items.leaves(given) if stacked_items.is_sequence(given) else (given,)
    if not any(map(_is_of_numpy, items)):
        return None
    if not call.kwargs.keys() <= {"device"}:
        handlers.break_graph(
            f"{call.row.name} of a number of numpy's", repr(given), "Not known here."
        )
    kind = {"dtype": constant(torch.float64), **call.kwargs}
    return function_of(call.tx, torch.tensor).call_function(call.tx, [given], kind)


#: What gives a number of numpy's for one, beside other numbers.
_ARITHMETIC: Final = frozenset(
    getattr(operator, f"{before}{name}")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
    for before in ("", "i")
) | {operator.neg, operator.pos, operator.abs}


def _is_of_numpy(value: Value) -> bool:
    """Return whether a number is a double of numpy's: given by a function, or computed from one.

    What ``float``, ``int`` and functions of ``math`` give are numbers of Python's.
    """
    if not is_unbacked(value) or not isinstance(value.sym_num, torch.SymFloat):
        return False
    waiting, seen = [value.as_proxy().node], set[Any]()
    while waiting:
        node = waiting.pop()
        if meta_keys.OF_NUMPY in node.meta:
            return True
        if node.target in _ARITHMETIC and node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return False
