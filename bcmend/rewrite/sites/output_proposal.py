"""Propose to defer a statement that prints, logs or warns.

The statement becomes a function that is called when the records are delivered. What Dynamo can
trace is evaluated where the statement stands: whole arguments, and, of an argument that Dynamo
cannot evaluate, the variables and attributes that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Final

from bcmend.analysis.code_effects import touched
from bcmend.analysis.conditions import called_name, callees
from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.liveness import live_before
from bcmend.bytecode.decode import decode
from bcmend.bytecode.names_used import code_objects
from bcmend.bytecode.opcodes import CALLS, FUNCTIONS, row
from bcmend.knowledge.callable_names import SILENT_CALLS
from bcmend.rewrite.passes.unbound_marks import checks_in
from bcmend.rewrite.sites.argument_reads import bindings_in, early_reads, is_untraceable
from bcmend.rewrite.sites.call_parts import arguments_of, is_constant
from bcmend.rewrite.sites.fallible_arguments import may_fail, trial_of
from bcmend.rewrite.sites.output_statements import OutputStatement
from bcmend.rewrite.sites.plan import CodeRange, OutputLowering, SiteRefusal
from bcmend.rewrite.sites.shown_frames import shows_callers, shows_tracebacks, stack_level

_BINDS: Final = "a variable is bound inside the statement"


def propose_output(facts: Facts, statement: OutputStatement) -> OutputLowering | SiteRefusal:
    """Propose the deferral of an output statement."""
    start, call = statement.start, statement.call
    end = call + 1 + statement.is_dropped
    if not _is_closed(facts, start, end):
        return SiteRefusal("output-shape")
    if not (statement.is_dropped or statement.returns_none):
        return SiteRefusal("output-shape", "the result of the call is used")
    level = stack_level(facts, start, call)
    if level is None:
        return SiteRefusal("frame-introspection", "all frames of the stack decide what is written")
    unless_silent = "the callers are written too" if shows_callers(facts, start, call) else ""
    if (refusal := _unmovable(facts, start, call)) is not None:
        return refusal
    if unless_silent and (statement.callee is None or not statement.callee.method):
        return SiteRefusal("output-shape", unless_silent)
    own = _own_variables(facts, start, end)
    inputs = _inputs(facts, statement, own)
    if inputs is None:
        return SiteRefusal("output-shape", "an argument is read on one way only")
    rest = set(range(start, end)) - {i for part in inputs for i in range(part.start, part.end)}
    left = touched(facts, rest)
    if left.written - own:
        return SiteRefusal("output-shape", _BINDS)
    if left.read - own or left.cells:
        return SiteRefusal("output-shape", "a nested function in an argument")
    return OutputLowering(
        start,
        end,
        tuple(inputs),
        statement.callee,
        statement.is_dropped,
        unless_silent,
        level,
        shows_tracebacks(facts, start, call),
        trial_of(facts, statement, inputs),
    )


def _own_variables(facts: Facts, start: int, end: int) -> frozenset[str]:
    """Return the variables of comprehensions in a statement, which are read only there."""
    bindings = bindings_in(facts, CodeRange(start, end)).values()
    others = frozenset(facts.instructions[each.end - 1].arg for each in bindings)
    live = live_before(facts.graph, facts.liveness, start)
    if end < len(facts.instructions) and facts.stacks[end] is not None:
        live |= live_before(facts.graph, facts.liveness, end)
    return touched(facts, range(start, end)).written - others - live


def _inputs(
    facts: Facts, statement: OutputStatement, own: frozenset[str]
) -> list[CodeRange] | None:
    """Return what is to be evaluated at once; ``None`` where that cannot be separated."""
    start, call = statement.start, statement.call
    inputs: list[CodeRange] = []
    arguments = arguments_of(facts, start, call)
    for part in _parts(start, call, arguments):
        if part in arguments and not is_untraceable(facts, part):
            if not is_constant(facts, part):
                inputs.append(part)
            continue
        chains = list(early_reads(facts, part, statement.data, own, statement.missing))
        if None in chains:
            return None
        if part in arguments and _may_do_something(facts, part, chains):
            inputs.append(part)  # it cannot be deferred, whether Dynamo can evaluate it or not
            continue
        inputs += [chain for chain in chains if chain is not None]
    return None if _fails_too_late(facts, statement, arguments, inputs) else inputs


def _may_do_something(facts: Facts, part: CodeRange, now: Sequence[CodeRange | None]) -> bool:
    """Return whether what is deferred of an argument may change something, or depend on changes."""
    made = {index for each in now if each for index in range(each.start, each.end)}
    left = [index for index in range(part.start, part.end) if index not in made]
    nested = (facts.instructions[index].arg for index in left)
    return _call_something(facts, left) or any(
        _call_something(inner, range(len(inner.instructions)))
        for code in nested
        if isinstance(code, CodeType)
        for inner in (facts_of(decode(each)) for each in code_objects(code))
    )


def _call_something(facts: Facts, indices: Iterable[int]) -> bool:
    """Return whether one of these instructions calls what may be a function of the program."""
    return any(
        facts.instructions[index].op in CALLS
        and called_name(facts, index) not in SILENT_CALLS
        and not _calls_a_nested_function(facts, index)
        for index in indices
        if facts.stacks[index] is not None
    )


def _calls_a_nested_function(facts: Facts, call: int) -> bool:
    """Return whether a call is that of a comprehension or generator expression."""
    makers = frozenset[int]().union(*callees(facts, call))
    made = (facts.instructions[maker].op for maker in makers if maker >= 0)
    return any(op in FUNCTIONS for op in made)


def _fails_too_late(
    facts: Facts, statement: OutputStatement, arguments: list[CodeRange], inputs: list[CodeRange]
) -> bool:
    """Return whether what is deferred might have failed before an unbound variable does."""
    if not arguments:
        return False
    first = arguments[0].start
    checks = checks_in(facts, first, statement.call)
    cells = (each.start for each in inputs if _reads_own_cell(facts, each.start))
    last = max([*checks, *cells], default=first)
    return may_fail(facts, CodeRange(first, last), inputs, statement.harmless)


def _reads_own_cell(facts: Facts, index: int) -> bool:
    """Return whether a variable is read that nested functions share, and that may be unbound."""
    instruction = facts.instructions[index]
    captured = instruction.arg in facts.function.shape.freevars
    return row(instruction.op).reads == "cell" and not captured


def _unmovable(facts: Facts, start: int, call: int) -> SiteRefusal | None:
    """Return the refusal of a statement that depends on its frame, if it does."""
    touches = touched(facts, range(start, call + 1))
    if touches.introspects:
        return SiteRefusal("frame-introspection", touches.introspects)
    if touches.cells_written or touches.deleted:
        return SiteRefusal("output-shape", _BINDS)
    if touches.suspends:
        return SiteRefusal("generator")
    return None


def _is_closed(facts: Facts, start: int, end: int) -> bool:
    """Return whether control enters only at ``start`` and leaves only at ``end``."""
    jumps = ((n, each.target) for n, each in enumerate(facts.instructions))
    return all(
        start < target <= end if start <= index < end else not start < target < end
        for index, target in jumps
        if isinstance(target, int)
    )


def _parts(start: int, call: int, arguments: list[CodeRange]) -> Iterator[CodeRange]:
    """Yield the statement in order: its arguments, and what lies before and between them."""
    position = start
    for argument in arguments:
        if position < argument.start:
            yield CodeRange(position, argument.start)
        yield argument
        position = argument.end
    if position < call:
        yield CodeRange(position, call)
