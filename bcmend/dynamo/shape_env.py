"""What a trace knows and asserts of unbacked symbols, in parts that can be taken back.

``x[1]`` in an arm says that there are two rows at least. Torch asserts that for the whole graph and
relies on it, but it holds only where the arm is taken. ``taken_back`` removes it from the shape
environment and gives it to the arm; ``assert_again`` asserts it for the whole graph if the arm is
run whatever its condition.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sympy
import torch
from torch.fx import Proxy

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot

#: Functions of which torch caches the answers, whatever it comes to know since.
_REMEMBERED: Final[tuple[Any, ...]] = (
    compat.ShapeEnv.guard_or_defer_runtime_assert,
    compat.ShapeEnv._inner_evaluate_expr,
    compat.ShapeEnv._maybe_guard_rel,
)

_NUMBERS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)

#: The comparisons of symbols that hold at the present place of the trace.
FACTS: Final[Slot[list[Any]]] = Slot(list, rolls_back=False)


def allow_unbacked(environment: Any) -> None:
    """Let operations give numbers and tensors of sizes that depend on what tensors hold."""
    environment.settings = dataclasses.replace(
        environment.settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
    )


@contextmanager
def without_facts(environment: Any) -> Iterator[None]:
    """Have no condition of an arm hold for the length of a block."""
    before = FACTS.of(environment)
    FACTS.put(environment, [])
    try:
        yield
    finally:
        FACTS.put(environment, before)


#: Of each arm that is being traced again, from the innermost out, the number of its first symbol.
_FIRST_OF_ARM: Final[Slot[list[int]]] = Slot(list, rolls_back=False)


@contextmanager
def traced_again(environment: Any) -> Iterator[None]:
    """For the length of a block a stage of compilation traces an arm, whose symbols it makes."""
    first = _FIRST_OF_ARM.of(environment)
    first.append(environment.unbacked_symint_counter)
    try:
        yield
    finally:
        first.pop()


def is_of_arm(environment: Any, symbol: Any) -> bool:
    """Return whether a symbol was made by the innermost arm that is being traced again."""
    first, number = _FIRST_OF_ARM.of(environment), symbol.name.removeprefix("u")
    return bool(first) and number.isdecimal() and int(number) >= first[-1]


def being_lowered() -> Any:
    """Return the node that Inductor is lowering in this thread; ``None`` if there is none."""
    return getattr(compat.V.graph, "current_node", None)


def limits_of(number: Any) -> Any:
    """Return between which values a number is: one that is known, or symbolic, as torch knows."""
    if not isinstance(number, compat.SymNodeVariable):
        known = number.as_python_constant()
        return compat.ValueRanges(known, known)
    node = number.sym_num.node
    return compat.bound_sympy(node.expr, dict(node.shape_env.var_to_range))


def are_known(limits: Any) -> bool:
    """Return whether limits are two integers."""
    return isinstance(limits.lower, sympy.Integer) and isinstance(limits.upper, sympy.Integer)


def may_overflow(limits: Any) -> bool:
    """Return whether an integer may be more than a tensor holds; Python's have no limit."""
    return are_known(limits) and not -(2**63) <= limits.lower <= limits.upper < 2**63


def limit(number: Any, limits: Any) -> None:
    """Tell torch between which integers a symbol is; other values are left as they are."""
    if not isinstance(number, compat.SymNodeVariable):
        return
    node = number.sym_num.node
    is_integer = isinstance(number.sym_num, torch.SymInt) and node.expr.is_Symbol
    if is_integer and are_known(limits):
        node.shape_env.constrain_symbol_range(node.expr, int(limits.lower), int(limits.upper))


def symbols_in(value: Any) -> set[Any]:
    """Return the unbacked symbols of a number, of sizes of a tensor, or of several of them."""
    if isinstance(value, (tuple, list)):
        return {symbol for each in value for symbol in symbols_in(each)}
    if _has_plain_sizes(value):
        return set()  # as most: this is asked of all that a graph computes
    if isinstance(value, (torch.Tensor, *_NUMBERS)):
        return set(compat.free_unbacked_symbols(value))
    return set()


def _has_plain_sizes(value: Any) -> bool:
    is_strided = type(value) is compat.FakeTensor and value.layout is torch.strided
    return is_strided and not value._has_symbolic_sizes_strides


