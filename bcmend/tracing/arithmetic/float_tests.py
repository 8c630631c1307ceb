"""Functions of ``math`` and of numpy, of numbers out of tensors; of ``math`` also of tensors.

``math.isnan`` and its like are computed from the tensor of the number. ``math.sqrt`` and others
raise for numbers out of their range, where an operator of a back end gives NaN or infinity, and may
round otherwise. They are called inside the graph, and where they raise a side exit is taken. So are
those of numpy, where they would warn: Dynamo has them of arrays only, and rounds as torch does.
"""

from __future__ import annotations

import importlib
import math
import operator
import sys
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any, Final, TypeGuard

import torch

from bcmend import meta_keys
from bcmend.dynamo import compat, frames, fx_graph, handlers, operators
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    is_unbacked,
    kind_of_number,
)
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.sites import capture_mode, site_table
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, require_one_graph

_TESTS: Final = {
    "math.isnan": torch.isnan,
    "math.isinf": torch.isinf,
    "math.isfinite": torch.isfinite,
}

#: Those that torch has as operators of symbolic numbers, less those that are defined everywhere.
_PARTIAL: Final = (
    math.sqrt, math.log2, math.asin, math.acos, math.sin, math.cos, math.tan, math.sinh, math.cosh,
)  # fmt: skip
#: Those that torch has as such operators, and that give what Python gives.
_OF_NUMBERS: Final = (math.floor, math.ceil, math.tanh, math.atan)
#: Those of which torch would have to know the number.
_OF_CONSTANTS: Final = (
    math.acosh, math.asinh, math.atan2, math.atanh, math.cbrt, math.copysign, math.degrees,
    math.erf, math.erfc, math.exp, math.exp2, math.expm1, math.fabs, math.fmod, math.gamma,
    math.hypot, math.ldexp, math.lgamma, math.log, math.log10, math.log1p, math.pow, math.radians,
    math.remainder,
)  # fmt: skip
#: Those that give integers of integers, which may be longer than those of torch.
_OF_INTEGERS: Final = (
    math.comb, math.factorial, math.gcd, math.isqrt, math.lcm, math.perm,
)  # fmt: skip
_TYPES: Final[dict[Any, torch.dtype]] = {
    math.isclose: torch.bool,
    **dict.fromkeys(_OF_INTEGERS, torch.int64),
}
_KNOWN: Final = frozenset([*_PARTIAL, *_OF_NUMBERS, *_OF_CONSTANTS, *_TYPES])


@answers_to("float test")
def _tested(call: ReplacedCall) -> Answer:
    """Answer whether a number is NaN, infinite or finite."""
    (value,) = _numbers(call.tx, call.args)
    if not isinstance(value, compat.SymNodeVariable):
        return PASS
    require_one_graph(call.tx)
    if not isinstance(value.sym_num, torch.SymFloat):
        return constant(call.row.name == "math.isfinite")
    number = float_tensors.as_tensor(call.tx, value.as_proxy())
    test = _TESTS[call.row.name]
    return scalars.take(call.tx, fx_graph.function(call.tx, test, number.as_proxy())) or PASS


def _numbers(tx: compat.Tracer, arguments: Sequence[Value]) -> list[Value]:
    """Return arguments with the numbers out of tensors in place of these, as ``float`` has them."""
    found = [each.realize() for each in arguments]
    return [(scalars.take(tx, each) if _is_real(each) else None) or each for each in found]


def _is_real(value: Value) -> TypeGuard[compat.TensorVariable]:
    return type(value) is compat.TensorVariable and not example_of(value).is_complex()


# In the graph


