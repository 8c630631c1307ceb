"""Find what may fail when a deferred statement makes its arguments.

Eager execution raises such an error where the statement stands. So what may fail is tried when the
graph has run, before any of its effects on Python objects, and thrown away: a trial that fails is
a reason to make the call in plain Python. That is right only for what can be made twice, which is
judged here by names, and of the values by the trace.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from inspect import CO_GENERATOR
from opcode import _nb_ops  # type: ignore[attr-defined]
from types import CodeType
from typing import Final

from bcmend.analysis.conditions import called_name
from bcmend.analysis.effects import names_of
from bcmend.analysis.facts import Facts
from bcmend.codeobj.opcodes import row
from bcmend.rewrite.plan import Slice, Trial
from bcmend.rewrite.statements import (
    CALLS,
    OutputStatement,
    arguments_of,
    is_attribute_load,
    starred_arguments_of,
)
from bcmend.torch_knowledge import REPEATABLE_CALLS

__all__ = ["may_fail", "trial_of"]

_NEVER, _UNLESS_USUAL, _UNLESS_NUMBERS, _POSSIBLE = range(4)

_SAFE_OPERATIONS: Final = frozenset(
    "PUSH_NULL COPY SWAP POP_TOP KW_NAMES NOP MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE IS_OP "
    "RETURN_GENERATOR FORMAT_SIMPLE CONVERT_VALUE".split()
)
_NUMBER_OPERATIONS: Final = frozenset("UNARY_NEGATIVE UNARY_NOT UNARY_INVERT COMPARE_OP".split())
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
_SAFE_ARITHMETIC: Final = frozenset(
    number for number, (_, text) in enumerate(_nb_ops) if text in ("+", "-", "*")
)
_SPECIFICATION: Final = re.compile(r"[^dxXobcns]*[fFeEgG%]\Z")
_REPEATABLE: Final = (REPEATABLE_CALLS - {"print"}) | frozenset(dir(math))


def trial_of(facts: Facts, statement: OutputStatement, inputs: Sequence[Slice]) -> Trial | None:
    """Return what is to be tried of a statement; ``None`` if nothing can fail, or be made twice.

    Args:
        facts: the function.
        statement: the statement.
        inputs: what is evaluated where the statement stands.
    """
    known = _known_inputs(inputs)
    parts: list[Slice] = []
    used: set[int] = set()
    worst = _NEVER
    for part in _waiting(facts, statement, inputs):
        found = _chance(facts, part, known, statement.harmless)
        if found is None:
            return None
        worst = max(worst, found)
        if found:
            parts.append(part)
            used.update(n for n, each in enumerate(inputs) if part.start <= each.start < part.end)
    return Trial(tuple(parts), frozenset(used), worst) if parts else None


def may_fail(facts: Facts, part: Slice, inputs: Sequence[Slice], harmless: frozenset[str]) -> bool:
    """Whether a part of a statement may fail in what is evaluated later.

    Args:
        facts: the function.
        part: of the statement, the first argument or behind it.
        inputs: what is evaluated where the statement stands.
        harmless: globals that can be read at any time.
    """
    found = _chance(facts, part, _known_inputs(inputs), harmless)
    return found is None or found == _POSSIBLE


def _known_inputs(inputs: Sequence[Slice]) -> frozenset[int]:
    return frozenset(index for each in inputs for index in range(each.start, each.end))


def _waiting(facts: Facts, statement: OutputStatement, inputs: Sequence[Slice]) -> Iterator[Slice]:
    """Yield what is evaluated later: arguments, or what those with stars are put together by."""
    start, call = statement.start, statement.call
    arguments = arguments_of(facts, start, call)
    if arguments:
        yield from (each for each in arguments if each not in inputs)
    elif (starred := starred_arguments_of(facts, start, call)) is not None:
        yield starred


def _chance(
    facts: Facts, part: Slice, known: frozenset[int], harmless: frozenset[str]
) -> int | None:
    """Return how likely an expression fails; ``None`` if it must not be evaluated twice."""
    worst = _NEVER
    for index in range(part.start, part.end):
        if index in known:
            continue
        found = _chance_at(facts, index, harmless)
        if found is None:
            return None
        worst = max(worst, found)
    return worst


def _chance_at(facts: Facts, index: int, harmless: frozenset[str]) -> int | None:
    instruction = facts.instructions[index]
    op, kind = instruction.op, row(instruction.op).reads
    if op in CALLS:
        return _chance_of_call(facts, index)
    if kind == "global":
        return _NEVER if names_of(instruction) in harmless else None
    if isinstance(instruction.arg, CodeType):
        return _POSSIBLE if _is_repeatable(instruction.arg, harmless) else None
    if op == "BINARY_OP":
        return _UNLESS_NUMBERS if instruction.arg in _SAFE_ARITHMETIC else _POSSIBLE
    if op in ("FORMAT_VALUE", "FORMAT_WITH_SPEC"):
        return _chance_of_format(facts, index)
    if op in _NUMBER_OPERATIONS or instruction.target is not None:
        return _UNLESS_NUMBERS
    if kind is not None or op in _SAFE_OPERATIONS or op.startswith(("LOAD_", "BUILD_")):
        return _NEVER
    return _POSSIBLE


def _chance_of_call(facts: Facts, index: int) -> int | None:
    name = called_name(facts, index)
    if name in _SAFE_CALLS:
        return _NEVER
    if name in _REDUCTIONS and _is_plain_method_call(facts, index):
        return _UNLESS_USUAL
    if name in _NUMBER_CALLS:
        return _UNLESS_USUAL if _is_of_one_number(facts, index) else _UNLESS_NUMBERS
    if name in _REPEATABLE:
        return _POSSIBLE
    return None if name else _POSSIBLE  # a comprehension, whose code is looked at


def _is_plain_method_call(facts: Facts, index: int) -> bool:
    """Whether an instruction calls a method without arguments of what stands before it."""
    return facts.instructions[index].arg == 0 and is_attribute_load(facts, index - 1)


def _is_of_one_number(facts: Facts, index: int) -> bool:
    """Whether what a method, or a function of one argument, is called on is one number."""
    return _gives_one_number(facts, index - 1 - _is_plain_method_call(facts, index))


def _gives_one_number(facts: Facts, index: int) -> bool:
    if facts.instructions[index].op not in CALLS:
        return False
    name = called_name(facts, index)
    return name in _NUMBER_CALLS or (name in _REDUCTIONS and _is_plain_method_call(facts, index))


def _chance_of_format(facts: Facts, index: int) -> int:
    instruction = facts.instructions[index]
    if instruction.op == "FORMAT_VALUE" and not instruction.arg & 4:
        return _NEVER
    before = facts.instructions[index - 1]
    is_plain = isinstance(before.arg, str) and _SPECIFICATION.match(before.arg)
    if before.op != "LOAD_CONST" or not is_plain:
        return _POSSIBLE
    return _UNLESS_USUAL if _gives_one_number(facts, index - 2) else _UNLESS_NUMBERS


def _is_repeatable(code: CodeType, harmless: frozenset[str]) -> bool:
    """Whether a comprehension, by the names in it, can be run twice."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    is_shown = code.co_name.startswith("<") and code.co_name != "<lambda>"
    return (
        (is_shown or bool(code.co_flags & CO_GENERATOR))
        and all(name in _REPEATABLE or name in harmless for name in code.co_names)
        and all(_is_repeatable(each, harmless) for each in inner)
    )