def reads_known_numbers(environment: Any, examples: Iterable[Any]) -> bool:
    """Return whether values depend on numbers that the graph is given inside of tensors.

    Torch knows these while it traces: floats of the program, and items of arguments.
    """
    found = {
        each for each, sources in environment.var_to_sources.items() if _is_held(each, sources)
    }
    return bool(found) and not found.isdisjoint(
        symbol for each in (*environment.replacements, *examples) for symbol in _all_symbols(each)
    )


def _is_held(symbol: Any, sources: Sequence[Any]) -> bool:
    """Return whether a tensor holds a number of a graph; sizes and integers are given as such."""
    return not symbol.is_integer or any(str(each.name).endswith(".item()") for each in sources)


def _all_symbols(value: Any) -> set[Any]:
    """Return the symbols of a number, of the form of a tensor, or of several of them."""
    if isinstance(value, (tuple, list)):
        return {symbol for each in value for symbol in _all_symbols(each)}
    is_symbolic = isinstance(value, (torch.Tensor, sympy.Basic, *_NUMBERS))
    return set(compat.free_symbols(value)) if is_symbolic else set()


def hint_of(number: Any) -> Any:
    """Return a number, or what a symbolic one is in the call being traced; ``None`` if unbacked."""
    if isinstance(number, (int, float)):
        return number
    node = number.node
    return node.hint if node.has_hint() else None


def computed_again(size: Any, tensors: Iterable[Any] = ()) -> Any:
    """Return a size, computed of its symbols two at a time; these are sizes of ``tensors``.

    For one that a graph does not have yet, torch writes a single product of three factors, of which
    the code of the graph has two (``_build_proxy_for_sym_expr``, torch 2.13.0).
    """
    if not isinstance(size, torch.SymInt) or not size.node.expr.args:
        return size
    environment, expression = size.node.shape_env, size.node.expr
    sizes: list[Any] = [
        size for each in tensors if isinstance(each, torch.Tensor) for size in each.size()
    ]
    given = {each.node.expr: each for each in sizes if isinstance(each, torch.SymInt)}
    numbers = {
        symbol: given[symbol]
        if symbol in given
        else environment.create_symintnode(symbol, hint=None)
        for symbol in expression.free_symbols
    }
    return computed_of(numbers, expression)


def computed_of(numbers: Mapping[Any, Any], expression: Any) -> Any:
    """Compute an expression of the numbers that its symbols are, or of what stands for them."""
    return compat.sympy_interp(_OnNumbers, dict(numbers), expression)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of Python, or write the call into the graph of a proxy."""
    for each in arguments:
        if isinstance(each, Proxy):
            return each.tracer.create_proxy("call_function", function, arguments, {})
    return function(*arguments)


class _OnNumbers(compat.PythonReferenceAnalysis):
    """What each operation is on numbers of Python, symbolic ones and proxies.

    In torch 2.13.0 some are those of sympy, or functions of Python that take no proxy.
    """

    @staticmethod
    def int_truediv(one: Any, other: Any) -> Any:
        return _called(operator.truediv, one, other)

    @staticmethod
    def trunc_to_int(number: Any, dtype: Any) -> Any:
        return _called(math.trunc, number)

    @staticmethod
    def ceil_to_int(number: Any, dtype: Any) -> Any:
        return _called(math.ceil, number)

    @staticmethod
    def floor_to_int(number: Any, dtype: Any) -> Any:
        return _called(math.floor, number)

    @staticmethod
    def round_to_int(number: Any, dtype: Any) -> Any:
        return _called(round, number)

    @staticmethod
    def round_decimal(number: Any, digits: Any) -> Any:
        return _called(round, number, digits)


class Knowledge:
    """What a shape environment knew at one moment; what it learns since can be taken back."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._ranges = dict(environment.var_to_range)
        self._replacements = dict(environment.replacements)
        asserts = environment.deferred_runtime_asserts
        self._asserted = {key: len(each) for key, each in asserts.items()}
        self._axioms = dict(environment.axioms)

    def take_back_older(self) -> list[Any]:
        """Forget what was asserted of symbols that were known then; return it."""
        environment = self._environment
        older: list[Any] = []
        fresh: list[Any] = []
        for key, every in environment.deferred_runtime_asserts.items():
            at = self._asserted.get(key, 0)
            if key in self._ranges:
                older += every[at:]
                del every[at:]
            else:
                fresh += every[at:]
        if older:
            self._restore(fresh)
            environment.num_deferred_runtime_asserts -= len(older)
            environment._version_counter += 1
            for function in _REMEMBERED:
                function.cache_clear()
        return older

    def take_back_all(self) -> None:
        """Forget what was asserted since, also of symbols made since."""
        self.take_back_older()
        asserts = self._environment.deferred_runtime_asserts
        for key in [each for each in asserts if each not in self._ranges]:
            self._environment.num_deferred_runtime_asserts -= len(asserts.pop(key))

    def _restore(self, fresh: Iterable[Any]) -> None:
        """Forget what was found out of older symbols; keep what ``fresh`` assertions say."""
        environment = self._environment
        for symbol, known in self._ranges.items():
            if compat.free_unbacked_symbols(symbol):
                environment.var_to_range[symbol] = known
        for symbol in environment.replacements.keys() - self._replacements.keys():
            if symbol in self._ranges and compat.free_unbacked_symbols(symbol):
                del environment.replacements[symbol]
        # Each number remembers what it was replaced by, as long as this stays the same.
        environment._replacements_version_counter += 1
        axioms = dict(self._axioms)
        for each in fresh:
            axioms.update(environment.get_implications(environment.simplify(each.expr)))
        environment.axioms.clear()
        environment.axioms.update(axioms)


