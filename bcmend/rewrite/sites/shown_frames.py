"""Determine what an output call shows of its callers and of exceptions.

Such output depends on the frame that makes the call, so that the call cannot simply be made later.
"""

from __future__ import annotations

from typing import Final

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.conditions import called_name
from bcmend.analysis.facts import Facts
from bcmend.bytecode.opcodes import row
from bcmend.knowledge.callable_names import LOGGER_METHODS
from bcmend.rewrite.sites.call_parts import (
    arguments_of,
    is_constant,
    is_false,
    keyword_argument,
    keywords_of,
)
from bcmend.rewrite.sites.plan import CodeRange

#: Functions and methods that show tracebacks, or the exception that is being handled.
_SHOWING_TRACEBACKS: Final = frozenset(
    ["exception", "exc_info", "format_exc", "format_exception", "print_exc", "print_exception"]
)

_NAMES: Final = ("name", "flagged_name")

#: The position of the level among the arguments of ``warnings.warn``.
_LEVEL_OF_WARN: Final = 2
_SKIPS_FILES: Final = "skip_file_prefixes"


def shows_callers(facts: Facts, start: int, call: int) -> bool:
    """Return whether the callers of the frame are written too (``stack_info`` of logging)."""
    given = keyword_argument(facts, start, call, "stack_info")
    return given is not None and not is_false(facts, given)


def shows_tracebacks(facts: Facts, start: int, call: int) -> bool:
    """Return whether a statement may show tracebacks, or the exception that is being handled."""
    named = (each for each in facts.instructions[start:call] if row(each.op).argument in _NAMES)
    if any(names_of(each) in _SHOWING_TRACEBACKS for each in named):
        return True
    if keywords_of(facts, call) is None:  # logging takes `exc_info`, from anywhere
        return called_name(facts, call) in LOGGER_METHODS
    given = keyword_argument(facts, start, call, "exc_info")
    return given is not None and not is_false(facts, given)


def stack_level(facts: Facts, start: int, call: int) -> int | None:
    """Return how many frames a call shows: 1 for its own, -1 if that is not known before the call.

    ``None`` stands for all frames of the stack.
    """
    if _looks_through_files(facts, start, call):
        return None
    if called_name(facts, call) == "print_stack":
        return _frames_shown(facts, start, call)
    names = keywords_of(facts, call)
    if names is None:
        constants = (facts.instructions[index].arg for index in range(start, call))
        return -1 if any(_mentions(each, "stacklevel") for each in constants) else 1
    arguments = arguments_of(facts, start, call)
    given = keyword_argument(facts, start, call, "stacklevel")
    positional = len(arguments) - len(names)
    if given is None and called_name(facts, call) == "warn" and positional > _LEVEL_OF_WARN:
        given = arguments[_LEVEL_OF_WARN]
    if given is None:
        return 1
    level = _constant(facts, given)
    return max(level, 1) if isinstance(level, int) else -1


def _frames_shown(facts: Facts, start: int, call: int) -> int | None:
    """Return how many frames a call of ``traceback.print_stack`` shows, if that is a constant."""
    names = keywords_of(facts, call)
    if names is None:
        return None
    arguments = arguments_of(facts, start, call)
    given = dict(zip(("f", "limit"), arguments[: len(arguments) - len(names)], strict=False))
    given.update(zip(reversed(names), reversed(arguments), strict=False))
    frame, limit = given.get("f"), given.get("limit")
    count = None if limit is None else _constant(facts, limit)
    is_own_frame = frame is None or is_false(facts, frame)
    return count if is_own_frame and isinstance(count, int) and count > 0 else None


def _constant(facts: Facts, part: CodeRange) -> object:
    return facts.instructions[part.start].arg if is_constant(facts, part) else None


def _looks_through_files(facts: Facts, start: int, call: int) -> bool:
    """Return whether a warning looks for a caller in other files, as since CPython 3.12 it may."""
    if keywords_of(facts, call) is not None:
        return keyword_argument(facts, start, call, _SKIPS_FILES) is not None
    constants = (facts.instructions[index].arg for index in range(start, call))
    return any(_mentions(each, _SKIPS_FILES) for each in constants)


def _mentions(constant: object, name: str) -> bool:
    return constant == name or (isinstance(constant, tuple) and name in constant)
