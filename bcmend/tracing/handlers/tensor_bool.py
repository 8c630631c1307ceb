"""Calls that answer a question about the data of tensors, traced without leaving the graph.

``torch.equal``, ``torch.allclose``, ``torch.is_nonzero``, their methods, ``x.item()`` and
``x.tolist()`` end Dynamo's graph. In mended code the answer is computed by tensor operations and
taken out as a symbolic number (``bcmend.tracing.numbers.scalars``). Truths that were taken out are
numbers in arithmetic, comparisons and indices, as in Python.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from bcmend.dynamo import compat, fx_graph, handlers, hooks, operators, shape_env
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import (
    Value,
    constant,
    example_of,
    is_unbacked,
    kind_of_number,
)
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.merging.optional_items import OptionalList
from bcmend.tracing.numbers import ahead, predicates, scalars, size_questions
from bcmend.tracing.sites import capture_mode

Compute = Callable[..., Value | None]
Tensor = compat.TensorVariable


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return one.new_full((), torch.equal(one, other), dtype=torch.bool)


def _answer_of(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return one.new_empty((), dtype=torch.bool)


#: ``torch.equal`` of tensors, of which the data say whether they have equal sizes.
_EQUAL: Final = operators.define(
    "is_equal(Tensor one, Tensor other) -> Tensor", _is_equal, _answer_of, has_effect=False
)
effects.declare(_EQUAL, EffectFacts(is_total=True, is_expensive=True))


def _equal(tx: compat.Tracer, input: Tensor, other: Tensor) -> Value | None:
    """``torch.equal``: the same sizes, and the same elements; NaN equals nothing."""
    one, two = example_of(input), example_of(other)
    if one.dtype is not two.dtype or one.device != two.device:
        return None
    if one.dim() == two.dim() and not _are_comparable(one, two):
        return fx_graph.function(tx, _EQUAL, input, other)
    if not _have_equal_sizes(one, two):
        return constant(False)
    if one.device.type == "cuda" and _is_same_memory(one, two):
        return constant(True)  # also where it is NaN, which is looked at on the CPU only
    return fx_graph.function(tx, torch.all, fx_graph.function(tx, torch.eq, input, other))


def _is_same_memory(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Return whether two tensors of one size have the same elements of one memory."""
    places = ((each.storage_offset(), each.stride()) for each in (one, two))
    return storage_of(one) == storage_of(two) and next(places) == next(places)


def _are_comparable(one: torch.Tensor, two: torch.Tensor) -> bool:
    unbacked = compat.free_unbacked_symbols(one) | compat.free_unbacked_symbols(two)
    are_of_a_kind = one.dtype is two.dtype and one.device == two.device
    return are_of_a_kind and (not unbacked or _have_equal_sizes(one, two))


