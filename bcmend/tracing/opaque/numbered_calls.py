"""Functions of torch that ask about a number which the data decide.

``hardtanh(x, -v, v)`` asks whether ``-v > v`` before it calls anything, and Inductor takes
``lerp`` apart by whether the weight is more than a half. No trace knows that of a number out of a
tensor, and where both answers lead to results of the same form none has to: the graph gets one
operator, which calls the function with the number (``bcmend.tracing.opaque.operator``). Extends
Dynamo's models of torch's functions and of methods of tensors.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.fx_graph import Transaction
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    fake_mode_of,
    function_of,
    is_unbacked,
)
from bcmend.knowledge import effects
from bcmend.tracing.deopt import rerun_policy
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.numbers import float_tensors, size_questions
from bcmend.tracing.opaque import operator, tensors_as_numbers
from bcmend.tracing.opaque.hidden_sizes import ALIKE
from bcmend.tracing.sites import capture_mode, site_table
from bcmend.tracing.substitutes.autograd_leaf import is_plain

#: Those that torch traces for any number, and of which Inductor asks, or which it cannot compile.
_ASK_LATER: Final = frozenset(
    [
        torch.lerp,
        torch.Tensor.lerp,
        torch.scatter,
        torch.Tensor.scatter,
        torch.searchsorted,
        torch.bucketize,
    ]
)

#: The operators of Python that ask: ``x ** v``, whose backward does.
_POWERS: Final = (python_operator.pow, pow, python_operator.ipow)

_SEQUENCES: Final = (compat.TupleVariable, compat.ListVariable, compat.SizeVariable)

Given = dict[str, Value]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function by what is written into the graph for it.

    Attributes:
        name: that of the function, as the operator finds it.
        form: the text of the arguments.
        given: the arguments that are no constants.
    """

    name: str
    form: str
    given: operator.Form

    def examples(self) -> list[Tensor]:
        """Return the fake tensors of the arguments."""
        return [example_of(each) for each in self.given.tensors]


_PURPOSE: Final = "functions that ask about a number out of a tensor"


@hooks.around(compat.TorchInGraphFunctionVariable, methods.CALL_FUNCTION, _PURPOSE, place=4)
def _call_function(
    inner: Any, self: Any, tx: compat.Tracer, args: Sequence[Value], kwargs: Given
) -> Any:
    args, kwargs = tensors_as_numbers.taken(tx, self.value, args, kwargs)
    if self.value is operator.CALL:
        return inner(self, tx, args, kwargs)
    if not (_has_hidden_size(self.value) or _has_open_number(args, kwargs)):
        return inner(self, tx, args, kwargs)
    return _traced(tx, self.value, args, kwargs, lambda: inner(self, tx, args, kwargs))


@hooks.around(compat.TensorVariable, methods.CALL_METHOD, _PURPOSE, place=5)
def _call_method(
    inner: Any, self: Any, tx: compat.Tracer, name: str, args: Sequence[Value], kwargs: Given
) -> Any:
    if not name.startswith("__"):
        own = getattr(torch.Tensor, name, None)
        (self, *args), kwargs = tensors_as_numbers.taken(tx, own, [self, *args], kwargs)
    if name.startswith("__") or not _has_open_number(args, kwargs):
        return inner(self, tx, name, args, kwargs)

    def call() -> Any:
        return inner(self, tx, name, args, kwargs)

    function = getattr(torch.Tensor, name.removesuffix("_"), None)
    written = self if name.endswith("_") else None
    return _traced(tx, function, [self, *args], kwargs, call, written)


@hooks.around(compat.BuiltinVariable, methods.INSERT_OPERATION, _PURPOSE, place=4)
def _operation(inner: Any, variable: Any, tx: compat.Tracer, args: Any, kwargs: Given) -> Any:
    if variable.fn not in _POWERS or not _has_open_number(args, kwargs):
        return inner(variable, tx, args, kwargs)
    is_in_place = variable.fn is python_operator.ipow and type(args[0].realize()) is TensorValue
    written = args[0].realize() if is_in_place else None

    def call() -> Any:
        return inner(variable, tx, args, kwargs)

    return _traced(tx, torch.pow, args, kwargs, call, written)


def _has_hidden_size(function: Any) -> bool:
    return operator.name_of(function) in ALIKE


