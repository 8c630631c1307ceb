"""Propose to defer a statement that prints, logs or warns.

The statement is a call whose result is dropped. It becomes a function to be called when the records
are delivered. What can be evaluated while Dynamo traces is, where the statement stands, and handed
over: arguments as they are, and, of an argument that Dynamo cannot evaluate (it takes a number out
of a tensor, say), the variables and attributes that it reads.
"""

from __future__ import annotations

import builtins
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from opcode import _nb_ops  # type: ignore[attr-defined]
from types import CodeType, ModuleType
from typing import Any

from bcmend.analysis.conditions import called_name
from bcmend.analysis.effects import names_of, touched
from bcmend.analysis.facts import Facts
from bcmend.analysis.liveness import bound_before
from bcmend.codeobj.opcodes import row
from bcmend.codeobj.scan import has_dropped_call
from bcmend.rewrite.plan import OutputLowering, Refusal, Slice
from bcmend.torch_knowledge import (
    DEFERRED_ARGUMENT_CALLS,
    LOGGER_METHODS,
    LOGGING_FUNCTIONS,
    NEVER_TENSOR_ATTRIBUTES,
    REPEATABLE_CALLS,
    WARNING_FUNCTIONS,
)

__all__ = ["OutputStatement", "may_write_output", "output_statements", "propose_output"]

