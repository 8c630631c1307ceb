"""Code and processes that are left alone because their authors, or whoever runs them, say so.

``BCMEND=0`` in the environment switches bcmend off for a process. ``__bcmend__ = False`` in a
module leaves all of the module alone, in a package all of the package. The comment
``# bcmend: off`` leaves a statement alone, and on the line of a ``def`` or ``class`` all that it
defines; it is read where Python finds the source.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from itertools import accumulate
from types import FunctionType
from typing import Any, Final, NamedTuple, cast

from bcmend.errors import BcmendError
from bcmend.knowledge.static_lookup import dictionary

VARIABLE: Final = "BCMEND"
FLAG: Final = "__bcmend__"
_COMMENT: Final = re.compile(r"#\s*bcmend:\s*off\b", re.IGNORECASE)
_DEFINES: Final = frozenset({"def", "class", "async", "@"})
_IGNORED: Final = frozenset({tokenize.NL, tokenize.INDENT, tokenize.DEDENT})


def is_process_off() -> bool:
    """Return whether the environment switches bcmend off.

    Raises:
        BcmendError: the variable is set to something other than 0 or 1.
    """
    word = os.environ.get(VARIABLE, "")
    if word not in ("", "0", "1"):
        raise BcmendError(f"{VARIABLE} is {word!r}; set it to 0 to switch bcmend off, else to 1")
    return word == "0"


def is_module_off(names: Mapping[str, Any]) -> bool:
    """Return whether a module with these globals, or a package that it is in, is left alone."""
    if _is_no(names.get(FLAG)):
        return True
    name = names.get("__name__")
    if type(name) is not str:
        return False
    packages = accumulate(name.split(".")[:-1], lambda outer, inner: f"{outer}.{inner}")
    loaded = (sys.modules.get(each) for each in packages)
    return any(_is_no(dictionary(each).get(FLAG)) for each in loaded)


def _is_no(flag: object) -> bool:
    return type(flag) in (bool, int) and not flag


def is_function_off(function: FunctionType) -> bool:
    """Return whether a function is left alone: by its module, or by a comment."""
    code, names = function.__code__, function.__globals__
    return is_module_off(names) or code.co_firstlineno in lines_off(code.co_filename, names)


def lines_off(path: str, names: Mapping[str, Any]) -> frozenset[int]:
    """Return the lines of a source file that comments leave alone; none where it is not found.

    ``names`` are the globals of its module, by which Python finds sources in archives.
    """
    linecache.checkcache(path)
    lines = linecache.getlines(path, cast(Any, names))
    source, found = _KNOWN.get(path, (None, frozenset()))
    if source is not lines:
        found = frozenset(_covered(lines)) if any(map(_COMMENT.search, lines)) else frozenset()
        _KNOWN[path] = lines, found
    return found


#: By path: the lines that were looked at, and those that are left alone.
_KNOWN: Final[dict[str, tuple[list[str] | None, frozenset[int]]]] = {}


def _covered(lines: list[str]) -> Iterator[int]:
    """Yield the lines of statements with the comment, and of what they define."""
    try:
        statements = list(_statements(lines))
    except (SyntaxError, tokenize.TokenError):
        return  # it is no source of Python, or not the one that was compiled
    for at, each in enumerate(statements):
        if not each.is_off:
            continue
        first = end = at
        if each.defines:
            while statements[first - 1].is_decorator and first:
                first -= 1
            while statements[end].is_decorator:
                end += 1
            indent = statements[end].indent
            while end + 1 < len(statements) and statements[end + 1].indent > indent:
                end += 1
        yield from range(statements[first].line, statements[end].last_line + 1)


class _Statement(NamedTuple):
    """A simple statement, or the head of a compound one."""

    line: int
    last_line: int
    indent: int
    word: str
    is_off: bool

    @property
    def is_decorator(self) -> bool:
        return self.word == "@"

    @property
    def defines(self) -> bool:
        return self.word in _DEFINES


def _statements(lines: list[str]) -> Iterator[_Statement]:
    tokens: list[tokenize.TokenInfo] = []
    for each in tokenize.generate_tokens(iter(lines).__next__):
        is_alone = each.type == tokenize.COMMENT and not tokens
        if each.type in _IGNORED or is_alone:
            continue
        if each.type != tokenize.NEWLINE:
            tokens.append(each)
            continue
        begin = tokens[0]
        is_off = any(one.type == tokenize.COMMENT and _COMMENT.search(one.string) for one in tokens)
        yield _Statement(begin.start[0], each.end[0], begin.start[1], begin.string, is_off)
        tokens = []
