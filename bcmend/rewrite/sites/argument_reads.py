"""Determine what of a deferred statement's argument is evaluated where the statement stands.

Of an argument that Dynamo cannot evaluate, because it takes a number out of a tensor or makes text
of one, the variables and attributes are read at once; the rest waits until the record is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import CO_GENERATOR
from types import CodeType
from typing import Final

from bytecode import BinaryOp

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.conditions import called_name
from bcmend.analysis.facts import Facts
from bcmend.analysis.liveness import bound_before
from bcmend.analysis.stack import operands_needed
from bcmend.bytecode.names_used import formats
from bcmend.bytecode.opcodes import (
    BINARY_OPERATORS,
    CALLS,
    CELLS_THEMSELVES,
    COMPARISONS,
    CONSTANT_LOADS,
    COPIES,
    FORMATS,
    INVERSIONS,
    ITEM_READS,
    ITERATORS,
    KEYWORD_NAMES,
    MEMBERSHIPS,
    SLICE_READS,
    TRUTHS,
    converts_to_text,
    row,
)
from bcmend.knowledge.callable_names import (
    DEFERRED_ARGUMENT_CALLS,
    NEVER_TENSOR_ATTRIBUTES,
    REPEATABLE_CALLS,
)
from bcmend.rewrite.passes.unbound_marks import checks_in
from bcmend.rewrite.sites.call_parts import is_attribute_load, path_read, start_of
from bcmend.rewrite.sites.plan import CodeRange

#: Arguments of BINARY_OP for ``%`` and ``%=``.
_REMAINDERS: Final = frozenset([BinaryOp.REMAINDER, BinaryOp.INPLACE_REMAINDER])

#: Operators that may fail, or call code of the user's that has effects.
_OPERATIONS: Final = BINARY_OPERATORS | ITEM_READS | SLICE_READS | COMPARISONS | MEMBERSHIPS

_GIVE_A_MASK: Final = COMPARISONS | INVERSIONS


def is_untraceable(facts: Facts, part: CodeRange) -> bool:
    """Return whether Dynamo could not evaluate an argument on tensors."""
    checks = checks_in(facts, part.start, part.end)
    for index in range(part.start, part.end):
        is_check = any(start <= index < read for start, read in checks.items())
        if not is_check and _is_untraceable(facts, index):
            return True
    return False


def _is_untraceable(facts: Facts, index: int) -> bool:
    op, arg = facts.instructions[index].op, facts.instructions[index].arg
    return (
        facts.instructions[index].target is not None
        or op in CELLS_THEMSELVES
        or converts_to_text(op, arg)
        or _is_named_deferred(facts, index)
        or _formats_an_object(facts, index)
        # The size of `x[x > 0]` is data-dependent.
        or (op in ITEM_READS and facts.instructions[index - 1].op in _GIVE_A_MASK)
        or (isinstance(arg, CodeType) and _defers(arg))
        or (op in BINARY_OPERATORS and _formats_text(facts, index))
    )


def _is_named_deferred(facts: Facts, index: int) -> bool:
    """Return whether a name is that of a deferred call; a global called ``numpy`` is the module."""
    instruction = facts.instructions[index]
    name = names_of(instruction)
    is_module = name == "numpy" and row(instruction.op).reads == "global"
    return name in DEFERRED_ARGUMENT_CALLS and not is_module


def _formats_text(facts: Facts, index: int) -> bool:
    """Return whether an operator is the ``%`` of a literal string, which may format tensors."""
    begin = start_of(facts, index, 2)
    if begin is None or facts.instructions[index].arg not in _REMAINDERS:
        return False
    left = facts.instructions[begin]
    return left.op in CONSTANT_LOADS and isinstance(left.arg, str)


def _formats_an_object(facts: Facts, index: int) -> bool:
    """Return whether a part of an f-string may be an object.

    Dynamo formats the object itself, without the attributes that the trace has stored to it.
    """
    if facts.instructions[index].op not in FORMATS:
        return False
    made = facts.instructions[index - 1]
    is_read = row(made.op).reads is not None or is_attribute_load(facts, index - 1)
    return is_read and names_of(made) not in NEVER_TENSOR_ATTRIBUTES


def _defers(code: CodeType) -> bool:
    """Return whether a nested function, such as a comprehension, has a part to be deferred."""
    return formats(code) or not DEFERRED_ARGUMENT_CALLS.isdisjoint(code.co_names)


def early_reads(
    facts: Facts,
    part: CodeRange,
    data: frozenset[tuple[str, ...]],
    own: frozenset[str],
    missing: frozenset[str] = frozenset(),
) -> Iterator[CodeRange | None]:
    """Yield the longest reads of a variable and attributes of it, such as ``self.loss``.

    What stands behind a test is read before the test, and so only as far as that cannot fail.
    ``None`` stands for a read that may fail and that cannot be deferred either. What is bound to a
    variable is evaluated at once; the variables ``own`` are those of the statement alone, and the
    globals ``missing`` do not exist.
    """
    certain: set[tuple[object, ...]] = set()
    bindings = bindings_in(facts, part)
    bound = bound_before(facts.graph, facts.liveness, part.start)
    reach = index = part.start  # the furthest target of the jumps so far
    checks = checks_in(facts, part.start, part.end)
    while index < part.end:
        if index in checks:
            yield CodeRange(index, checks[index] + 1) if index >= reach else None
            index = checks[index] + 1
            continue
        instruction = facts.instructions[index]
        if isinstance(instruction.target, int):
            reach = max(reach, instruction.target)
        now = (
            None
            if index < reach
            else _evaluated_at_once(facts, CodeRange(index, part.end), bindings)
        )
        if now is not None:
            yield now
            index = now.end
            continue
        if not _is_variable_load(facts, index, data) or instruction.arg in own:
            index += 1
            continue
        end = min(index + len(path_read(facts, index)), part.end)
        if row(instruction.op).reads == "local" and instruction.arg not in bound:
            yield None
        elif index >= reach:
            certain.update(_path(facts, index, last) for last in range(index + 1, end + 1))
            yield CodeRange(index, end)
        else:
            yield _safe_read(facts, CodeRange(index, end), certain, bound, missing)
        index = end


def bindings_in(facts: Facts, part: CodeRange) -> dict[int, CodeRange]:
    """Return the operands in ``part`` that are bound to a variable, by their first instruction."""
    found = {}
    for index in range(part.start + 1, part.end):
        stored, before = facts.instructions[index], facts.instructions[index - 1]
        if row(stored.op).writes == "local" and before.op in COPIES:
            begin = start_of(facts, index - 1, 1)
            if begin is not None and begin >= part.start:
                found[begin] = CodeRange(begin, index + 1)
    return found


def _evaluated_at_once(
    facts: Facts, part: CodeRange, bindings: Mapping[int, CodeRange]
) -> CodeRange | None:
    """Return what is to be evaluated at once of an expression that begins with ``part``.

    That is the longest operand that Dynamo can evaluate and that has a call which may have effects
    or give something else later, or an operator, which may fail.
    """
    if part.start in bindings:
        return bindings[part.start]
    base = facts.depth_before(part.start)
    assert base is not None
    longest = None
    calls = False
    for index in range(part.start, part.end):
        instruction = facts.instructions[index]
        lowest = (facts.depth_before(index) or 0) - operands_needed(instruction)
        if lowest < base or is_untraceable(facts, CodeRange(index, index + 1)):
            break
        after = facts.depth_before(index + 1)
        if after is None or after <= base:
            break
        calls = calls or (
            called_name(facts, index) not in REPEATABLE_CALLS
            if instruction.op in CALLS
            else instruction.op in _OPERATIONS
        )
        # The call follows the names of its keywords, and what reads it a cast to a bool.
        is_whole = after == base + 1 and instruction.op not in KEYWORD_NAMES | TRUTHS
        if calls and is_whole and not _makes_a_generator(facts, index):
            longest = CodeRange(part.start, index + 1)
    return longest


def _makes_a_generator(facts: Facts, index: int) -> bool:
    """Return whether a call makes a generator expression, which runs nothing before it is read."""
    call, before = facts.instructions[index], facts.instructions[index - 1]
    if call.op not in CALLS or before.op not in ITERATORS:
        return False
    end = max(facts.operand(index, -2), default=-1) + 1
    made_of = (each.arg for each in reversed(facts.instructions[max(end - 3, 0) : end]))
    code = next((each for each in made_of if isinstance(each, CodeType)), None)
    return code is not None and bool(code.co_flags & CO_GENERATOR)


def _safe_read(
    facts: Facts,
    chain: CodeRange,
    certain: set[tuple[object, ...]],
    bound: frozenset[str],
    missing: frozenset[str],
) -> CodeRange | None:
    """Return as much of ``chain`` as can be read where it may not be reached.

    That is what the statement reads in any case, or else a variable that is bound. Deferred
    attributes have to be immutable ones.
    """
    ends = range(chain.end, chain.start, -1)
    end = next((each for each in ends if _path(facts, chain.start, each) in certain), chain.start)
    if end == chain.start:
        first = facts.instructions[chain.start]
        reads = row(first.op).reads
        captured = reads == "cell" and first.arg in facts.function.shape.freevars
        exists = reads == "global" and names_of(first) not in missing
        if first.arg not in bound and not captured and not exists:
            return None
        end += 1
    deferred = map(names_of, facts.instructions[end : chain.end])
    return CodeRange(chain.start, end) if NEVER_TENSOR_ATTRIBUTES.issuperset(deferred) else None


def _path(facts: Facts, start: int, end: int) -> tuple[object, ...]:
    return tuple(facts.instructions[index].arg for index in range(start, end))


def _is_variable_load(facts: Facts, index: int, data: frozenset[tuple[str, ...]]) -> bool:
    instruction = facts.instructions[index]
    known = row(instruction.op)
    if known.reads == "global":
        path = path_read(facts, index)
        is_data = any(path[: len(each)] == each for each in data)
        return is_data and known.effect(instruction.arg) == (0, 1)
    return known.reads in ("local", "cell") and known.pops == 0 and known.pushes == 1