def _has_open_number(args: Iterable[Value], kwargs: Given, kind: Any = object) -> bool:
    """Return whether a call is given a number that the data decide, in a sequence or by itself."""
    return any(_is_open(each, kind) for each in (*args, *kwargs.values()))


def _is_open(value: Any, kind: Any) -> bool:
    # Whether a value is an instance of a class is no question to ask of a phi: it would be read.
    if type(value) in _SEQUENCES:
        return any(_is_open(each, kind) for each in value.items)
    is_number = type(value) is compat.SymNodeVariable and is_unbacked(value)
    return is_number and isinstance(value.sym_num, kind)


def _traced(
    tx: compat.Tracer,
    function: Any,
    args: Sequence[Value],
    kwargs: Given,
    call: Callable[[], Any],
    written: Any = None,
) -> Any:
    """Return what a call gives: traced by Dynamo, or as one operator where that cannot be.

    ``written`` is the tensor that the result is stored in.
    """
    if tx.export or not capture_mode.in_mended_code(tx) or compat._is_any_autocast_enabled():
        return call()  # elsewhere the operator is not known, or would not cast what it is given
    if _is_never_traced(function) or _asks_in_backward(tx, function, args, kwargs):
        return _as_operator(tx, function, args, kwargs, written, None) or call()
    transaction = Transaction(tx)
    is_float = _has_open_number(args, kwargs, torch.SymFloat)
    assumes = size_questions.unassumed(tx.output.shape_env) if is_float else nullcontext()
    try:
        with operator.unlogged(), assumes:
            return call()
    except compat.UserError:
        found = _as_operator(tx, function, args, kwargs, written, transaction)
        if found is not None:
            return found
        if not is_float:
            raise
    transaction.roll_back()
    return call()  # something may be assumed of a size


def _is_never_traced(function: Any) -> bool:
    return function in _ASK_LATER or _has_hidden_size(function)


def _asks_in_backward(
    tx: compat.Tracer, function: Any, args: Sequence[Value], kwargs: Given
) -> bool:
    """Return whether the call itself asks nothing, and its backward does."""
    name = operator.name_of(function)
    if not name or not torch.is_grad_enabled():
        return False
    try:
        call = call_of(name, args, kwargs)
    except operator.NotWritten:
        return False
    examples, given = call.examples(), call.given
    if not any(each.requires_grad for each in examples):
        return False
    own = [each.detach().requires_grad_(each.requires_grad) for each in examples]
    numbers = given.floats, given.integers, given.sizes
    values = operator.Values(own, *([each.sym_num for each in some] for some in numbers))
    unassumed = size_questions.unassumed(tx.output.shape_env)
    with fake_mode_of(tx), operator.unlogged(), unassumed:
        return operator.asks_in_backward(name, call.form, values)


def _as_operator(
    tx: compat.Tracer,
    function: Any,
    args: Sequence[Value],
    kwargs: Given,
    written: Any,
    transaction: Transaction | None,
) -> Any:
    """Return the result of the operator; ``None`` where it would not be equal."""
    name = operator.name_of(function)
    policy = frames.mark_over(tx)
    if not name or policy is None or _may_draw(function, args, kwargs):
        return None
    try:
        call = call_of(name, args, kwargs)
    except operator.NotWritten:
        return None
    results = results_of(tx, call)
    if not results or (written is not None and not _fits(results[0], written)):
        return None
    site = site_table.site_being_traced(tx, frames.resumed(tx.f_code), "call", "call")
    if site_table.is_left_alone(site, tx, policy):
        return None
    if transaction is not None:
        transaction.roll_back()
    if written is not None:  # the backward needs what it was
        call.given.tensors[0] = written.call_method(tx, "clone", [], {})
    rerun_policy.note(tx)  # what fails inside a graph that stock has not made
    items = emitted(tx, call, is_recorded=is_recorded(results[0]))
    reason = "computes something whose size" if name in ALIKE else "is handed a number that"
    site.mended("operator", f"{name} {reason} the data decide")
    if written is not None:
        return written.call_method(tx, "copy_", items, {})
    return items[0] if isinstance(results[0], Tensor) else compat.TupleVariable(items)


def _may_draw(function: Any, args: Sequence[Value], kwargs: Given) -> bool:
    def known(value: Value) -> Any:
        return value.as_python_constant() if value.is_python_constant() else value

    facts = effects.facts_of_target(function)
    named = {key: known(each) for key, each in kwargs.items()}
    return facts.draws([known(each) for each in args], named)