def _run(
    name: str, numbers: Sequence[torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a function gives for numbers, and whether the call has to be made in Python."""
    try:
        found = getattr(math, name)(*[each.item() for each in numbers])
        return torch.tensor(found, dtype=dtype), torch.tensor(False)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # it raises, or leaves the range
        return torch.zeros((), dtype=dtype), torch.tensor(True)


def _fake(
    name: str, numbers: Sequence[torch.Tensor], dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    number, has_raised = (torch.empty((), dtype=each, device="cpu") for each in (dtype, torch.bool))
    return number, has_raised


def defined(signature: str, run: Callable[..., Any]) -> Any:
    """Define an operator that gives a number, and whether it is to be had in plain Python."""
    found = operators.define(signature, run, _fake, has_effect=False, skips_autograd=True)
    effects.declare(found, EffectFacts(is_total=True))
    return found


MATH: Final = defined(
    "math(str name, Tensor[] numbers, ScalarType dtype) -> (Tensor, Tensor)", _run
)


@handlers.method(
    compat.TorchInGraphFunctionVariable,
    methods.CALL_FUNCTION,
    "functions of `math` of numbers out of tensors",
    place=1,
)
def _computed(call: handlers.Call) -> Answer:
    """Answer what a function gives for numbers out of tensors, as it does in Python."""
    tx, function, (args, kwargs) = call.tx, call.owner.value, call.args
    if not _is_known(function) or kwargs or not args or not capture_mode.in_mended_code(tx):
        return PASS
    known = [each.realize() for each in args]
    if not any(_is_real(each) or is_unbacked(each) for each in known):
        return PASS
    numbers = _numbers(tx, known)
    if function in _OF_INTEGERS and set(map(kind_of_number, numbers)) != {int}:
        return PASS
    if _is_left_to_torch(function, numbers):
        if all(map(operator.is_, known, numbers)):
            return PASS
        result: Value = call.owner.call_function(tx, numbers, {})
        return result
    site = site_table.number_being_traced(tx, f"math.{function.__name__}")
    if site is None or not deferred_exceptions.can_exit(tx, site):
        return PASS
    dtype = _TYPES.get(function, torch.float64)
    return called_in_the_graph(tx, site, MATH, function.__name__, numbers, dtype) or PASS


def _is_known(function: Any) -> bool:
    return isinstance(function, BuiltinFunctionType) and function in _KNOWN


def _is_left_to_torch(function: Any, numbers: Sequence[Value]) -> bool:
    """Return whether torch has the value of a function, or an operator for it."""
    if all(each.is_python_constant() for each in numbers) or function in _OF_NUMBERS:
        return True
    return function is math.sqrt and _is_never_negative(numbers[0])


def _is_never_negative(value: Any) -> bool:
    if not isinstance(value, compat.SymNodeVariable) or isinstance(value.sym_num, torch.SymBool):
        return False
    return bool(compat.statically_known_true(value.sym_num >= 0))


def called_in_the_graph(
    tx: compat.Tracer,
    site: LiveSite | None,
    called_by: Any,
    name: str,
    numbers: Sequence[Value],
    *more: Any,
) -> Value | None:
    """Return the number that a function gives; ``None`` if an argument is no number.

    Where the function raises a side exit of ``site`` is taken; none is needed where it cannot.
    """
    operands = [_operand(tx, each) for each in numbers]
    if None in operands:
        return None
    arguments = (name, [each.as_proxy() for each in operands if each is not None], *more)
    proxy = tx.output.create_proxy("call_function", called_by, arguments, {})
    results: Any = compat.wrap_fx_proxy(tx, proxy)
    found, has_raised = results.items
    if site is not None:
        deferred_exceptions.make_side_exit(tx, site, has_raised)
        site.mended("operator", "called inside the graph")
    return scalars.take(tx, found)


def _operand(tx: compat.Tracer, number: Value) -> TensorValue | None:
    """Return a number as a 0-d tensor of Python's type; ``None`` of what is none."""
    if isinstance(number, compat.SymNodeVariable):
        if isinstance(number.sym_num, torch.SymInt):
            return scalars.integer_tensor(tx, number)
        return float_tensors.as_tensor(tx, number.as_proxy())
    known = number.as_python_constant() if number.is_python_constant() else None
    if type(known) is int:
        return scalars.integer_tensor(tx, number) if abs(known) < _OUT_OF_64_BITS else None
    if type(known) is not float:
        return None
    return fx_graph.function(tx, torch.full, (), known, dtype=torch.float64)


_OUT_OF_64_BITS: Final = 2**63


# Those of numpy

#: Those that give a number for numbers, beside all of its universal functions.
_OF_NUMPY: Final = frozenset(("clip", "round", "around"))
_KINDS: Final = {
    "float64": torch.float64,
    "int64": torch.int64,
    **dict.fromkeys(("bool", "bool_"), torch.bool),  # its name in numpy 2, and in numpy 1
}


def _called(name: str, numbers: Sequence[Any]) -> Any:
    """Return what a function of numpy gives. Raises ``FloatingPointError`` where it would warn."""
    numpy = importlib.import_module("numpy")  # torch works without it
    with numpy.errstate(divide="raise", over="raise", invalid="raise"):
        return getattr(numpy, name)(*numbers)


def _run_numpy(
    name: str, numbers: Sequence[torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a function gives for numbers, and whether the call has to be made in Python."""
    try:
        found = _called(name, [each.item() for each in numbers])
    except (ArithmeticError, ValueError):  # what it warns of, and a negative power of an integer
        return torch.zeros((), dtype=dtype), torch.tensor(True)
    is_other = _KINDS.get(type(found).__name__) is not dtype
    return torch.tensor(0 if is_other else found, dtype=dtype), torch.tensor(is_other)


NUMPY: Final = defined(
    "numpy(str name, Tensor[] numbers, ScalarType dtype) -> (Tensor, Tensor)", _run_numpy
)


@handlers.method(
    compat.NumpyVariable, methods.CALL_FUNCTION, "functions of numpy of numbers out of tensors"
)
def _computed_by_numpy(call: handlers.Call) -> Answer:
    """Answer what a function gives for numbers out of tensors, and other numbers, as numpy does."""
    tx, function, (args, kwargs) = call.tx, call.owner.value, call.args
    numbers = [each.realize() for each in args]
    is_asked = any(map(is_unbacked, numbers)) and _gives_numbers(function) and not kwargs
    if not is_asked or not capture_mode.in_mended_code(tx):
        return PASS
    dtype = _kind_given(function.__name__, numbers)
    site = site_table.number_being_traced(tx, f"numpy.{function.__name__}")
    if dtype is None or site is None or not deferred_exceptions.can_exit(tx, site):
        return PASS
    number = called_in_the_graph(tx, site, NUMPY, function.__name__, numbers, dtype)
    if isinstance(number, compat.SymNodeVariable):
        number.as_proxy().node.meta[meta_keys.OF_NUMPY] = True
    return number or PASS


def _gives_numbers(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    is_universal = type(function).__name__ == "ufunc" and function.nout == 1
    is_of_numpy = getattr(sys.modules["numpy"], name, None) is function
    return is_of_numpy and (is_universal or name in _OF_NUMPY)


def _kind_given(name: str, numbers: Sequence[Value]) -> torch.dtype | None:
    """Return the type of what a function gives for numbers like these; ``None`` of other things."""
    tried: list[Any] = []
    for each in numbers:
        if is_unbacked(each) and not isinstance(each.sym_num, torch.SymBool):
            tried.append(1.0 if isinstance(each.sym_num, torch.SymFloat) else 1)
        elif each.is_python_constant() and type(each.as_python_constant()) in (int, float):
            tried.append(each.as_python_constant())
        else:
            return None
    try:
        return _KINDS.get(type(_called(name, tried)).__name__)
    except (ArithmeticError, TypeError, ValueError):
        return None


# Where the call cannot be made again


def _leave_to_python(call: handlers.Call) -> Answer:
    """End the graph if the argument may be out of the range of a function."""
    value = call.args[0].realize() if len(call.args) == 1 else None
    # After a break the number is an argument, of which torch makes an operator as well.
    code = frames.resumed(call.tx.f_code)
    if not isinstance(value, compat.SymNodeVariable) or not frames.is_of_patched(code):
        return PASS
    if call.tx.one_graph or (call.function is math.sqrt and _is_never_negative(value)):
        return PASS  # as stock has it where a break is an error
    handlers.break_graph(
        "a function of a number that may be out of its range",
        f"math.{call.name}",
        "Whether it raises depends on the data.",
        hints=[f"Compute it of the tensor, as in `torch.{call.name}(x).item()`."],
    )


for _each in _PARTIAL:
    handlers.function(_each, f"`math.{_each.__name__}` of numbers out of tensors")(_leave_to_python)
