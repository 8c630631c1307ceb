"""Cheap questions about raw bytecode, asked before a function is decoded and analysed."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Final

from bcmend.bytecode import opcodes
from bcmend.bytecode.decode import numbers_of, units_of

_TRUTH_JUMPS: Final = numbers_of(opcodes.TRUTH_JUMPS)
_NULLS: Final = numbers_of(opcodes.NULLS)
_LOADS: Final = numbers_of(opcodes.LOCAL_LOADS | opcodes.CELL_LOADS)
_FORMATS: Final = numbers_of(opcodes.FORMATS | opcodes.CONVERSIONS)
_WITHS: Final = numbers_of(opcodes.BLOCK_ENTRIES - opcodes.ASYNC_BLOCK_ENTRIES)
_OF_ITEMS: Final = (
    opcodes.ITEM_READS | opcodes.SLICE_READS | opcodes.ITEM_STORES | opcodes.SLICE_STORES
)
_SUBSCRIPTS: Final = numbers_of(_OF_ITEMS), units_of(_OF_ITEMS)
_LOOPS: Final = numbers_of(opcodes.LOOPS)
_ASSERTION: Final = numbers_of(opcodes.ASSERTIONS), units_of(opcodes.ASSERTIONS)
_CALLS: Final = numbers_of(opcodes.CALLS)


def origin_of(code: CodeType) -> tuple[str, str, int]:
    """Return where code stands in the program, which all that is written in its place keeps."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def code_objects(code: CodeType) -> Iterator[CodeType]:
    """Yield ``code`` and all code objects in its constants, and in theirs."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def _has(code: CodeType, numbers: frozenset[int], units: frozenset[bytes] = frozenset()) -> bool:
    found = code.co_code
    return (
        not numbers.isdisjoint(found[::2])
        or (
            any(each in found for each in units)  # at any place, which is found out quickly
            and any(found[at : at + 2] in units for at in range(0, len(found), 2))
        )
    )


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
        _has(each, *_ASSERTION) or "AssertionError" in each.co_names for each in code_objects(code)
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
    return any(_has(each, *_SUBSCRIPTS) for each in code_objects(code))


def calls_a_variable(code: CodeType) -> bool:
    """Return whether ``code`` may call a local or a free variable: one is loaded next to a NULL."""
    numbers = code.co_code[::2]
    return any(
        {numbers[index - 1], numbers[index + 1]} & _LOADS
        for index in range(1, len(numbers) - 1)
        if numbers[index] in _NULLS
    )


def formats(code: CodeType) -> bool:
    """Return whether ``code`` formats a value, as in an f-string."""
    return _has(code, _FORMATS)