# The form of a call


def call_of(name: str, args: Sequence[Value], kwargs: Given) -> _Call:
    """Return the call as the operator is given it.

    Raises:
        NotWritten: an argument is of a kind that it does not take.
    """
    given = operator.Form()
    parts = [_part(each, given) for each in args]
    named = {key: _part(each, given) for key, each in kwargs.items()}
    return _Call(name, operator.text(parts, named), given)


def _part(value: Value, given: operator.Form) -> list[Any]:
    value = value.realize()
    if isinstance(value, compat.TensorVariable) and is_plain(value):
        if compat.is_functorch_wrapped_tensor(example_of(value)):
            raise operator.NotWritten("a tensor of a transform")
        return given.tensor(value)
    if isinstance(value, compat.SymNodeVariable):
        return _number(value, given)
    if type(value) in _SEQUENCES:
        parts = [_part(each, given) for each in value.items]  # type: ignore[attr-defined]
        return operator.sequence(parts, is_tuple=type(value) is not compat.ListVariable)
    if value.is_python_constant():
        return operator.constant(value.as_python_constant())
    raise operator.NotWritten(type(value).__name__)


def _number(value: compat.SymNodeVariable, given: operator.Form) -> list[Any]:
    is_open, number = is_unbacked(value), value.sym_num
    if isinstance(number, torch.SymInt):
        return given.number(value, is_float=False) if is_open else given.size(value)
    if is_open and isinstance(number, torch.SymFloat):
        return given.number(value, is_float=True)
    raise operator.NotWritten(type(number).__name__)


def emitted(tx: compat.Tracer, call: _Call, *, is_recorded: bool) -> list[Value]:
    """Write the operator into the graph, and return its results."""
    given = call.given
    tensors = given.tensors
    if not is_recorded:
        tensors = [each.call_method(tx, "detach", [], {}) for each in tensors]
    floats: list[Value] = [float_tensors.as_operand(tx, each.as_proxy()) for each in given.floats]
    places = map(compat.ListVariable, (tensors, floats, given.integers, given.sizes))
    named = constant(call.name), constant(call.form)
    arguments = [*named, *places, constant(torch.is_grad_enabled())]
    results: Any = function_of(tx, operator.CALL).call_function(tx, arguments, {})
    return list(results.items)


# What the call gives, whatever the number


def results_of(tx: compat.Tracer, call: _Call) -> list[Any]:
    """Return what a call gives for some numbers; nothing where the graph cannot have it so.

    It can where the results are new tensors of one form for all numbers, and no argument changes.
    """
    examples, given = call.examples(), call.given
    versions = [each._version for each in examples]
    sizes = [each.sym_num for each in given.sizes]
    values = operator.Values(examples, given.floats, given.integers, sizes)
    with fake_mode_of(tx):
        found = operator.tried(call.name, call.form, values)
    if len(found) < 2 or versions != [each._version for each in examples]:
        return []
    is_new = all(_is_new(result, examples) for result in found)
    return found if is_new and len({_form_of(result) for result in found}) == 1 else []


def _tensors(result: Any) -> list[Any]:
    return list(result) if type(result) in (tuple, list) else [result]


def _is_new(result: Any, examples: Sequence[Tensor]) -> bool:
    """Return whether a result consists of tensors of memory of their own."""
    tensors = _tensors(result)
    if not tensors or not all(isinstance(each, Tensor) for each in tensors):
        return False
    memory = [storage_of(each) for each in (*tensors, *examples)]
    return all(memory.count(one) == 1 for one in memory[: len(tensors)])


def _form_of(result: Any) -> tuple[Any, ...]:
    """Return all that a trace knows of tensors, as text where it may be symbolic."""
    tensors = _tensors(result)
    forms = (
        (str(tuple(each.shape)), str(each.stride()), each.dtype, each.device, each.requires_grad)
        for each in tensors
    )
    return type(result), *forms


def is_recorded(result: Any) -> bool:
    return any(each.requires_grad for each in _tensors(result))


def _fits(result: Any, written: Any) -> bool:
    """Return whether a result is stored in a tensor as the function itself would store it."""
    example = example_of(written)
    return (
        isinstance(result, Tensor)
        and result.dtype is example.dtype
        and str(tuple(result.shape)) == str(tuple(example.shape))
    )
