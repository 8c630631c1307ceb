"""A quick look at raw bytecode, for functions that need no closer one."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Final

__all__ = [
    "calls_a_variable",
    "code_objects",
    "formats",
    "has_call",
    "has_loop",
    "has_name",
    "has_subscript",
    "has_truth_jump",
    "has_with",
]

_TRUTH_JUMPS: Final = frozenset(
    opcode
    for name, opcode in dis.opmap.items()
    if "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name)
)
_PUSH_NULL: Final = dis.opmap["PUSH_NULL"]
_LOADS: Final = frozenset(
    opcode for name, opcode in dis.opmap.items() if name.startswith(("LOAD_FAST", "LOAD_DEREF"))
)
_FORMATS: Final = frozenset(
    opcode for name, opcode in dis.opmap.items() if name.startswith(("FORMAT_", "CONVERT_VALUE"))
)
_WITHS: Final = frozenset(opcode for name, opcode in dis.opmap.items() if name == "BEFORE_WITH")
_SUBSCRIPTS: Final = frozenset(
    opcode
    for name, opcode in dis.opmap.items()
    if name in ("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE")
)
_LOOPS: Final = frozenset(opcode for name, opcode in dis.opmap.items() if name == "FOR_ITER")
_CALLS: Final = frozenset(
    opcode for name, opcode in dis.opmap.items() if name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
)


def code_objects(code: CodeType) -> Iterator[CodeType]:
    """Yield ``code`` and all code objects in its constants, and in theirs."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def has_truth_jump(code: CodeType, *, nested: bool = False) -> bool:
    """Whether ``code`` (or, if asked, code nested in it) jumps on the truth of a value anywhere."""
    codes = code_objects(code) if nested else (code,)
    return any(not _TRUTH_JUMPS.isdisjoint(each.co_code[::2]) for each in codes)


def has_name(code: CodeType, names: frozenset[str]) -> bool:
    """Whether ``code``, or code nested in it, reads a global or an attribute of such a name."""
    return any(not names.isdisjoint(each.co_names) for each in code_objects(code))


def has_call(code: CodeType) -> bool:
    """Whether ``code`` calls something."""
    return not _CALLS.isdisjoint(code.co_code[::2])


def has_loop(code: CodeType) -> bool:
    """Whether ``code`` has a loop over something."""
    return not _LOOPS.isdisjoint(code.co_code[::2])


def has_with(code: CodeType) -> bool:
    """Whether ``code`` has a ``with`` block."""
    return not _WITHS.isdisjoint(code.co_code[::2])


def has_subscript(code: CodeType) -> bool:
    """Whether ``code``, or code nested in it, reads or stores an item of something."""
    return any(not _SUBSCRIPTS.isdisjoint(each.co_code[::2]) for each in code_objects(code))


def calls_a_variable(code: CodeType) -> bool:
    """Whether ``code`` can call what a local or a free variable holds: it loads one by a NULL."""
    opcodes = code.co_code[::2]
    return any(
        {opcodes[index - 1], opcodes[index + 1]} & _LOADS
        for index in range(1, len(opcodes) - 1)
        if opcodes[index] == _PUSH_NULL
    )


def formats(code: CodeType) -> bool:
    """Whether ``code`` makes text of a value, as in an f-string."""
    return not _FORMATS.isdisjoint(code.co_code[::2])
