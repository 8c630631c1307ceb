"""Questions that torch asks while it traces about sizes and numbers that only the data tell.

Some operations want to know whether a size is zero or one, say, before it is known. In code that is
mended, while a call is captured whole, there are two answers:

- *Implied*: inside an arm the condition of the branch holds. ``if len(index) > 0:`` says that the
  size is not zero there. What an arm was told is remembered for the later stages of compilation,
  which trace the same arm again with the same symbols.
- *Assumed*: elsewhere a size is taken not to be the number that it is compared with, and the graph
  asserts that. Where the assertion fails the boundary makes the call in plain Python, so that
  nothing is assumed that eager execution does not need. Only where the graph leaves no trace.

Everything else stays an error of torch's, which ends the graph. Extends ``ShapeEnv``
(torch/fx/experimental/symbolic_shapes.py) where it would raise, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import sympy
import torch
from torch._dynamo import symbolic_convert
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    ShapeEnv,
    free_unbacked_symbols,
)
from torch.utils._sympy.solve import try_solve
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = [
    "being_traced",
    "claim",
    "complete",
    "facts",
    "follows",
    "has_assumed",
    "holding",
    "install",
    "is_implied",
    "note_fact",
    "nothing_known",
    "settle",
    "symbols_in",
]


@dataclass(slots=True, eq=False)
class _Knowledge:
    """What is known of the numbers of one trace.

    Attributes:
        facts: what holds at this place of the trace.
        answers: what was answered inside an arm; ``None`` where the answers were not the same.
        asserted: what need not be asserted, since it follows from the facts of an arm.
        assumed: whether the graph asserts something that the program does not.
        is_complete: whether the trace is, so that a later stage of compilation asks.
        is_asked: whether it is the program that asks, by a jump, and not an operation.
    """

    facts: list[Any] = field(default_factory=list)
    answers: dict[Any, Any] = field(default_factory=dict)
    asserted: set[Any] = field(default_factory=set)
    assumed: bool = False
    is_complete: bool = False
    is_asked: bool = False


_NAME: Final = "_bcmend_knowledge"


def _knowledge(environment: Any) -> _Knowledge:
    found = getattr(environment, _NAME, None)
    if not isinstance(found, _Knowledge):
        found = _Knowledge()
        setattr(environment, _NAME, found)
    return found


def has_assumed(environment: Any) -> bool:
    """Whether the trace relies on something that the graph asserts."""
    found = getattr(environment, _NAME, None)
    return isinstance(found, _Knowledge) and found.assumed


# What the program has found out


def _expression(condition: VariableTracker) -> Any:
    """Return the truth of a symbolic number as torch writes it; ``None`` for other conditions."""
    if not isinstance(condition, SymNodeVariable) or not free_unbacked_symbols(condition.sym_num):
        return None
    node = condition.sym_num.node
    expression = node.shape_env.simplify(node.expr)
    is_truth = isinstance(condition.sym_num, torch.SymBool)
    return expression if is_truth else sympy.Ne(expression, 0)


@contextmanager
def holding(tx: Any, condition: VariableTracker, truth: bool) -> Iterator[None]:
    """For the length of an arm, a condition is known to hold, or not to."""
    facts = _knowledge(tx.output.shape_env).facts
    before = len(facts)
    note_fact(tx, condition, truth)
    try:
        yield
    finally:
        del facts[before:]


@contextmanager
def facts(tx: Any, found: Sequence[Any]) -> Iterator[None]:
    """For the length of a block, comparisons of numbers hold, written as torch writes them."""
    known = _knowledge(tx.output.shape_env).facts
    before = len(known)
    known.extend(each for each in found if each not in (sympy.true, sympy.false))
    try:
        yield
    finally:
        del known[before:]


@contextmanager
def nothing_known(environment: Any) -> Iterator[None]:
    """For the length of a block, no condition of an arm holds."""
    known = _knowledge(environment)
    before, known.facts = known.facts, []
    try:
        yield
    finally:
        known.facts = before


def note_fact(tx: Any, condition: VariableTracker, truth: bool) -> None:
    """From here on a condition holds, or does not, since the call is left otherwise."""
    expression = _expression(condition)
    if expression is not None:
        facts = _knowledge(tx.output.shape_env).facts
        facts.extend(_parts(expression if truth else sympy.Not(expression)))


def _parts(fact: Any) -> Sequence[Any]:
    return sympy.And.make_args(fact)  # type: ignore[no-any-return]


def is_implied(condition: VariableTracker) -> bool:
    """Whether what holds at this place of the trace decides a condition."""
    expression = _expression(condition)
    if expression is None:
        return False
    environment = condition.sym_num.node.shape_env  # type: ignore[attr-defined]
    return _implied(environment, expression) is not None


# What follows from it


def _implied(environment: Any, expression: Any) -> Any:
    """Return what follows from the facts; ``None`` if nothing does."""
    facts = _knowledge(environment).facts
    if not facts:
        return None
    ranges = dict(environment.var_to_range)
    for fact in facts:
        _narrow(ranges, fact)
    found = environment._maybe_evaluate_static(
        expression, axioms=tuple(facts), var_to_range=tuple(ranges.items())
    )
    return found if found in (sympy.true, sympy.false) else None


def _narrow(ranges: dict[Any, Any], fact: Any) -> None:
    """Narrow the ranges of the numbers of which ``fact`` is a comparison."""
    if not isinstance(fact, sympy.core.relational.Relational):
        return
    for symbol in free_unbacked_symbols(fact):
        solved = try_solve(fact, symbol)
        if solved is None or symbol not in ranges:
            continue
        relation, other = solved
        limits = bound_sympy(other, ranges)
        known = ranges[symbol]
        if isinstance(relation, sympy.Ne):
            if limits.is_singleton() and limits.lower == known.lower:
                ranges[symbol] = known & ValueRanges(known.lower + 1, known.upper)
        else:
            ranges[symbol] = known & _allowed(relation, limits, known)


def _allowed(relation: Any, limits: Any, known: Any) -> Any:
    step = 1 if known.is_int else 0
    if isinstance(relation, sympy.Gt):
        return ValueRanges(limits.lower + step, known.upper)
    if isinstance(relation, sympy.Ge):
        return ValueRanges(limits.lower, known.upper)
    if isinstance(relation, sympy.Lt):
        return ValueRanges(known.lower, limits.upper - step)
    if isinstance(relation, sympy.Le):
        return ValueRanges(known.lower, limits.upper)
    return limits


# What torch asks


def follows(environment: Any, question: Any) -> Any:
    """Return what the facts say of an assertion; ``None`` if they say nothing.

    The later stages of compilation make it once more, in the arm where it follows from them.
    """
    known = getattr(environment, _NAME, None)
    if not isinstance(known, _Knowledge):
        return None
    question = environment.simplify(question)
    if being_traced() is None or known.is_complete:
        return sympy.true if _form(question) in known.asserted else None
    found = _implied(environment, question)
    if found is sympy.true:
        known.asserted.add(_form(question))
    return found


def being_traced() -> Any:
    """Return the translator of the frame that this thread is tracing; ``None`` if there is none."""
    return getattr(symbolic_convert.tls, "current_tx", None)


def complete(environment: Any) -> None:
    """Note that a trace is complete: from now on the stages of its compilation ask."""
    _knowledge(environment).is_complete = True


_TORCHS: Final = ShapeEnv.evaluate_expr
_DYNAMOS: Final = SymNodeVariable.evaluate_expr


def _evaluate_expr(self: Any, orig_expr: Any, *more: Any, **named: Any) -> Any:
    try:
        return _with_infinity(self, orig_expr, *more, **named)
    except GuardOnDataDependentSymNode:
        known = getattr(self, _NAME, None)
        if not isinstance(known, _Knowledge):
            raise
        answer = _answer(self, known, orig_expr)
        if answer is None:
            raise
        return answer


def _with_infinity(self: Any, question: Any, *more: Any, **named: Any) -> Any:
    """Ask torch, whose bounds of a number have no difference to infinity: only the data tell."""
    is_symbolic = isinstance(question, sympy.Basic)
    if is_symbolic and question.has(sympy.oo, -sympy.oo) and free_unbacked_symbols(question):
        raise self._make_data_dependent_error(question, question)
    return _TORCHS(self, question, *more, **named)


def _answer(environment: Any, known: _Knowledge, question: Any) -> Any:
    if not isinstance(question, (sympy.core.relational.Relational, sympy.logic.boolalg.Boolean)):
        return None
    question = environment.simplify(question)
    tx = being_traced()
    if tx is None or known.is_complete:
        return known.answers.get(_form(question))
    found = _implied(environment, question)
    if found is not None:
        form = _form(question)
        known.answers[form] = found if known.answers.get(form, found) == found else None
        return found
    return None if known.is_asked else _assumed(environment, known, question, tx)


def _form(question: Any) -> Any:
    """Return a question with its symbols renamed by their order.

    An arm that is traced again makes new symbols for the numbers that it takes.
    """
    symbols = sorted(free_unbacked_symbols(question), key=lambda each: (len(each.name), each.name))
    return question.xreplace({each: sympy.Symbol(f"n{at}") for at, each in enumerate(symbols)})


def _assumed(environment: Any, known: _Knowledge, question: Any, tx: Any) -> Any:
    """Assume that a size is not the number that it is compared with; ``None`` where it may be."""
    if not isinstance(question, (sympy.Eq, sympy.Ne)) or not may_assume(tx):
        return None
    if not any(side.is_number for side in question.args):
        return None
    if not free_unbacked_symbols(question) <= _made_in_the_graph(tx.output):
        return None  # made in an arm, where nothing is asserted
    truth = isinstance(question, sympy.Ne)
    fact = question if truth else sympy.Not(question)
    environment.guard_or_defer_runtime_assert(fact, f"bcmend: assumed that {fact}")
    known.assumed = True
    return sympy.true if truth else sympy.false


def settle(tx: Any, size: Any, number: int) -> bool:
    """See to it that a size is not ``number`` wherever the graph is used; ``False`` if it may be.

    Torch silently takes that for granted in some operations.
    """
    if not free_unbacked_symbols(size):
        return True
    environment = tx.output.shape_env
    question = environment.simplify(sympy.Eq(size.node.expr, number))
    known = _told(environment, question)
    if known is None:
        known = _assumed(environment, _knowledge(environment), question, tx)
    return known is sympy.false


def claim(tx: Any, *facts: Any) -> None:
    """Have the graph assert what its operations need and do not look at themselves.

    What is claimed in an arm is asserted if the arm is run whatever its condition (``asserted``).
    """
    environment = tx.output.shape_env
    if not may_assume(tx):
        return
    symbolic = (each for each in facts if isinstance(each, torch.SymBool))  # else constants
    claimed = [environment.simplify(each.node.expr) for each in symbolic]
    claimed = [fact for fact in claimed if _told(environment, fact) is None]
    made = _made_in_the_graph(tx.output) if claimed else set()
    for fact in claimed:
        if free_unbacked_symbols(fact) <= made:
            environment.guard_or_defer_runtime_assert(fact, f"bcmend: {fact}")


def _told(environment: Any, question: Any) -> Any:
    """Return what torch knows by itself or what follows from the facts; ``None`` if nothing."""
    known = environment._maybe_evaluate_static(question)
    return _implied(environment, question) if known is None else known


def _nobody(tx: Any) -> bool:
    return False


#: Whether the graph being traced may assert what the program does not. Set by ``scalars``.
may_assume: Callable[[Any], bool] = _nobody


def _made_in_the_graph(output: Any) -> set[Any]:
    examples = (node.meta.get("example_value") for node in output.root_tracer.graph.nodes)
    return {symbol for each in examples for symbol in symbols_in(each)}


def symbols_in(value: Any) -> set[Any]:
    """Return the symbols of a number, of the sizes of a tensor, or of several of them."""
    if isinstance(value, (tuple, list)):
        return {symbol for each in value for symbol in symbols_in(each)}
    if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return set(free_unbacked_symbols(value))
    return set()


def _asked_by_the_program(self: SymNodeVariable, output_graph: Any = None) -> Any:
    known = getattr(getattr(self.sym_num, "node", None), "shape_env", None)
    found = getattr(known, _NAME, None)
    if not isinstance(found, _Knowledge):
        return _DYNAMOS(self, output_graph)
    before, found.is_asked = found.is_asked, True
    try:
        return _DYNAMOS(self, output_graph)
    finally:
        found.is_asked = before


def install() -> None:
    """Let torch ask here where it knows no answer."""
    ShapeEnv.evaluate_expr = _evaluate_expr  # type: ignore[method-assign]
    SymNodeVariable.evaluate_expr = _asked_by_the_program  # type: ignore[method-assign]