@contextmanager
def taken_back(environment: Any) -> Iterator[list[Any]]:
    """Take back at the end of a block what was asserted in it of older symbols.

    The list that it yields is filled with it then.
    """
    found: list[Any] = []
    knowledge = Knowledge(environment)
    try:
        yield found
    finally:
        found.extend(knowledge.take_back_older())


def assert_again(tx: compat.Tracer, asserted: Iterable[Any]) -> None:
    """Assert at the present place of the trace what was asserted in an arm."""
    for each in asserted:
        tx.output.shape_env.guard_or_defer_runtime_assert(each.expr, each.msg)


def told_by_assertions(environment: Any, question: Any) -> Any:
    """Return what the assertions of a graph say of a comparison; ``None`` if nothing.

    torch finds ``u0 + 8 == 0`` to be false where just that is asserted, and not of
    ``u0 + 5 >= 0``.
    """
    asserts = environment.deferred_runtime_asserts.values()
    known = [part for every in asserts for each in every for part in sympy.And.make_args(each.expr)]
    return follows_from(known, question, dict(environment.var_to_range))


def follows_from(known: Sequence[Any], question: Any, ranges: Mapping[Any, Any]) -> Any:
    """Return the truth of a comparison of integers that follows from others; ``None`` if none."""
    number = _difference(question)
    if number is None:
        return None
    if sympy.expand(_maximum(question.lhs) - _maximum(question.rhs)) == 0:
        return question.func(0, 0)
    if isinstance(question, (sympy.Eq, sympy.Ne)):
        others = [_difference(each) for each in known if isinstance(each, sympy.Ne)]
        if any(
            sympy.expand(number - sign * each) == 0
            for each in others
            for sign in (1, -1)
            if each is not None
        ):
            return sympy.true if isinstance(question, sympy.Ne) else sympy.false
    least = [each for comparison in known for each in _never_negative(comparison)]
    limits = _limits(number, least, ranges)
    truth = compat.bound_sympy(question.func(_LIMITED, 0), {_LIMITED: limits})
    return truth.lower if truth.is_singleton() else None


def _maximum(number: Any) -> Any:
    """Return an integer written as the greatest of numbers without maxima, as far as it can be.

    Dynamo writes the length of a slice as ``Max(0, u1 - u0)``, Inductor as ``Max(u0, u1) - u0``.
    """
    found = set(_greatest_of(number))
    greatest: Any = compat.Max
    return greatest(*found) if len(found) > 1 else found.pop()


def _greatest_of(number: Any) -> list[Any]:
    """Return the numbers of which an integer is the greatest."""
    if isinstance(number, compat.Max):
        return [one for each in number.args for one in _greatest_of(each)]
    if not isinstance(number, (sympy.Add, compat.Min)):
        return [number.func(*map(_maximum, number.args)) if number.args else number]
    choices = [_greatest_of(each) for each in number.args]
    if math.prod(map(len, choices)) > _MOST_CHOICES:
        return [number]
    return [number.func(*each) for each in itertools.product(*choices)]


#: More numbers than this are not written out to find that two expressions are the same.
_MOST_CHOICES: Final = 16

#: Stands for a number of which the limits alone are known.
_LIMITED: Final = sympy.Symbol("limited", integer=True)