_CALLS = frozenset(["CALL", "CALL_KW", "CALL_FUNCTION_EX"])
#: Arguments of BINARY_OP for ``%`` and ``%=``.
_REMAINDERS = frozenset(number for number, (_, text) in enumerate(_nb_ops) if text in ("%", "%="))
#: What may fail, or do something, in code of the user's.
_OPERATIONS = frozenset(["BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "COMPARE_OP", "CONTAINS_OP"])
_MISSING = object()
#: One of these, or another name of a function that writes, is named by every output statement.
_OUTPUT_NAMES = LOGGER_METHODS | WARNING_FUNCTIONS | {"print", "write"}


@dataclass(frozen=True, slots=True)
class OutputStatement:
    """A call that writes something, its result dropped.

    ``start`` is its first instruction, ``call`` the call; the POP_TOP follows. ``receiver`` is what
    has to be a logger, where names alone do not tell. ``data`` are the globals that may hold
    another value by the end of the call: neither functions nor modules.
    """

    start: int
    call: int
    receiver: Slice | None
    data: frozenset[str] = frozenset()


def may_write_output(code: CodeType, module_names: Mapping[str, Any]) -> bool:
    """Whether ``code`` can hold an output statement: a cheap look that never misses one."""
    written_by = frozenset(map(id, _written_by_functions()))
    return (
        not _OUTPUT_NAMES.isdisjoint(code.co_names)
        or any(id(module_names.get(name)) in written_by for name in code.co_names)
    ) and has_dropped_call(code)


def output_statements(facts: Facts, module_names: Mapping[str, Any]) -> Iterator[OutputStatement]:
    """Find the output statements of a function.

    Args:
        facts: the function.
        module_names: the globals of the function.
    """
    instructions = facts.instructions
    data = frozenset(name for name in _globals_read(facts) if not _is_fixed(name, module_names))
    for index, instruction in enumerate(instructions[:-1]):
        if instruction.op not in _CALLS or instructions[index + 1].op != "POP_TOP":
            continue
        if facts.stacks[index] is None:
            continue
        start = _start_of(facts, index, row(instruction.op).effect(instruction.arg)[0])
        if start is None:
            continue
        statement = _classify(facts, start, index, module_names)
        if statement is not None:
            yield replace(statement, data=data)


def _globals_read(facts: Facts) -> Iterator[str]:
    for instruction in facts.instructions:
        if row(instruction.op).reads == "global":
            yield names_of(instruction)


def _is_fixed(name: str, module_names: Mapping[str, Any]) -> bool:
    """Whether a global is a function, a class or a module, which programs do not bind again."""
    value = module_names.get(name, getattr(builtins, name, None))
    return callable(value) or isinstance(value, ModuleType)


def _start_of(facts: Facts, index: int, count: int) -> int | None:
    """Return where the pushing of the top ``count`` operands before ``index`` begins."""
    depth = facts.depth_before(index)
    assert depth is not None
    base = depth - count
    for candidate in range(index - 1, -1, -1):
        at = facts.depth_before(candidate)
        if at is None or at < base:
            return None
        if at == base:
            return candidate
    return None


def _classify(
    facts: Facts, start: int, call: int, module_names: Mapping[str, Any]
) -> OutputStatement | None:
    """Say whether the call that begins at ``start`` writes something."""
    position = start
    if facts.instructions[position].op == "PUSH_NULL":
        position += 1
    first = facts.instructions[position]
    kind = row(first.op).reads
    path: list[str] = []
    root = names_of(first)
    begin = position
    position += 1
    while position < call and _is_attribute_load(facts, position):
        path.append(names_of(facts.instructions[position]))
        position += 1
    if kind == "global":
        value = module_names.get(root, getattr(builtins, root, _MISSING))
        if value is not _MISSING:
            return _of_object(start, call, value, path, Slice(begin, position - 1))
    if kind in ("local", "cell", "global") and path and path[-1] in LOGGER_METHODS:
        return OutputStatement(start, call, Slice(begin, position - 1))
    return None


def _is_attribute_load(facts: Facts, index: int) -> bool:
    known = row(facts.instructions[index].op)
    return (
        known.argument in ("name", "flagged_name")
        and known.reads is None
        and known.effect(facts.instructions[index].arg)[0] == 1
        and known.effect(facts.instructions[index].arg)[1] >= 1
    )


def _of_object(
    start: int, call: int, value: object, path: list[str], receiver: Slice
) -> OutputStatement | None:
    plain = OutputStatement(start, call, None)
    if not path:
        writes = value in _written_by_functions()
        return plain if writes else None
    if len(path) == 1:
        if value is warnings:
            return plain if path[0] in WARNING_FUNCTIONS else None
        if value is logging:
            return plain if path[0] in LOGGING_FUNCTIONS else None
        if value is builtins and path[0] == "print":
            return plain
        if isinstance(value, (logging.Logger, logging.LoggerAdapter)):
            return plain if path[0] in LOGGER_METHODS else None
    if value is sys and path in (["stdout", "write"], ["stderr", "write"]):
        return plain
    if path[-1] in LOGGER_METHODS and not isinstance(value, type(sys)):
        return OutputStatement(start, call, receiver)
    return None


def _written_by_functions() -> tuple[object, ...]:
    functions: list[Callable[..., object]] = [print, warnings.warn, warnings.warn_explicit]
    functions += [getattr(logging, name) for name in LOGGING_FUNCTIONS if hasattr(logging, name)]
    return tuple(functions)


def propose_output(facts: Facts, statement: OutputStatement) -> OutputLowering | Refusal:
    """Propose the deferral of an output statement."""
    start, call = statement.start, statement.call
    end = call + 2
    if not _is_closed(facts, start, end):
        return Refusal("output-shape")
    refusal = _unmovable(facts, start, call)
    if refusal is not None:
        return refusal
    inputs: list[Slice] = []
    arguments = _arguments(facts, start, call)
    for part in _parts(start, call, arguments):
        if part in arguments and not _must_wait(facts, part):
            if not _is_constant(facts, part):
                inputs.append(part)
        else:
            chains = list(_chains(facts, part, statement.data))
            if None in chains:
                return Refusal("output-shape", "an argument is read on one way only")
            inputs += [chain for chain in chains if chain is not None]
    rest = set(range(start, end)) - {i for part in inputs for i in range(part.start, part.end)}
    left = touched(facts, rest)
    if left.read or left.cells:
        return Refusal("output-shape", "a nested function in an argument")
    return OutputLowering(start, end, tuple(inputs), statement.receiver)


def _unmovable(facts: Facts, start: int, call: int) -> Refusal | None:
    """Refuse a statement that is bound to its frame or its moment."""
    touches = touched(facts, range(start, call + 2))
    if touches.introspects:
        return Refusal("frame-introspection", touches.introspects)
    if touches.written or touches.cells_written or touches.deleted:
        return Refusal("output-shape", "a variable is bound inside the statement")
    if touches.suspends:
        return Refusal("generator")
    if _needs_the_exception(facts, start, call):
        return Refusal("output-shape", "the exception being handled is written too")
    return None


def _needs_the_exception(facts: Facts, start: int, call: int) -> bool:
    """Whether the call looks at the exception being handled, which is gone at the end."""
    for index in range(start, call):
        instruction = facts.instructions[index]
        if names_of(instruction) == "exception":
            return True
        if isinstance(instruction.arg, tuple) and "exc_info" in instruction.arg:
            return True
    return False


def _is_closed(facts: Facts, start: int, end: int) -> bool:
    """Whether control enters only at ``start`` and leaves only at ``end``."""
    for index, instruction in enumerate(facts.instructions):
        target = instruction.target
        if not isinstance(target, int):
            continue
        if start <= index < end:
            if not start < target <= end:
                return False
        elif start < target < end:
            return False
    return True


def _arguments(facts: Facts, start: int, call: int) -> list[Slice]:
    """Return the slices of the arguments of a plain call."""
    instruction = facts.instructions[call]
    if instruction.op == "CALL_FUNCTION_EX":
        return []
    top = call
    if instruction.op == "CALL":
        if top > start and facts.instructions[top - 1].op == "KW_NAMES":
            top -= 1
    else:
        top -= 1  # the names of the keywords
    slices = []
    for _ in range(instruction.arg):
        begin = _start_of(facts, top, 1)
        while begin is not None and _is_jumped_into(facts, start, begin, top):
            # Only one of the ways to this argument begins here: it is an `or`, or a ternary.
            begin = _start_of(facts, begin, 0)
        if begin is None or begin <= start:
            return []
        slices.append(Slice(begin, top))
        top = begin
    return slices[::-1]


def _is_jumped_into(facts: Facts, start: int, begin: int, end: int) -> bool:
    """Whether a jump of the statement from before ``begin`` lands behind it."""
    targets = (facts.instructions[index].target for index in range(start, begin))
    return any(isinstance(target, int) and begin < target <= end for target in targets)


def _parts(start: int, call: int, arguments: list[Slice]) -> Iterator[Slice]:
    """Yield the statement in order: its arguments, and what lies before and between them."""
    position = start
    for argument in arguments:
        if position < argument.start:
            yield Slice(position, argument.start)
        yield argument
        position = argument.end
    if position < call:
        yield Slice(position, call)


def _must_wait(facts: Facts, part: Slice) -> bool:
    """Whether Dynamo could not evaluate an argument on tensors."""
    for index in range(part.start, part.end):
        instruction = facts.instructions[index]
        if instruction.target is not None or instruction.op == "CONVERT_VALUE":
            return True
        if instruction.op == "FORMAT_VALUE" and instruction.arg & 3:
            return True
        if names_of(instruction) in DEFERRED_ARGUMENT_CALLS:
            return True
        if instruction.op in ("MAKE_FUNCTION", "LOAD_CLOSURE"):
            return True
        if instruction.op == "BINARY_OP" and _formats_text(facts, index):
            return True
    return False


def _formats_text(facts: Facts, index: int) -> bool:
    """Whether an operator is the ``%`` of a literal text: it may take numbers out of tensors."""
    begin = _start_of(facts, index, 2)
    if begin is None or facts.instructions[index].arg not in _REMAINDERS:
        return False
    left = facts.instructions[begin]
    return left.op == "LOAD_CONST" and isinstance(left.arg, str)


def _is_constant(facts: Facts, part: Slice) -> bool:
    return part.end - part.start == 1 and facts.instructions[part.start].op == "LOAD_CONST"


def _chains(facts: Facts, part: Slice, data: frozenset[str]) -> Iterator[Slice | None]:
    """Yield the longest reads of a variable and attributes of it, such as ``self.loss``.

    What stands behind a test is read before the test is made, and so as far only as that cannot
    fail. Yields ``None`` for a read that may fail, of which nothing can be left for later either.
    """
    certain: set[tuple[object, ...]] = set()
    bound = bound_before(facts.graph, facts.liveness, part.start)
    reach = index = part.start  # how far the jumps made so far go
    while index < part.end:
        instruction = facts.instructions[index]
        if isinstance(instruction.target, int):
            reach = max(reach, instruction.target)
        now = None if index < reach else _made_now(facts, Slice(index, part.end))
        if now is not None:
            yield now
            index = now.end
            continue
        if not _is_variable_load(facts, index, data):
            index += 1
            continue
        end = index + 1
        while end < part.end and _is_plain_attribute(facts, end):
            end += 1
        if row(instruction.op).reads == "local" and instruction.arg not in bound:
            yield None
        elif index >= reach:
            certain.update(_path(facts, index, last) for last in range(index + 1, end + 1))
            yield Slice(index, end)
        else:
            yield _certain_read(facts, Slice(index, end), certain, bound)
        index = end


def _made_now(facts: Facts, part: Slice) -> Slice | None:
    """Return what is to be evaluated at once of an expression that begins with ``part``.

    That is the longest operand that Dynamo can make and that a call makes which may do something,
    or may give something else later, or an operator, which may fail.
    """
    base = facts.depth_before(part.start)
    assert base is not None
    longest = None
    calls = False
    for index in range(part.start, part.end):
        instruction = facts.instructions[index]
        if _must_wait(facts, Slice(index, index + 1)):
            break
        after = facts.depth_before(index + 1)
        if after is None or after <= base:
            break
        if instruction.op in _CALLS:
            calls = calls or called_name(facts, index) not in REPEATABLE_CALLS
        elif instruction.op in _OPERATIONS:
            calls = True
        if calls and after == base + 1:
            longest = Slice(part.start, index + 1)
    return longest


def _certain_read(
    facts: Facts, chain: Slice, certain: set[tuple[object, ...]], bound: frozenset[str]
) -> Slice | None:
    """Return as much of ``chain`` as can be read where it may not be reached.

    That is what the statement reads in any case, or else a variable that is bound. Attributes left
    for later have to be such as do not change.
    """
    end = chain.end
    while end > chain.start and _path(facts, chain.start, end) not in certain:
        end -= 1
    if end == chain.start:
        first = facts.instructions[chain.start]
        reads = row(first.op).reads
        captured = reads == "cell" and first.arg in facts.function.shape.freevars
        if first.arg not in bound and not captured and reads != "global":
            return None
        end += 1
    left = (facts.instructions[index] for index in range(end, chain.end))
    if any(names_of(each) not in NEVER_TENSOR_ATTRIBUTES for each in left):
        return None
    return Slice(chain.start, end)


def _path(facts: Facts, start: int, end: int) -> tuple[object, ...]:
    return tuple(facts.instructions[index].arg for index in range(start, end))


def _is_variable_load(facts: Facts, index: int, data: frozenset[str]) -> bool:
    instruction = facts.instructions[index]
    known = row(instruction.op)
    if known.reads == "global":
        return names_of(instruction) in data and known.effect(instruction.arg) == (0, 1)
    return known.reads in ("local", "cell") and known.pops == 0 and known.pushes == 1


def _is_plain_attribute(facts: Facts, index: int) -> bool:
    instruction = facts.instructions[index]
    return _is_attribute_load(facts, index) and row(instruction.op).effect(instruction.arg)[1] == 1
