"""Questions that torch asks while it traces about unbacked sizes and numbers.

Some operations want to know whether a size is zero or one, say. In code that is mended, while a
call is captured whole, there are two answers where torch (``ShapeEnv``) would raise an error:

- *Implied*: inside an arm the condition of the branch holds. What an arm was told is remembered for
  the later stages of compilation, which trace the same arm again with the same symbols.
- *Assumed*: elsewhere a size is taken not to be the number that it is compared with, and to be two
  or more, and the graph asserts that. Where the assertion fails the boundary makes the call in
  plain Python. Only where the graph leaves no trace.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import sympy
import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.models.real_numbers import (
    Decided,
    decided,
    floats_in,
    is_doubtful,
    is_of_infinity,
    rules_out_nan,
)
from bcmend.dynamo.shape_env import (
    FACTS,
    being_lowered,
    holds_for_most,
    is_of_arm,
    of_extremes,
    symbols_in,
    told_by_assertions,
)
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, is_unbacked
from bcmend.tracing.numbers import filled_masks
from bcmend.tracing.sites.capture_mode import may_assert


@dataclass(slots=True, eq=False)
class _Knowledge:
    """What is known of the numbers of one trace.

    Attributes:
        answers: what was answered inside an arm; ``None`` where the answers were not the same.
        asserted: what need not be asserted, since it follows from the facts of an arm.
        assumed: the symbols of which the graph asserts something that the program does not.
        is_complete: whether the trace is, so that a later stage of compilation asks.
        is_asked: whether it is the program that asks, by a jump, and not an operation.
    """

    answers: dict[Any, Any] = field(default_factory=dict)
    asserted: set[Any] = field(default_factory=set)
    assumed: set[Any] = field(default_factory=set)
    is_complete: bool = False
    is_asked: bool = False


_KNOWLEDGE: Final = Slot(_Knowledge, rolls_back=False)


def begin_answering(environment: Any) -> None:
    """Answer questions from here on."""
    _KNOWLEDGE.of(environment)


def assumed_of(environment: Any) -> set[Any]:
    """Return the symbols of which the trace relies on something that the graph asserts."""
    return _KNOWLEDGE.of(environment).assumed


def _facts(tx: compat.Tracer) -> list[Any]:
    _KNOWLEDGE.of(tx.output.shape_env)
    return FACTS.of(tx.output.shape_env)


def _expression(condition: Value) -> Any:
    """Return the truth of a symbolic number as torch writes it; ``None`` for other conditions."""
    if not is_unbacked(condition):
        return None
    node = condition.sym_num.node
    expression = node.shape_env.simplify(node.expr)
    is_truth = isinstance(condition.sym_num, torch.SymBool)
    return expression if is_truth else sympy.Ne(expression, 0)


def holding(tx: compat.Tracer, condition: Value, truth: bool) -> AbstractContextManager[None]:
    """For the length of an arm, a condition is known to hold, or not to."""
    return facts(tx, _parts(tx, condition, truth))


@contextmanager
def facts(tx: compat.Tracer, found: Sequence[Any]) -> Iterator[None]:
    """For the length of a block something holds.

    Comparisons, written as torch writes them, and that masks select something.
    """
    known = _facts(tx)
    before = len(known)
    known.extend(each for each in found if each not in (sympy.true, sympy.false))
    try:
        yield
    finally:
        del known[before:]


def note_fact(tx: compat.Tracer, condition: Value, truth: bool) -> None:
    """From here on a condition holds, or does not, since the call is left otherwise."""
    _facts(tx).extend(_parts(tx, condition, truth))


def _parts(tx: compat.Tracer, condition: Value, truth: bool) -> Sequence[Any]:
    """Return what holds where a condition has a truth."""
    if type(condition) is compat.TensorVariable:
        mask = filled_masks.filled(tx, condition, truth)
        return () if mask is None else (mask,)
    if (expression := _expression(condition)) is None:
        return ()
    if floats_in(expression) and not rules_out_nan(condition.as_proxy().node.target, truth):
        return (Decided(expression, truth),)
    fact = expression if truth else sympy.Not(expression)
    return sympy.And.make_args(fact)  # type: ignore[no-any-return]


def fixed_by(tx: compat.Tracer, condition: Value) -> tuple[dict[Any, int], dict[Any, int]]:
    """Return the values that symbols have where a condition holds, and where it does not."""
    then, other = (_fixed(tx, _parts(tx, condition, truth)) for truth in (True, False))
    return then, other


def _fixed(tx: compat.Tracer, facts: Sequence[Any]) -> dict[Any, int]:
    ranges = dict(tx.output.shape_env.var_to_range)
    for fact in (comparisons := list(_comparisons(facts))):
        _narrow(ranges, fact)
    symbols = {each for fact in comparisons for each in compat.free_unbacked_symbols(fact)}
    limits = ((each, ranges[each]) for each in symbols if each in ranges)
    return {
        each: int(known.lower) for each, known in limits if known.is_int and known.is_singleton()
    }


def is_implied(condition: Value) -> bool:
    """Return whether what holds at this place of the trace decides a condition."""
    known: Any = condition
    expression = _expression(condition)
    return expression is not None and _implied(known.sym_num.node.shape_env, expression) is not None


def _implied(environment: Any, expression: Any) -> Any:
    """Return what follows from the facts; ``None`` if nothing does."""
    if (told := decided(expression, FACTS.of(environment))) is not None:
        return told
    facts = list(_comparisons(FACTS.of(environment)))
    if not facts or is_of_infinity(expression) or is_doubtful(expression, facts):
        return None
    ranges = dict(environment.var_to_range)
    for fact in facts:
        _narrow(ranges, fact)
    found = environment._maybe_evaluate_static(
        expression, axioms=tuple(facts), var_to_range=tuple(ranges.items())
    )
    return found if found in (sympy.true, sympy.false) else None


def _comparisons(facts: Sequence[Any]) -> Iterator[Any]:
    """Give the comparisons of numbers that hold."""
    for each in facts:
        if isinstance(each, filled_masks.Filled):
            yield from (sympy.Ge(count, 1) for count in each.counts())
        elif not (isinstance(each, Decided) or is_of_infinity(each)):
            yield each


def _narrow(ranges: dict[Any, Any], fact: Any) -> None:
    """Narrow the ranges of the numbers of which ``fact`` is a comparison."""
    for symbol, relation, other in _solved(fact):
        if symbol not in ranges:
            continue
        limits = compat.bound_sympy(other, ranges)
        known = ranges[symbol]
        if limits.is_int is not known.is_int:
            continue  # torch has no range of floating numbers that begins at an integer
        if isinstance(relation, sympy.Ne):
            if limits.is_singleton() and limits.lower == known.lower:
                ranges[symbol] = known & compat.ValueRanges(known.lower + 1, known.upper)
        else:
            ranges[symbol] = known & _allowed(relation, limits, known)


@functools.lru_cache(maxsize=1024)
def _solved(fact: Any) -> list[tuple[Any, Any, Any]]:
    """Return each number of a comparison, and how it compares with an expression of the others."""
    if not isinstance(fact, sympy.core.relational.Relational):
        return []
    symbols = compat.free_unbacked_symbols(fact)
    solved = [(each, compat.try_solve(fact, each)) for each in symbols]
    return [(symbol, *found) for symbol, found in solved if found is not None]


def _allowed(relation: Any, limits: Any, known: Any) -> Any:
    step = 1 if known.is_int else 0
    if isinstance(relation, sympy.Gt):
        return compat.ValueRanges(limits.lower + step, known.upper)
    if isinstance(relation, sympy.Ge):
        return compat.ValueRanges(limits.lower, known.upper)
    if isinstance(relation, sympy.Lt):
        return compat.ValueRanges(known.lower, limits.upper - step)
    if isinstance(relation, sympy.Le):
        return compat.ValueRanges(known.lower, limits.upper)
    return limits


def follows(environment: Any, question: Any) -> Any:
    """Return what the facts say of an assertion; ``None`` if they say nothing."""
    # Later stages of compilation make it once more, in the arm where it follows from them.
    known = _KNOWLEDGE.peek(environment)
    if known is None:
        return None
    question = environment.simplify(question)
    if translator_of_this_thread() is None or known.is_complete:
        # What an arm says of its own numbers holds wherever they are.
        symbols = compat.free_unbacked_symbols(question)
        is_own = all(is_of_arm(environment, each) for each in symbols)
        return sympy.true if not is_own and _form(question) in known.asserted else None
    found = _implied(environment, question)
    if found is sympy.true:
        known.asserted.add(_form(question))
    return found


def translator_of_this_thread() -> Any:
    """Return the translator of the frame that this thread is tracing; ``None`` if there is none."""
    return getattr(compat.translator_tls, "current_tx", None)


def complete(environment: Any) -> None:
    """Note that a trace is complete: from now on the stages of its compilation ask."""
    _KNOWLEDGE.of(environment).is_complete = True


_PURPOSE: Final = "questions about unbacked sizes"


@hooks.around(compat.ShapeEnv, methods.GUARD_OR_DEFER, "assertions of sizes in an arm", gate=None)
def _assert(inner: Any, self: Any, orig_expr: Any, *more: Any, **named: Any) -> bool:
    """Assert nothing that follows from the condition of an arm, or that only Inductor claims."""
    if follows(self, orig_expr) is sympy.true:
        return True
    if _is_a_claim_of_inductor(self, orig_expr):
        if told_by_assertions(self, self.simplify(orig_expr)) is sympy.true:
            return True
        raise self._make_data_dependent_error(orig_expr, orig_expr)
    return bool(inner(self, orig_expr, *more, **named))


def _is_a_claim_of_inductor(environment: Any, question: Any) -> bool:
    """Return whether Inductor takes numbers for equal of which the trace did not know it.

    It does where ``reshape(-1, 32)`` joins rows of a data-dependent number, and takes all of them
    together for 32 (``View._dynamic_reshape_indexer`` in torch/_inductor/ir.py), silently. Where
    that is an error it goes another way. Reproduced on torch 2.13.0; no issue is known. This can go
    when ``test_rows_that_are_joined_are_not_all_there_are`` in
    ``tests/tracing/backends/test_faults_of_torch.py`` fails.
    """
    known = _KNOWLEDGE.peek(environment)
    if known is None or not known.is_complete or being_lowered() is None:
        return False
    if not isinstance(question, sympy.Eq) or not compat.free_unbacked_symbols(question):
        return False
    return environment._maybe_evaluate_static(environment.simplify(question)) is None


@hooks.around(compat.ShapeEnv, methods.EVALUATE, _PURPOSE, gate=None)
def _evaluate_expr(inner: Any, self: Any, orig_expr: Any, *more: Any, **named: Any) -> Any:
    try:
        return _with_infinity(inner, self, orig_expr, *more, **named)
    except compat.GuardOnDataDependentSymNode:
        known = _KNOWLEDGE.peek(self)
        if known is None:
            raise
        answer = _answer(self, known, orig_expr)
        if answer is None:
            raise
        return answer


def _with_infinity(inner: Any, self: Any, question: Any, *more: Any, **named: Any) -> Any:
    """Ask torch, but about infinity: its bounds of an unbacked number do not tell that apart.

    Nor do they tell that a floating number may be NaN.
    """
    is_known = isinstance(question, bool) or not compat.free_unbacked_symbols(question)
    if is_known or not (is_of_infinity(question) or _is_asked_of_floats(self, question)):
        return inner(self, question, *more, **named)
    instead = named.get("fallback_value", more[_FALLBACK] if len(more) > _FALLBACK else None)
    if instead is None:
        raise self._make_data_dependent_error(question, question)
    return instead


#: Which argument behind the question is the answer where torch knows none.
_FALLBACK: Final = 3


def _is_asked_of_floats(environment: Any, question: Any) -> bool:
    """Return whether a trace that takes numbers asks about floating ones."""
    known = _KNOWLEDGE.peek(environment)
    is_traced = translator_of_this_thread() is not None
    return known is not None and is_traced and not known.is_complete and bool(floats_in(question))


def _answer(environment: Any, known: _Knowledge, question: Any) -> Any:
    if not isinstance(question, (sympy.core.relational.Relational, sympy.logic.boolalg.Boolean)):
        return None
    question = environment.simplify(question)
    if (decided := of_extremes(environment, question)) is not None:
        return decided
    tx = translator_of_this_thread()
    if tx is None or known.is_complete:
        told = known.answers.get(_form(question))
        return told_by_assertions(environment, question) if told is None else told
    found = _implied(environment, question)
    if found is not None:
        form = _form(question)
        known.answers[form] = found if known.answers.get(form, found) == found else None
        return found
    return None if known.is_asked else _assumed(environment, known, question, tx)


def _form(question: Any) -> Any:
    """Return a question with its symbols renamed by their order."""
    # An arm that is traced again makes new symbols for the numbers that it takes.
    symbols = sorted(
        compat.free_unbacked_symbols(question), key=lambda each: (len(each.name), each.name)
    )
    return question.xreplace({each: sympy.Symbol(f"n{at}") for at, each in enumerate(symbols)})


def _assumed(environment: Any, known: _Knowledge, question: Any, tx: compat.Tracer) -> Any:
    """Assume what holds for most sizes; ``None`` where nothing can be assumed."""
    truth = holds_for_most(question)
    if truth is None or not may_assert(tx):
        return None
    if not _are_made_in_the_graph(tx.output, compat.free_unbacked_symbols(question)):
        return None  # made in an arm, where nothing is asserted
    fact = question if truth else sympy.Not(question)
    environment.guard_or_defer_runtime_assert(fact, f"bcmend: assumed that {fact}")
    known.assumed |= fact.free_symbols
    return sympy.true if truth else sympy.false


def take_for(tx: compat.Tracer, size: Any, number: int | torch.SymInt) -> bool:
    """Have a size be a number wherever the graph is used; ``False`` if that cannot be asserted."""
    environment = tx.output.shape_env
    expression = number.node.expr if isinstance(number, torch.SymInt) else number
    question = environment.simplify(sympy.Eq(size.node.expr, expression))
    known = _told(environment, question)
    if known is sympy.false:
        return False
    if known is None:
        is_made = _are_made_in_the_graph(tx.output, compat.free_unbacked_symbols(question))
        if not (is_made and may_assert(tx)):
            return False
        environment.guard_or_defer_runtime_assert(question, f"bcmend: assumed that {question}")
        _KNOWLEDGE.of(environment).assumed |= question.free_symbols
    symbol = environment.simplify(size.node.expr)
    if isinstance(number, int) and symbol.is_Symbol:  # torch does not conclude it for 0 and 1
        environment.size_like.discard(symbol)
        environment.constrain_symbol_range(symbol, number, number)
    return True


def rule_out(tx: compat.Tracer, size: Any, number: int) -> bool:
    """Ensure that a size is not ``number`` wherever the graph is used; ``False`` if it may be."""
    # Torch silently takes that for granted in some operations.
    if not compat.free_unbacked_symbols(size):
        return True
    environment = tx.output.shape_env
    question = environment.simplify(sympy.Eq(size.node.expr, number))
    known = _told(environment, question)
    if known is None:
        known = _assumed(environment, _KNOWLEDGE.of(environment), question, tx)
    return known is sympy.false


def is_surely(tx: compat.Tracer, size: Any, number: int) -> bool:
    """Return whether a data-dependent size is known to be ``number`` here."""
    if not compat.free_unbacked_symbols(size):
        return False
    environment = tx.output.shape_env
    question = environment.simplify(sympy.Eq(size.node.expr, number))
    return _told(environment, question) is sympy.true


def claim(tx: compat.Tracer, *facts: Any) -> None:
    """Have the graph assert what its operations need and do not look at themselves."""
    # What is claimed in an arm is asserted if the arm is run whatever its condition (``asserted``).
    environment = tx.output.shape_env
    if not may_assert(tx):
        return
    symbolic = (each for each in facts if isinstance(each, torch.SymBool))  # else constants
    claimed = [environment.simplify(each.node.expr) for each in symbolic]
    claimed = [fact for fact in claimed if _told(environment, fact) is None]
    for fact in claimed:
        if _are_made_in_the_graph(tx.output, compat.free_unbacked_symbols(fact)):
            environment.guard_or_defer_runtime_assert(fact, f"bcmend: {fact}")


def _told(environment: Any, question: Any) -> Any:
    """Return what torch knows by itself or what follows from the facts; ``None`` if nothing."""
    known = environment._maybe_evaluate_static(question)
    return _implied(environment, question) if known is None else known


def _are_made_in_the_graph(output: compat.OutputGraph, symbols: Iterable[Any]) -> bool:
    missing = set(symbols)
    for node in reversed(output.root_tracer.graph.nodes):  # what is asked about is mostly new
        if not missing:
            break
        missing -= symbols_in(node.meta.get("example_value"))
    return not missing


@contextmanager
def unassumed(environment: Any) -> Iterator[None]:
    """Have nothing assumed for the length of a block: what it asks is not for the graph."""
    found = _KNOWLEDGE.peek(environment) or _Knowledge()
    before, found.is_asked = found.is_asked, True
    try:
        yield
    finally:
        found.is_asked = before


@hooks.around(compat.SymNodeVariable, methods.EVALUATE, _PURPOSE, gate=None)
def _asked_by_the_program(
    inner: Any, self: compat.SymNodeVariable, output_graph: Any = None
) -> Any:
    environment = getattr(getattr(self.sym_num, "node", None), "shape_env", None)
    with nullcontext() if environment is None else unassumed(environment):
        return inner(self, output_graph)