def _have_equal_sizes(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Return whether sizes are equal; data-dependent ones are if torch knows that they are."""
    if one.dim() != two.dim():
        return False
    pairs = zip(one.shape, two.shape, strict=True)
    return all(
        compat.statically_known_true(a == b) if compat.free_unbacked_symbols([a, b]) else a == b
        for a, b in pairs
    )


def _allclose(
    tx: compat.Tracer,
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Value | None:
    """``torch.allclose``, which is ``torch.isclose`` of every element, in ATen too."""
    one, two = example_of(input), example_of(other)
    if rtol < 0 or atol < 0 or not _are_comparable(one, two):
        return None
    try:
        torch.broadcast_shapes(one.shape, two.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    close = fx_graph.function(tx, torch.isclose, input, other, **options)
    return fx_graph.function(tx, torch.all, close)


def _is_nonzero(tx: compat.Tracer, input: Tensor) -> Value | None:
    """``torch.is_nonzero``; a tensor of more or less than one element is an error."""
    count = example_of(input).numel()
    is_one = isinstance(count, int) and count == 1
    return fx_graph.function(tx, torch.ne, input, 0) if is_one else None


def _answered(compute: Compute, call: Call) -> Answer:
    """Return what ``compute`` gives as a Python bool that Dynamo knows."""
    tx = call.tx
    if not capture_mode.in_mended_code(tx):
        return PASS
    arguments = call.args if call.owner is None else (call.owner, *call.args)
    try:
        bound = inspect.signature(compute).bind(tx, *arguments, **call.kwargs)
    except TypeError:
        return PASS
    given = {name: _plain(value) for name, value in list(bound.arguments.items())[1:]}
    if any(value is None for value in given.values()):
        return PASS
    result = compute(tx, **given)
    return (scalars.take(tx, result) if isinstance(result, Tensor) else result) or PASS


def _plain(value: Value) -> Any:
    """Return a plain tensor as it is, a number as itself, and ``None`` for anything else."""
    value = value.realize()
    if type(value) is Tensor:
        example = example_of(value)
        is_plain = example.layout is torch.strided and not example.is_quantized
        return value if is_plain and not example.is_nested else None
    number = value.as_python_constant() if value.is_python_constant() else None
    return number if isinstance(number, (bool, int, float)) else None


# Methods and functions of torch


for _name, _answer in (("equal", _equal), ("allclose", _allclose), ("is_nonzero", _is_nonzero)):
    _declare = handlers.function(getattr(torch, _name), "questions about tensors", is_last=True)
    _declare(partial(_answered, _answer))
    handlers.tensor_method(_name)(partial(_answered, _answer))


@handlers.tensor_method("item")
def _item(call: Call) -> Answer:
    """Answer ``x.item()``."""
    if call.args or call.kwargs or not capture_mode.in_mended_code(call.tx):
        return PASS
    return scalars.take(call.tx, call.owner) or PASS


#: Each number of a list is an operation of its own: 64 take 4 times as long to compile as four (0.8
#: s), 256 take 25 times as long.
_LISTED_AT_MOST: Final = 64


@handlers.tensor_method("tolist")
def _tolist(call: Call) -> Answer:
    """Answer ``x.tolist()`` of a few numbers, each taken out as ``item`` does."""
    tx, tensor = call.tx, call.owner
    if type(tensor) is not Tensor or call.args or not capture_mode.in_mended_code(tx):
        return PASS
    computed = ahead.list_of(tx, tensor)
    if computed is not None:
        return computed
    _know_counts(tx, tensor)
    count = example_of(tensor).numel()
    is_few = isinstance(count, int) and count <= _LISTED_AT_MOST
    return (_listed(tx, tensor) if is_few else None) or PASS


def _know_counts(tx: compat.Tracer, tensor: Tensor) -> None:
    """Take ``bincount(x, minlength=n)`` to give ``n`` counts, since each number is below ``n``.

    Where one is not, the assertion fails, and the call is made in plain Python.
    """
    asked = shape_env.symbols_in(example_of(tensor).shape)
    for node in tensor.as_proxy().node.graph.nodes if asked else ():
        least = (*node.args, None, None, None)[2] or node.kwargs.get("minlength")
        if node.target in ("bincount", torch.bincount) and type(least) is int and least > 0:
            (size,) = node.meta["example_value"].shape
            if not asked.isdisjoint(shape_env.symbols_in(size)):
                size_questions.take_for(tx, size, least)


@hooks.around(Tensor, methods.CALL_METHOD, "lists of data-dependent length", place=1)
def _listed_by_dynamo(inner: Any, tensor: Any, tx: compat.Tracer, name: str, *given: Any) -> Any:
    """End the graph where Dynamo would ask for the number of items."""
    if name != "tolist":
        return inner(tensor, tx, name, *given)
    try:
        return inner(tensor, tx, name, *given)
    except compat.GuardOnDataDependentSymNode as error:
        handlers.break_graph(
            "a list of data-dependent length",
            f"tolist of {tensor}",
            "Dynamo lists the items of a tensor one by one.",
            from_exc=error,
        )


def _listed(tx: compat.Tracer, variable: Tensor) -> Value | None:
    example = example_of(variable)
    if not example.dim():
        return scalars.take(tx, variable)
    items = [
        _listed(tx, fx_graph.function(tx, operator.getitem, variable, at))
        for at in range(int(example.shape[0]))
    ]
    found = [each for each in items if each is not None]
    is_whole = len(found) == len(items)
    return containers.new_list(found) if is_whole else None


# ``not``


@hooks.around(compat.BuiltinVariable, methods.CALL_NOT, "truths out of tensors")
def _not(inner: Any, variable: Any, tx: compat.Tracer, operand: Value) -> Any:
    """Model ``not number``, where Dynamo would ask for the number itself, and ``not items``."""
    if isinstance(operand, OptionalList):
        operand = operand.truth(tx)
    if not is_unbacked(operand) or not capture_mode.in_mended_code(tx):
        return inner(variable, tx, operand)
    assert isinstance(operand, compat.SymNodeVariable)
    proxy = operand.as_proxy()
    if not isinstance(operand.sym_num, torch.SymBool):
        proxy = compat.SymNodeVariable.create(tx, proxy != 0).as_proxy()
    return _symbolic(tx, torch.sym_not, proxy)


def _symbolic(tx: compat.Tracer, function: Any, *arguments: Any) -> Value:
    proxy = tx.output.create_proxy("call_function", function, arguments, {})
    return compat.SymNodeVariable.create(tx, proxy)


@hooks.around(compat.BuiltinVariable, methods.INSERT_OPERATION, "`not tensor`, `[x] * tensor`")
def _operation(inner: Any, variable: Any, tx: compat.Tracer, arguments: Any, keywords: Any) -> Any:
    """Model ``not tensor`` and ``[x] * tensor``, which Dynamo would put into the graph."""
    if variable.fn is operator.not_ and not keywords and capture_mode.in_mended_code(tx):
        operand = arguments[0].realize()
        if type(operand) is Tensor and example_of(operand).numel() == 1:
            predicate = predicates.negated(tx, predicates.as_predicate(tx, operand))
            return scalars.take(tx, predicate) or inner(variable, tx, arguments, keywords)
    if variable.fn in _MULTIPLIED and not keywords and capture_mode.in_mended_code(tx):
        operands = [each.realize() for each in arguments]
        if any(map(_is_sequence, operands)):
            counts = [_times(tx, each) for each in operands]
            if not any(isinstance(each, Tensor) for each in counts):
                return variable.call_function(tx, counts, {})
    return inner(variable, tx, arguments, keywords)


_MULTIPLIED: Final = (operator.mul, operator.imul)


def _is_sequence(value: Value) -> bool:
    """Return whether a value is repeated where it is multiplied by a number, also of a tensor.

    Tensors do not know it as an operand: Python goes on to repeat it, as often as the tensor's
    number says. Dynamo would have the graph multiply the two.
    """
    if isinstance(value, compat.ConstantVariable):
        return isinstance(value.value, (str, bytes))
    return isinstance(value, (compat.ListVariable, compat.TupleVariable))


def _times(tx: compat.Tracer, value: Value) -> Value:
    """Return the number in a tensor that stands where something is repeated."""
    if not isinstance(value, Tensor) or example_of(value).is_floating_point():
        return value
    return scalars.take(tx, value) or value


# Truths as numbers


@hooks.around(compat.BuiltinVariable, methods.COMPARE_WITH_NUMBER, "truths compared with numbers")
def _numbers_compared(inner: Any, self: Any, tx: compat.Tracer, left: Any, right: Any) -> Any:
    """Compare numbers, of which one or both may be truths."""
    operands = left.realize(), right.realize()
    for each in operands:
        if isinstance(each, LazyPhi):
            each.ask()
    if any(map(_is_truth, operands)):
        left, right = (_as_number(tx, each) for each in operands)
    return inner(self, tx, left, right)


@hooks.around(
    compat.BuiltinVariable, methods.MAKE_HANDLER, "which truth one is", gate=None, place=4
)
def _make_handler(inner: Any, function: Any, kinds: Sequence[type], has_keywords: bool) -> Any:
    """Answer ``flag is True``, to which Dynamo says no of each symbolic number."""
    handler = inner(function, kinds, has_keywords)
    of_numbers = any(issubclass(each, compat.SymNodeVariable) for each in kinds)
    if function not in (operator.is_, operator.is_not) or not of_numbers:
        return handler

    def test(tx: compat.Tracer, args: Sequence[Any], kwargs: Any) -> Any:
        operands = [each.realize() for each in args]
        if not all(map(_is_truth, operands)):
            return handler(tx, args, kwargs)
        found = _is_same_truth(tx, *operands)
        return _opposite(tx, found) if function is operator.is_not else found

    return test


def _is_same_truth(tx: compat.Tracer, one: Value, other: Value) -> Value:
    """Answer ``is`` of two truths, each of which there is one object of."""
    if one.is_python_constant():
        one, other = other, one
    if other.is_python_constant():
        return one if other.as_python_constant() else _opposite(tx, one)
    numbers = [_as_number(tx, each) for each in (one, other)]
    return compat.BuiltinVariable(operator.eq).call_function(tx, numbers, {})


def _opposite(tx: compat.Tracer, truth: Value) -> Value:
    if truth.is_python_constant():
        return constant(not truth.as_python_constant())
    return _symbolic(tx, torch.sym_not, truth.as_proxy())


@hooks.around(compat.BuiltinVariable, methods.CALL_FLOAT, "truths as fractions")
def _float(inner: Any, self: Any, tx: compat.Tracer, given: Value) -> Any:
    """Model ``float(truth)``: torch fails where it looks for the range of what it makes of one."""
    return inner(self, tx, _as_number(tx, given.realize()))


def _is_truth(value: Value) -> bool:
    if isinstance(value, compat.SymNodeVariable):
        return isinstance(value.sym_num, torch.SymBool)
    return isinstance(value, compat.ConstantVariable) and type(value.value) is bool


def _as_number(tx: compat.Tracer, value: Value) -> Value:
    """Return 1 or 0 for a truth, as Python compares and computes with it; torch does not."""
    if not _is_truth(value):
        return value
    if isinstance(value, compat.ConstantVariable):
        return constant(int(value.value))
    return _symbolic(tx, torch.sym_ite, value.as_proxy(), 1, 0)


_ARITHMETIC: Final = "truths in arithmetic"


@hooks.around(
    compat.object_protocol, methods.BINARY_OPERATION, _ARITHMETIC, gate=hooks.first, place=1
)
def _operated(inner: Any, tx: compat.Tracer, v: Any, w: Any, op_slot: str) -> Any:
    """Compute with two numbers, of which one or both may be truths."""
    if op_slot == methods.EXCLUSIVE_OR_SLOT and capture_mode.in_mended_code(tx):
        return _either_alone(tx, v.realize(), w.realize()) or inner(tx, v, w, op_slot)
    if op_slot in methods.BINARY_NUMBER_SLOTS and capture_mode.in_mended_code(tx):
        operands = [v.realize(), w.realize()]
        if any(isinstance(each, compat.SymNodeVariable) for each in operands):
            v, w = _as_numbers(tx, operands)
            if op_slot in methods.DIVISION_SLOTS and is_unbacked(w) and not isinstance(v, Tensor):
                size_questions.claim(tx, w.sym_num != 0)  # Inductor divides as C does
    return inner(tx, v, w, op_slot)


def _either_alone(tx: compat.Tracer, one: Value, other: Value) -> Value | None:
    """Return ``one ^ other`` of two truths, which torch has of tensors alone."""
    if not (_is_truth(one) and _is_truth(other)):
        return None
    truths = [
        predicates.as_predicate(tx, each) if is_unbacked(each) else each for each in (one, other)
    ]
    unknown = [each for each in truths if isinstance(each, Tensor)]
    return scalars.take(tx, fx_graph.function(tx, operator.ne, *truths)) if unknown else None


def _converted(inner: Any, self: Any, tx: compat.Tracer) -> Any:
    """Compute with a number that may be a truth."""
    if capture_mode.in_mended_code(tx):
        self = _as_number(tx, self)
    return inner(self, tx)


def _as_integer(inner: Any, self: Any, tx: compat.Tracer) -> Any:
    """Make an integer of a number: of NaN or infinity Python raises, and Inductor makes one."""
    if capture_mode.in_mended_code(tx) and is_unbacked(self) and kind_of_number(self) is float:
        size_questions.claim(tx, self.sym_num < _OUT_OF_64_BITS, self.sym_num > -_OUT_OF_64_BITS)
    return _converted(inner, self, tx)


_OUT_OF_64_BITS: Final = 2.0**63

for _name in methods.UNARY_NUMBER_SLOTS:
    _compute = _as_integer if _name == methods.AS_INTEGER else _converted
    hooks.around(compat.SymNodeVariable, _name, _ARITHMETIC)(_compute)


def _as_numbers(tx: compat.Tracer, operands: list[Any]) -> list[Any]:
    """Return operands with numbers for truths, if all of them are numbers or truths."""
    kinds = (compat.SymNodeVariable, compat.ConstantVariable)
    are_numbers = all(isinstance(each, kinds) for each in operands)
    return [_as_number(tx, each) for each in operands] if are_numbers else operands


@hooks.around(compat.BaseListVariable, methods.GETITEM_CONSTANT, "items at a place that is a truth")
def _item_at(inner: Any, self: Any, tx: compat.Tracer, place: Value) -> Any:
    at = place.realize()
    return inner(self, tx, _as_number(tx, at) if isinstance(at, compat.SymNodeVariable) else at)


@handlers.method(compat.BaseListVariable, methods.CONTAINS, "numbers among items", place=1)
def _number_among(call: Call) -> Answer:
    """Answer ``number in items``: torch passes by the items that are no constants."""
    tx, (item,) = call.tx, (each.realize() for each in call.args)
    items = [each.realize() for each in call.owner.items]
    is_number = isinstance(item, compat.ConstantVariable) and isinstance(item.value, (int, float))
    if not (is_number and any(isinstance(each, compat.SymNodeVariable) for each in items)):
        return PASS
    found: Value = constant(False)
    for each in items:
        is_same = compat.BuiltinVariable(operator.eq).call_function(tx, [each, item], {})
        if is_same.is_python_constant() and found.is_python_constant():
            found = constant(found.as_python_constant() or is_same.as_python_constant())
        else:
            found = compat.BuiltinVariable(operator.or_).call_function(tx, [is_same, found], {})
    return found


# Numbers beside tensors


@hooks.around(
    compat.object_protocol,
    methods.RICHCOMPARE_ITEMS,
    "items of containers compared",
    gate=hooks.first,
)
def _items_equal(inner: Any, tx: compat.Tracer, v: Any, w: Any, op: str) -> Any:
    """Compare two items of containers, which gives a truth and no tensor, as in Python."""
    one, other = v.realize(), w.realize()
    is_size = kind_of_number(one) is int or kind_of_number(other) is int
    if is_size and capture_mode.in_mended_code(tx):
        one, other = (_size_in(tx, each) or each for each in (one, other))
    return inner(tx, one, other, op)


def _size_in(tx: compat.Tracer, value: Value) -> Value | None:
    """Return the number in a tensor that is compared with a size, where nothing is rounded."""
    is_exact = type(value) is Tensor and example_of(value).dtype is torch.int64
    return scalars.take(tx, value) if is_exact else None  # type: ignore[arg-type]


@hooks.around(compat.SymNodeVariable, methods.RICHCOMPARE, "a number compared with a tensor")
def _comparison(inner: Any, self: Any, tx: compat.Tracer, other: Any, op: str) -> Any:
    """Compare a number with a tensor, which gives a tensor; Dynamo calls it a number."""
    if not isinstance(other, Tensor):
        return inner(self, tx, other, op)
    return fx_graph.function(tx, compat.cmp_name_to_op_mapping[op], self, other)
