"""``range`` up to a number that was taken out of a tensor.

Dynamo wants to know how long a range is before it goes over it. In mended code, while a call is
captured whole, such a range stays open: whether its iterator has one more number is a question of
tensors, and the instruction that asks is split (``rewrite.splits``) into a half in which there is
one and a half in which there is none. The first comes back to the same instruction, so that the
loop is one that a tensor ends (``loops``).

An iterator here is never changed: the frame gets another one for each number that it takes. That
holds as long as it lies nowhere but on the stack of the loop that goes over it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import sympy
import torch
from torch._dynamo import graph_break_hints
from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import BuiltinVariable, TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.lists import RangeIteratorVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import backoff, calls, frames, scalars
from bcmend.runtime.held import has_a_name
from bcmend.runtime.merge import constant, example_of

__all__ = ["Exhausted", "OpenIterator", "install", "number_in", "with_number"]

_ITERATOR: Final = type(iter(range(0)))


class OpenRange(VariableTracker):
    """A range of which a bound is known to the data alone; its step is known.

    ``limit`` is a tensor with the number at which it stops.
    """

    def __init__(
        self,
        start: VariableTracker,
        stop: VariableTracker,
        step: int,
        limit: TensorVariable,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.start, self.stop, self.step, self.limit = start, stop, step, limit

    def python_type(self) -> type:
        return range

    def tp_iter_impl(self, tx: Any) -> VariableTracker:
        return OpenIterator(self, self.start)

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(
            lambda: codegen.append_output(codegen.create_load_python_module(range))
        )
        for part in (self.start, self.stop, constant(self.step)):
            codegen(part)
        codegen.extend_output(create_call_function(3, False))


class OpenIterator(VariableTracker):
    """An iterator over an open range that has come to ``following``.

    ``has_one`` says that this is in the range, which only a half of a split knows.
    """

    def __init__(
        self,
        goes_over: OpenRange,
        following: VariableTracker,
        *,
        has_one: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.goes_over, self.following, self.has_one = goes_over, following, has_one

    def python_type(self) -> type:
        return _ITERATOR

    def tp_iter_impl(self, tx: Any) -> VariableTracker:
        return self

    def tp_iternext_impl(self, tx: Any) -> VariableTracker:
        if not (tx.stack and tx.stack[-1] is self) or has_a_name(tx, self):
            _stop("its iterator is not that of a loop alone")
        if not self.has_one:
            if frames.ends_at_a_boundary(tx):
                backoff.split_where_read(tx, None)
            _stop("the loop over it cannot be lowered")
        following = _call(tx, operator.add, self.following, constant(self.goes_over.step))
        tx.stack[-1] = OpenIterator(self.goes_over, following)
        return self.following

    def condition(self, tx: Any) -> TensorVariable:
        """Return whether there is one more number."""
        compare = torch.gt if self.goes_over.step > 0 else torch.lt
        following: Any = self.following
        following = (
            scalars.integer_tensor(tx, following)
            if isinstance(following, SymNodeVariable)
            else following.as_python_constant()
        )
        return calls.function(tx, compare, self.goes_over.limit, following)

    def in_half(self, truth: bool) -> VariableTracker:
        """Return what it is where there is one more number, or none."""
        if not truth:
            return Exhausted()
        return OpenIterator(self.goes_over, self.following, has_one=True)

    def facts(self) -> list[Any]:
        """Return what is known of the number that the iterator has come to, if it is in the range.

        As torch writes it.
        """
        if not self.has_one:
            return []
        ends = self.goes_over.start, self.following, self.goes_over.stop
        start, following, stop = map(_expression, ends)
        if self.goes_over.step > 0:
            return [sympy.Le(start, following), sympy.Lt(following, stop)]
        return [sympy.Ge(start, following), sympy.Gt(following, stop)]


class Exhausted(RangeIteratorVariable):
    """An iterator over an open range that has no more numbers."""

    def __init__(self, **more: Any) -> None:
        super().__init__(0, 0, 1, 0, **more)


def number_in(value: VariableTracker) -> VariableTracker:
    """Return the number that an open iterator has come to; any other value as it is."""
    return value.following if isinstance(value, OpenIterator) else value


def with_number(value: VariableTracker, number: VariableTracker) -> VariableTracker:
    """Return an open iterator that has come to ``number``; ``number`` for any other value."""
    if not isinstance(value, OpenIterator):
        return number
    return OpenIterator(value.goes_over, number, has_one=value.has_one)


def _expression(number: Any) -> Any:
    """Return an integer as torch writes it."""
    if isinstance(number, SymNodeVariable):
        return number.sym_num.node.expr
    return sympy.Integer(number.as_python_constant())


def _call(tx: Any, function: Any, *arguments: VariableTracker) -> VariableTracker:
    result: VariableTracker = BuiltinVariable(function).call_function(tx, list(arguments), {})
    return result.realize()


def _stop(why: str) -> None:
    unimplemented(
        gb_type="bcmend: range up to a number out of a tensor",
        context=why,
        explanation=f"A range depends on the data, and {why}.",
        hints=[*graph_break_hints.FUNDAMENTAL],
    )


_DYNAMOS_RANGE: Final = BuiltinVariable.call_range


def _range(variable: BuiltinVariable, tx: Any, *arguments: VariableTracker) -> Any:
    given = [each.realize() for each in arguments]
    is_open = any(_depends_on_data(tx, each) for each in given)
    if is_open and len(given) <= 3 and scalars.may_take(tx):
        found = _open(tx, given)
        if found is not None:
            return found
    return _DYNAMOS_RANGE(variable, tx, *arguments)


def _depends_on_data(tx: Any, value: VariableTracker) -> bool:
    if isinstance(value, SymNodeVariable):
        # A number out of an argument has a known value, and a guard on it; better none.
        return bool(free_unbacked_symbols(value.sym_num)) or scalars.is_taken(tx, value)
    return _is_index(value)


def _is_index(value: VariableTracker) -> bool:
    """Whether a value is a tensor that Python takes for an integer."""
    if type(value) is not TensorVariable:
        return False
    example = example_of(value)
    is_integral = not (example.is_floating_point() or example.is_complex())
    return is_integral and example.dtype is not torch.bool and example.numel() == 1


def _open(tx: Any, given: Sequence[VariableTracker]) -> VariableTracker | None:
    bounds = [constant(0), *given] if len(given) == 1 else list(given)
    start, stop, step = bounds if len(bounds) == 3 else (*bounds, constant(1))
    if not (step.is_python_constant() and type(step.as_python_constant()) is int):
        return None
    first, end = (_number(tx, each) for each in (start, stop))
    if step.as_python_constant() == 0 or first is None or end is None:
        return None
    return OpenRange(first, end, step.as_python_constant(), scalars.integer_tensor(tx, end))


def _number(tx: Any, value: VariableTracker) -> VariableTracker | None:
    if _is_index(value):
        assert isinstance(value, TensorVariable)
        return scalars.take(tx, value)
    if isinstance(value, SymNodeVariable):
        return value if isinstance(value.sym_num, torch.SymInt) else None
    is_int = value.is_python_constant() and type(value.as_python_constant()) is int
    return value if is_int else None


def install() -> None:
    """Let Dynamo ask here first."""
    BuiltinVariable.call_range = _range  # type: ignore[assignment, method-assign]
