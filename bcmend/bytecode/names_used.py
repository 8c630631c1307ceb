"""Cheap questions about raw bytecode, asked before a function is decoded and analysed."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Final

from bcmend.bytecode import behavior
from bcmend.bytecode.opcodes import ROWS


def _opcodes(*beginnings: str, but: str | None = None) -> frozenset[int]:
    """Return the opcodes whose names begin with one of ``beginnings``, and not with ``but``.

    Each of them begins a name of some supported Python, and one a name of this Python: else a
    question would silently be answered with no. Nobody asks on a Python that is not known.
    """
    for each in filter(None, (*beginnings, but)):
        assert any(name.startswith(each) for name in ROWS), f"no opcode is called {each}"
    found = (name for name in dis.opmap if name.startswith(beginnings))
    opcodes = frozenset(
        dis.opmap[name] for name in found if but is None or not name.startswith(but)
    )
    assert opcodes or not behavior.IS_KNOWN, f"this Python has no opcode {' or '.join(beginnings)}"
    return opcodes


_TRUTH_JUMPS: Final = frozenset(
    opcode
    for name, opcode in dis.opmap.items()
    if "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name)
)
assert _TRUTH_JUMPS, "this Python has no opcode that jumps on a truth"
_PUSH_NULL: Final = dis.opmap["PUSH_NULL"]
_LOADS: Final = _opcodes("LOAD_FAST", "LOAD_DEREF")
_FORMATS: Final = _opcodes("FORMAT_", "CONVERT_VALUE")
_WITHS: Final = _opcodes("BEFORE_WITH")
_SUBSCRIPTS: Final = _opcodes("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE")
_LOOPS: Final = _opcodes("FOR_ITER")
_ASSERTION: Final = _opcodes("LOAD_ASSERTION_ERROR")
_CALLS: Final = _opcodes("CALL", but="CALL_INTRINSIC")


def origin_of(code: CodeType) -> tuple[str, str, int]:
    """Return where code stands in the program, which all that is written in its place keeps."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def code_objects(code: CodeType) -> Iterator[CodeType]:
    """Yield ``code`` and all code objects in its constants, and in theirs."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def _has(code: CodeType, opcodes: frozenset[int]) -> bool:
    return not opcodes.isdisjoint(code.co_code[::2])


def has_truth_jump(code: CodeType, *, nested: bool = False) -> bool:
    """Return whether ``code``, or if asked code nested in it, jumps on the truth of a value."""
    codes = code_objects(code) if nested else (code,)
    return any(_has(each, _TRUTH_JUMPS) for each in codes)


def has_name(code: CodeType, names: frozenset[str]) -> bool:
    """Return whether ``code``, or code nested in it, reads a global or attribute in ``names``."""
    return any(not names.isdisjoint(each.co_names) for each in code_objects(code))


def has_assertion(code: CodeType) -> bool:
    """Return whether ``code``, or code nested in it, names ``AssertionError``, as assertions do."""
    return any(
        _has(each, _ASSERTION) or "AssertionError" in each.co_names for each in code_objects(code)
    )


def has_call(code: CodeType) -> bool:
    """Return whether ``code`` calls something."""
    return _has(code, _CALLS)


def has_loop(code: CodeType) -> bool:
    """Return whether ``code`` has a loop over something."""
    return _has(code, _LOOPS)


def has_with(code: CodeType) -> bool:
    """Return whether ``code`` has a ``with`` block."""
    return _has(code, _WITHS)


def has_subscript(code: CodeType) -> bool:
    """Return whether ``code``, or code nested in it, reads or stores an item of something."""
    return any(_has(each, _SUBSCRIPTS) for each in code_objects(code))


def calls_a_variable(code: CodeType) -> bool:
    """Return whether ``code`` may call a local or a free variable: one is loaded next to a NULL."""
    opcodes = code.co_code[::2]
    return any(
        {opcodes[index - 1], opcodes[index + 1]} & _LOADS
        for index in range(1, len(opcodes) - 1)
        if opcodes[index] == _PUSH_NULL
    )


def formats(code: CodeType) -> bool:
    """Return whether ``code`` formats a value, as in an f-string."""
    return _has(code, _FORMATS)
