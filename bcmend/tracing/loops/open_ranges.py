"""``range`` with an unbacked bound, a number that was taken out of a tensor.

Whether its iterator has one more number is a tensor, and the instruction that asks is split
(``rewrite.sites.split_points``) into a half in which there is one and a half in which there is
none. The first comes back to the same instruction, so that a tensor ends the loop
(``while_loops``).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from bcmend.dynamo import compat, frames, fx_graph, handlers, shape_env
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    function_of,
    is_unbacked,
)
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Edge, Root
from bcmend.tracing.numbers import scalars
from bcmend.tracing.sites import body_states, capture_mode


class LoopIterator(compat.VariableTracker):
    """An iterator that may lie nowhere but on the stack of the loop that goes over it.

    It is never changed: the frame gets another one for each number that it takes.
    """

    kind: type
    subject: str  # of a graph break
    explanation: str  # how that of a graph break begins

    def python_type(self) -> type:
        return self.kind

    @methods.implements(methods.ITER)
    def _iterator(self, tx: compat.Tracer) -> Value:
        return self

    def require_alone(self, tx: compat.Tracer) -> None:
        """Break the graph if something else than a loop may use the iterator."""
        own = roots.frames_of_the_function(tx)

        def is_of_the_loop(edge: Edge) -> bool:
            is_operand = edge.root is Root.OPERAND and edge.value is self
            return edge.is_of_bcmend or (is_operand and edge.is_of(own))

        is_on_top = bool(tx.stack) and tx.stack[-1] is self
        if not is_on_top or roots.is_held(tx, self, but=is_of_the_loop):
            self.stop(tx, "its iterator is not that of a loop alone")

    def asked_about(self) -> set[Any]:
        """Return the symbols of what decides how often the iterator gives something."""
        return set()

    def stop(self, tx: compat.Tracer, why: str) -> None:
        """Break the graph, if the number of turns cannot be had in front of it."""
        body_states.take_ahead(tx, self.asked_about())
        compat.unimplemented(
            gb_type=f"bcmend: {self.subject}",
            context=why,
            explanation=f"{self.explanation}, and {why}.",
            hints=[*compat.graph_break_hints.FUNDAMENTAL],
        )


class OpenRange(compat.VariableTracker):
    """A range with an unbacked bound and a known step; ``limit`` is a tensor of where it stops."""

    def __init__(
        self, start: Value, stop: Value, step: int, limit: TensorValue, **more: Any
    ) -> None:
        super().__init__(**more)
        self.start, self.stop, self.step, self.limit = start, stop, step, limit

    def python_type(self) -> type:
        return range

    def asked_about(self) -> set[Any]:
        """Return the symbols of its ends."""
        ends = [each for each in (self.start, self.stop) if is_unbacked(each)]
        return shape_env.symbols_in([each.sym_num for each in ends])

    @methods.implements(methods.ITER)
    def _iterator(self, tx: compat.Tracer) -> Value:
        return OpenIterator(self, self.start)

    def as_tensor(self, tx: compat.Tracer, device: Any = "cpu") -> TensorValue | None:
        """Return its numbers as integers of 64 bits; ``None`` for another step than one."""
        if self.step != 1:
            return None
        end = function_of(tx, torch.sym_max).call_function(tx, [self.start, self.stop], {})
        kind = {"dtype": torch.int64, "device": device}
        return fx_graph.function(tx, torch.arange, self.start, end, **kind)

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(
            lambda: codegen.append_output(codegen.create_load_python_module(range))
        )
        for part in (self.start, self.stop, constant(self.step)):
            codegen(part)
        codegen.extend_output(compat.create_call_function(3, False))


class OpenIterator(LoopIterator):
    """An iterator over an open range that has come to ``following``.

    ``has_one`` says that this is in the range, which only a half of a split knows.
    """

    kind = type(iter(range(0)))
    subject = "range up to a number out of a tensor"
    explanation = "A range depends on the data"

    def __init__(
        self, goes_over: OpenRange, following: Value, *, has_one: bool = False, **more: Any
    ) -> None:
        super().__init__(**more)
        self.goes_over, self.following, self.has_one = goes_over, following, has_one

    def asked_about(self) -> set[Any]:
        return self.goes_over.asked_about()

    @methods.implements(methods.ITERNEXT)
    def _next(self, tx: compat.Tracer) -> Value:
        self.require_alone(tx)
        if not self.has_one:
            if frames.is_captured_whole(tx):
                body_states.split_where_read(tx, None)
            self.stop(tx, "the loop over it cannot be lowered")
        add, step = compat.BuiltinVariable(operator.add), constant(self.goes_over.step)
        following = add.call_function(tx, [self.following, step], {}).realize()
        tx.stack[-1] = OpenIterator(self.goes_over, following)
        return self.following

    def condition(self, tx: compat.Tracer) -> TensorValue:
        """Return whether there is one more number."""
        compare = torch.gt if self.goes_over.step > 0 else torch.lt
        following: Any = self.following
        is_known = not isinstance(following, compat.SymNodeVariable)
        number = (
            following.as_python_constant() if is_known else scalars.integer_tensor(tx, following)
        )
        return fx_graph.function(tx, compare, self.goes_over.limit, number)

    def has_an_end(self, tx: compat.Tracer, turns: int) -> bool:
        """Return whether it is known that there are no more turns left than so many."""
        step = self.goes_over.step
        left = _expression(self.goes_over.stop) - _expression(self.following)
        limits = compat.bound_sympy(left, dict(tx.output.shape_env.var_to_range))
        most = limits.upper if step > 0 else -limits.lower
        return bool(most <= turns * abs(step))

    def in_half(self, truth: bool) -> Value:
        """Return what it is where there is one more number, or none."""
        if not truth:
            return containers.ExhaustedRange()
        return OpenIterator(self.goes_over, self.following, has_one=True)

    def facts(self) -> list[Any]:
        """Return as expressions that the number which the iterator has come to is in the range."""
        if not self.has_one:
            return []
        ends = self.goes_over.start, self.following, self.goes_over.stop
        start, following, stop = map(_expression, ends)
        if self.goes_over.step > 0:
            return [sympy.Le(start, following), sympy.Lt(following, stop)]
        return [sympy.Ge(start, following), sympy.Gt(following, stop)]


def as_open_range(tx: compat.Tracer, iterator: Any) -> OpenIterator:
    """Return an iterator over a known range, not yet at its end, as one over an open range."""
    start, stop, step = containers.bounds_left(iterator)
    first, end = constant(start), constant(stop)
    goes_over = OpenRange(first, end, step, scalars.integer_tensor(tx, end))
    return OpenIterator(goes_over, first, has_one=True)


def number_in(value: Value) -> Value:
    """Return the number that an open iterator has come to; any other value as it is."""
    return value.following if isinstance(value, OpenIterator) else value


def with_number(value: Value, number: Value) -> Value:
    """Return an open iterator that has come to ``number``; ``number`` for any other value."""
    if not isinstance(value, OpenIterator):
        return number
    return OpenIterator(value.goes_over, number, has_one=value.has_one)


def _expression(number: Any) -> Any:
    """Return an integer as torch writes it."""
    if isinstance(number, compat.SymNodeVariable):
        return number.sym_num.node.expr
    return sympy.Integer(number.as_python_constant())


@handlers.method(
    compat.BuiltinVariable, methods.CALL_RANGE, "a range up to a number out of a tensor"
)
def _range(call: Call) -> Answer:
    """Answer ``range(...)``."""
    given = [scalars.as_tensor(call.tx, each.realize()) for each in call.args]
    is_open = not call.kwargs and any(_is_data_dependent(call.tx, each) for each in given)
    if is_open and len(given) <= 3 and capture_mode.in_mended_code(call.tx):
        return _open(call.tx, given) or PASS
    return PASS


def _is_data_dependent(tx: compat.Tracer, value: Value) -> bool:
    if isinstance(value, compat.SymNodeVariable):
        # A number taken out of an argument is backed, with a guard on its value; better none.
        return is_unbacked(value) or scalars.is_taken(tx, value)
    return _is_index(value)


def _is_index(value: Value) -> bool:
    """Return whether a value is a tensor that Python takes for an integer."""
    if type(value) is not compat.TensorVariable:
        return False
    example = example_of(value)
    is_integral = not (example.is_floating_point() or example.is_complex())
    return is_integral and example.dtype is not torch.bool and example.numel() == 1


def _open(tx: compat.Tracer, given: Sequence[Value]) -> Value | None:
    bounds = [constant(0), *given] if len(given) == 1 else list(given)
    start, stop, step = bounds if len(bounds) == 3 else (*bounds, constant(1))
    if isinstance(step, compat.SymNodeVariable) or not is_number(step):
        return None
    first, end = (_number(tx, each) for each in (start, stop))
    if step.as_python_constant() == 0 or first is None or end is None:
        return None
    if not any(_is_data_dependent(tx, each) for each in (first, end)):
        # They were computed in front of the graph.
        return compat.BuiltinVariable(range).call_function(tx, [first, end, step], {}).realize()
    body_states.HAS_OPEN_RANGES.put(tx.output, True)
    return OpenRange(first, end, step.as_python_constant(), scalars.integer_tensor(tx, end))


def _number(tx: compat.Tracer, value: Value) -> Value | None:
    if _is_index(value):
        assert isinstance(value, compat.TensorVariable)
        return scalars.take(tx, value)
    return value if is_number(value) else None


def is_number(value: Value) -> bool:
    """Return whether a value is an integer, known or symbolic."""
    if isinstance(value, compat.SymNodeVariable):
        return isinstance(value.sym_num, torch.SymInt)
    return value.is_python_constant() and type(value.as_python_constant()) is int
