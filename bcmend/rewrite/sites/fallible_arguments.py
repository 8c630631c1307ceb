"""Find what may fail when a deferred statement evaluates its arguments.

Eager execution raises such an error where the statement stands. So what may fail is tried when the
graph has run, before any of its effects on Python objects; after a trial that fails the call is
made again in eager mode. Whether something can be evaluated twice is judged by names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from inspect import CO_GENERATOR
from types import CodeType
from typing import Final

from bytecode import BinaryOp

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.conditions import called_name
from bcmend.analysis.facts import Facts
from bcmend.bytecode.opcodes import (
    BINARY_OPERATORS,
    BUILDS,
    CALLS,
    COMPARISONS,
    CONSTANT_LOADS,
    CONVERSIONS,
    COPIES,
    DISCARDS,
    FILLERS,
    FORMATS,
    FUNCTIONS,
    GENERATOR_STARTS,
    IDENTITIES,
    INVERSIONS,
    KEYWORD_NAMES,
    LOADS,
    NEGATIONS,
    NOTS,
    NULLS,
    SWAPS,
    has_format_specification,
    row,
)
from bcmend.knowledge.callable_names import REPEATABLE_CALLS
from bcmend.rewrite.sites.call_parts import (
    arguments_of,
    is_attribute_load,
    starred_arguments_of,
)
from bcmend.rewrite.sites.output_statements import OutputStatement
from bcmend.rewrite.sites.plan import CodeRange, Fails, Trial

_SAFE_OPERATIONS: Final = (LOADS | BUILDS | NULLS | COPIES | SWAPS | DISCARDS | FILLERS) | (
    KEYWORD_NAMES | FUNCTIONS | IDENTITIES | GENERATOR_STARTS | CONVERSIONS
)
_NUMBER_OPERATIONS: Final = NEGATIONS | NOTS | INVERSIONS | COMPARISONS
#: Methods that make one number of a tensor, if it is of floating-point numbers and not empty.
_REDUCTIONS: Final = frozenset(
    "sum mean std var norm prod all any median max min amax amin argmax argmin numel".split()
)
_SAFE_CALLS: Final = frozenset(
    "str repr ascii tolist detach cpu clone len type id isinstance is_contiguous dim flatten "
    "nonzero argwhere unique".split()
)
_NUMBER_CALLS: Final = frozenset("item float bool abs format".split())
#: Arguments of BINARY_OP that give a number of any two numbers.
_SAFE_ARITHMETIC: Final = frozenset([BinaryOp.ADD, BinaryOp.SUBTRACT, BinaryOp.MULTIPLY])
_SPECIFICATION: Final = re.compile(r"[^dxXobcns]*[fFeEgG%]\Z")
_REPEATABLE: Final = (REPEATABLE_CALLS - {"print"}) | frozenset(dir(math))


def trial_of(facts: Facts, statement: OutputStatement, inputs: Sequence[CodeRange]) -> Trial | None:
    """Return what to try of a statement; ``None`` if nothing can fail, or be evaluated twice.

    ``inputs`` are evaluated where the statement stands.
    """
    failures = {
        part: _failure(facts, part, inputs, statement.harmless)
        for part in _deferred_parts(facts, statement, inputs)
    }
    parts = tuple(part for part, failure in failures.items() if failure)
    used = (n for n, each in enumerate(inputs) if any(p.start <= each.start < p.end for p in parts))
    worst = max(failures.values(), default=Fails.NEVER)
    return None if worst in (Fails.NEVER, Fails.NOT_TWICE) else Trial(parts, frozenset(used), worst)


def may_fail(
    facts: Facts, part: CodeRange, inputs: Sequence[CodeRange], harmless: frozenset[str]
) -> bool:
    """Return whether what is deferred of a part of a statement may fail.

    ``harmless`` are globals that can be read at any time.
    """
    return _failure(facts, part, inputs, harmless) >= Fails.POSSIBLY


def _deferred_parts(
    facts: Facts, statement: OutputStatement, inputs: Sequence[CodeRange]
) -> Iterator[CodeRange]:
    """Yield what is deferred: arguments, or what builds those that are unpacked with stars."""
    arguments = arguments_of(facts, statement.start, statement.call)
    if arguments:
        yield from (each for each in arguments if each not in inputs)
    elif (starred := starred_arguments_of(facts, statement.start, statement.call)) is not None:
        yield starred


def _failure(
    facts: Facts, part: CodeRange, inputs: Sequence[CodeRange], harmless: frozenset[str]
) -> Fails:
    """Return when an expression fails."""
    early = {index for each in inputs for index in range(each.start, each.end)}
    deferred = (index for index in range(part.start, part.end) if index not in early)
    return max((_failure_at(facts, index, harmless) for index in deferred), default=Fails.NEVER)


def _failure_at(facts: Facts, index: int, harmless: frozenset[str]) -> Fails:
    instruction = facts.instructions[index]
    op, kind = instruction.op, row(instruction.op).reads
    if op in CALLS:
        return _failure_of_call(facts, index)
    if kind == "global":
        return Fails.NEVER if names_of(instruction) in harmless else Fails.NOT_TWICE
    if isinstance(instruction.arg, CodeType):
        return Fails.POSSIBLY if _is_repeatable(instruction.arg, harmless) else Fails.NOT_TWICE
    if op in BINARY_OPERATORS:
        return Fails.UNLESS_NUMBERS if instruction.arg in _SAFE_ARITHMETIC else Fails.POSSIBLY
    if op in FORMATS:
        return _failure_of_format(facts, index)
    if op in _NUMBER_OPERATIONS or instruction.target is not None:
        return Fails.UNLESS_NUMBERS
    if kind is not None or op in _SAFE_OPERATIONS:
        return Fails.NEVER
    return Fails.POSSIBLY


def _failure_of_call(facts: Facts, index: int) -> Fails:
    name = called_name(facts, index)
    if name in _SAFE_CALLS:
        return Fails.NEVER
    if name in _REDUCTIONS and _is_plain_method_call(facts, index):
        return Fails.UNLESS_USUAL
    if name in _NUMBER_CALLS:
        made = index - 1 - _is_plain_method_call(facts, index)
        return Fails.UNLESS_USUAL if _gives_one_number(facts, made) else Fails.UNLESS_NUMBERS
    if name in _REPEATABLE:
        return Fails.POSSIBLY
    return Fails.NOT_TWICE if name else Fails.POSSIBLY  # a comprehension, whose code is looked at


def _is_plain_method_call(facts: Facts, index: int) -> bool:
    """Return whether an instruction calls a method without arguments of what stands before it."""
    return facts.instructions[index].arg == 0 and is_attribute_load(facts, index - 1)


def _gives_one_number(facts: Facts, index: int) -> bool:
    if facts.instructions[index].op not in CALLS:
        return False
    name = called_name(facts, index)
    return name in _NUMBER_CALLS or (name in _REDUCTIONS and _is_plain_method_call(facts, index))


def _failure_of_format(facts: Facts, index: int) -> Fails:
    instruction = facts.instructions[index]
    if not has_format_specification(instruction.op, instruction.arg):
        return Fails.NEVER
    before = facts.instructions[index - 1]
    is_plain = isinstance(before.arg, str) and _SPECIFICATION.match(before.arg)
    if before.op not in CONSTANT_LOADS or not is_plain:
        return Fails.POSSIBLY
    return Fails.UNLESS_USUAL if _gives_one_number(facts, index - 2) else Fails.UNLESS_NUMBERS


def _is_repeatable(code: CodeType, harmless: frozenset[str]) -> bool:
    """Return whether a comprehension, by the names in it, can be run twice."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    is_shown = code.co_name.startswith("<") and code.co_name != "<lambda>"
    return (
        (is_shown or bool(code.co_flags & CO_GENERATOR))
        and all(name in _REPEATABLE or name in harmless for name in code.co_names)
        and all(_is_repeatable(each, harmless) for each in inner)
    )