def _limits(number: Any, least: Sequence[Any], ranges: Mapping[Any, Any]) -> Any:
    """Return between which values an integer is where none of ``least`` is negative."""
    limits = [compat.bound_sympy(number, dict(ranges))]
    if all(each.is_integer for each in number.args):
        names = {each: sympy.Dummy(integer=True) for each in number.args if not each.is_number}
        parts = {name: _limits(each, least, ranges) for each, name in names.items()}
        if parts:
            written = number.func(*(names.get(each, each) for each in number.args))
            limits.append(compat.bound_sympy(written, parts))
    for each in least:
        above, below = (sympy.expand(part) for part in (number - each, number + each))
        lower = compat.bound_sympy(above, dict(ranges)).lower
        limits.append(compat.ValueRanges(lower, compat.bound_sympy(below, dict(ranges)).upper))
    found = limits[0]
    for each in limits[1:]:
        lower, upper = max(found.lower, each.lower), min(found.upper, each.upper)
        if lower <= upper:  # else the graph always fails
            found = compat.ValueRanges(lower, upper)
    return found


def _difference(comparison: Any) -> Any:
    """Return the left side of a comparison less the right one; ``None`` if it is no integer."""
    if not isinstance(comparison, sympy.core.relational.Relational):
        return None
    if not all(side.is_integer for side in comparison.args):
        return None
    return comparison.lhs - comparison.rhs


def _never_negative(known: Any) -> Iterator[Any]:
    """Yield the integers of which a comparison says that they are zero or more."""
    number = _difference(known)
    if number is None:
        return
    if isinstance(known, (sympy.Ge, sympy.Eq)):
        yield number
    if isinstance(known, (sympy.Le, sympy.Eq)):
        yield -number
    if isinstance(known, sympy.Gt):
        yield number - 1
    if isinstance(known, sympy.Lt):
        yield -number - 1


def holds_for_most(question: Any) -> bool | None:
    """Return whether a comparison of a size with a number holds for all sizes but a few.

    A size is unlikely to be a certain number, and likely to be two or more; so is one that was
    made longer.
    """
    is_comparison = isinstance(question, sympy.core.relational.Relational)
    if not (is_comparison and any(side.is_number for side in question.args)):
        return None
    if isinstance(question, (sympy.Eq, sympy.Ne)):
        return isinstance(question, sympy.Ne)
    size_is_greater = question.lts.is_number
    size, number = question.args if question.rhs.is_number else reversed(question.args)
    is_strict = isinstance(question, (sympy.Gt, sympy.Lt))
    # It asks whether ``size >= least``, or whether ``size < least``.
    least = number + (1 if is_strict is size_is_greater else 0)
    is_of_a_size = size.is_integer and number.is_integer and _grows(size)
    return size_is_greater if is_of_a_size and _of_twos(size) >= least else None


def _grows(size: Any) -> bool:
    """Return whether an expression is a sum of numbers and of sizes, each so many times."""
    return all(
        times.is_number and (part.is_number or (times > 0 and not part.is_Add))
        for times, part in (each.as_coeff_Mul() for each in sympy.Add.make_args(size))
    )


def _of_twos(size: Any) -> Any:
    """Return what a sum is where each of its sizes is 2."""
    parts = (each.as_coeff_Mul() for each in sympy.Add.make_args(size))
    return sum(times * (part if part.is_number else 2) for times, part in parts)


def of_extremes(environment: Any, question: Any) -> Any:
    """Return what is certain of a comparison with the greatest or the least of some numbers."""
    swapped = {sympy.Le: sympy.Ge, sympy.Lt: sympy.Gt}
    if type(question) in swapped:
        question = swapped[type(question)](question.rhs, question.lhs)
    if not isinstance(question, (sympy.Ge, sympy.Gt)):
        return None
    for place, of_any, of_all in ((0, compat.Max, compat.Min), (1, compat.Min, compat.Max)):
        extreme, other = question.args[place], question.args[1 - place]
        if not isinstance(extreme, (of_any, of_all)):
            continue
        pairs = [(each, other) if place == 0 else (other, each) for each in extreme.args]
        answers = {environment._maybe_evaluate_static(type(question)(*pair)) for pair in pairs}
        decisive = sympy.true if isinstance(extreme, of_any) else sympy.false
        if decisive in answers or len(answers) == 1:
            return decisive if decisive in answers else answers.pop()
    return None
