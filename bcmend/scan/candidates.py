"""Candidates in compiled files of other Pythons, which are read with xdis and cannot be planned."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from bcmend.bytecode.decode import canonical_name
from bcmend.bytecode.opcodes import (
    ATTRIBUTE_LOADS,
    CALLS,
    COMPARISONS,
    COPIES,
    DISCARDS,
    EXCEPTION_TESTS,
    EXITS,
    FILLERS,
    FORMATS,
    FUNCTIONS,
    IDENTITIES,
    JUMPS,
    LOOP_ENDS,
    MEMBERSHIPS,
    NOTS,
    NULLS,
    TRUTH_JUMPS,
    TRUTHS,
    VARIABLE_LOADS,
    has_format_specification,
)
from bcmend.knowledge.callable_names import FILTER_FUNCTIONS, LOGGER_METHODS, WARNING_FUNCTIONS
from bcmend.scan.found_sites import FoundSite, UnreadableFile, one_line

_OLDEST_READ: Final = (3, 8)

# Beside what supported Pythons have, what other ones have.
_CALLS: Final = CALLS | {"CALL_METHOD", "CALL_FUNCTION", "CALL_FUNCTION_KW"}
_LEFT_OUT: Final = FILLERS | {"CACHE", "EXTENDED_ARG"}
#: Instructions between a condition and its jump that leave a tensor a tensor, or a bool a bool.
_BETWEEN: Final = TRUTHS | COPIES | NOTS
#: A condition that one of these makes is a bool.
_MAKES_BOOL: Final = IDENTITIES | MEMBERSHIPS | EXCEPTION_TESTS | EXITS
#: Python 3.8 has no instructions of their own for these.
_BOOL_COMPARISONS: Final = frozenset(["is", "is-not", "in", "not-in", "exception-match"])
#: What to add to an effect where instructions are read one after another as if none jumped: of two
#: paths that join, one alone has pushed the operand, and a finished loop has pushed a placeholder.
_STRAIGHTENED: Final = {"JUMP_FORWARD": -1, "JUMP_ABSOLUTE": -1, **dict.fromkeys(LOOP_ENDS, 1)}


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction; `effect` is how many operands there are more after it, None if unknown."""

    op: str
    name: str
    line: int | None
    effect: int | None


def candidates_in(data: bytes, file: str) -> list[FoundSite]:
    """Return the candidates in a compiled file.

    Raises:
        UnreadableFile: xdis does not read it.
    """
    from xdis.load import load_module_from_file_object
    from xdis.op_imports import get_opcode_module

    try:
        loaded = load_module_from_file_object(io.BytesIO(data), file)
        version, code, implementation = loaded[0], loaded[3], loaded[4]
        if version < _OLDEST_READ:
            raise UnreadableFile(f"made by Python {version[0]}.{version[1]}, which is not read")
        opcodes = get_opcode_module(version, implementation)
        python = f"{version[0]}.{version[1]}"
        return list(_candidates(code, "", opcodes, file, python))
    except UnreadableFile:
        raise
    except Exception as error:
        # xdis documents no exceptions, and a broken file makes it raise many kinds
        raise UnreadableFile(f"broken or unknown .pyc file: {one_line(error)}") from error


def _candidates(code: Any, name: str, opcodes: Any, file: str, python: str) -> Iterator[FoundSite]:
    """Yield the candidates of a code object of xdis and of those in it."""
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    if is_function:
        steps = _steps(code, opcodes)
        for position, step in enumerate(steps):
            kind = _candidate_kind(steps, position)
            if kind:
                outcome = "candidate", None, None, f"needs Python {python} to be planned", python
                yield FoundSite(file, step.line, name, kind, *outcome)
    prefix = f"{name}.<locals>." if is_function else f"{name}." if name else ""
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from _candidates(constant, prefix + constant.co_name, opcodes, file, python)


def _steps(code: Any, opcodes: Any) -> list[_Step]:
    from xdis.bytecode import Bytecode
    from xdis.cross_dis import xstack_effect

    steps, line = [], None
    for each in Bytecode(code, opcodes):
        line = line if each.starts_line is None else each.starts_line
        if each.opname in _LEFT_OUT:
            continue
        effect = xstack_effect(each.opcode, opcodes, each.arg or 0, False)
        effect = _corrected(each.opname, each.arg or 0, effect)
        name = canonical_name(each.opname, each.arg)
        # The direction of a jump counts.
        steps.append(_Step(each.opname if name in JUMPS else name, str(each.argval), line, effect))
    return steps


def _corrected(op: str, argument: int, effect: int | None) -> int | None:
    """Return the effect of an instruction that does not jump, where xdis has another or none."""
    if op in FORMATS:
        return -has_format_specification(op, argument)  # a specification is an operand too
    if op in FUNCTIONS and effect is None:
        return -argument.bit_count()
    return -1 if op.endswith("_OR_POP") else effect


def _candidate_kind(steps: Sequence[_Step], position: int) -> str:
    """Return what the instruction is a candidate for; empty for none."""
    op = steps[position].op
    if canonical_name(op) in TRUTH_JUMPS:
        return "" if _is_bool(steps, position) else "branch"
    followed = position + 1 < len(steps) and steps[position + 1].op in DISCARDS
    return "output" if op in _CALLS and followed and _writes(steps, position) else ""


def _is_bool(steps: Sequence[_Step], jump: int) -> bool:
    """Return whether the condition of a jump is surely a bool, by the instruction that made it."""
    maker = jump - 1
    while maker > 0 and steps[maker].op in _BETWEEN:
        maker -= 1
    made = steps[maker]
    return made.op in _MAKES_BOOL or (made.op in COMPARISONS and made.name in _BOOL_COMPARISONS)


def _writes(steps: Sequence[_Step], call: int) -> bool:
    """Return whether what a call calls has the name of something that prints, logs or warns."""
    position = _start_of_operand(steps, call)
    if position is None:
        return False
    root, *others = steps[position + (steps[position].op in NULLS) : call]
    if root.op not in VARIABLE_LOADS:
        return False
    path = [each.name for each in takewhile(lambda each: each.op in ATTRIBUTE_LOADS, others)]
    if path:
        writes = path[-1] in LOGGER_METHODS or path[-1] in FILTER_FUNCTIONS
        return writes or path[-2:] in (["stdout", "write"], ["stderr", "write"])
    return root.name == "print" or root.name in WARNING_FUNCTIONS | FILTER_FUNCTIONS


def _start_of_operand(steps: Sequence[_Step], last: int) -> int | None:
    """Return the first of the instructions that together push one operand, up to `last`."""
    pushed = 0
    for position in range(last, -1, -1):
        step = steps[position]
        if step.effect is None:
            return None
        pushed += step.effect + _STRAIGHTENED.get(step.op, 0)
        if pushed == 1:
            return position
    return None
