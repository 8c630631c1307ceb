"""Pieces of source with the expression underlined that a site or a graph break is about.

Reads the files, where they are there. Positions are those of `co_positions`: lines from 1, columns
from 0, counted in bytes of UTF-8. Without the source there is nothing to show.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final, NamedTuple

from bcmend.bytecode.opcodes import IN_FRONT_OF_JUMPS, JUMPING

#: How many lines of a statement are shown.
_LINES: Final = 12


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Where an expression stands: `co_positions` of an instruction.

    Attributes:
        line, end_line: its first and its last line.
        column, end_column: in those, in bytes; the last is behind it.
    """

    line: int
    end_line: int
    column: int
    end_column: int

    @property
    def begin(self) -> tuple[int, int]:
        """Its line and column."""
        return self.line, self.column

    @property
    def end(self) -> tuple[int, int]:
        """The line and the column behind it."""
        return self.end_line, self.end_column


class Piece(NamedTuple):
    """A part of a line: its text, and whether it is underlined."""

    text: str
    is_marked: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A line of source, without the indentation that all lines shown have."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The line as it is written."""
        return "".join(each.text for each in self.pieces)

    @property
    def marks(self) -> str:
        """What stands below the line in text: carets below what is underlined."""
        return "".join(
            "".join("^" if each.is_marked else " " for _ in each.text) for each in self.pieces
        ).rstrip()


def span_at(code: CodeType, offset: int) -> Span | None:
    """Return where the expression of the instruction at an offset stands, or None.

    A jump has that of its condition, which the instruction in front of it computes: of some jumps
    Python 3.11 has the position of the whole statement.
    """
    found = [each for each in dis.get_instructions(code) if each.offset <= offset]
    if not found:
        return None
    current = found.pop()
    if current.opcode in JUMPING:
        current = next(
            (each for each in reversed(found) if each.opname not in IN_FRONT_OF_JUMPS), current
        )
    return None if current.positions is None else span_of(current.positions)


def span_of(positions: Iterable[int | None] | None) -> Span | None:
    """Return line, last line, column and last column as a span; None where one is not known."""
    known = [each for each in positions or () if each is not None]
    return Span(*known) if len(known) == 4 else None


def excerpt(file: str, line: int | None, spans: Iterable[Span | None] = ()) -> list[Line]:
    """Return a line with the rest of its statement, or of the head of it, and marked spans.

    Empty where there is no source. A span of a statement stands for its condition, or for what it
    enters or goes over, and one of the name of a function that is called for the call.
    """
    known = linecache.getlines(file)
    if line is None or not 0 < line <= len(known):
        return []
    nodes = _nodes(file, tuple(known))
    marked = [_expression(each, nodes) for each in spans if each is not None]
    first, last = _head(line, nodes)
    first = min([first, *(each.line for each in marked)])
    last = min(max([last, *(each.end_line for each in marked)]), len(known))
    if last - first >= _LINES:
        first = max(first, min((each.line for each in marked), default=line))
        last = min(last, first + _LINES - 1)
    lines = [known[number - 1].rstrip() for number in range(first, last + 1)]
    indented = [len(each) - len(each.lstrip()) for each in lines if each.strip()]
    common = min(indented, default=0)
    return [
        Line(number, tuple(_pieces(text, number, common, marked)))
        for number, text in enumerate(lines, first)
    ]


def excerpt_text(lines: Iterable[Line]) -> Iterator[str]:
    """Yield the lines of an excerpt as text, with carets below what is marked, unless all is."""
    shown = list(lines)
    is_whole = all(map(_is_marked_whole, shown))
    for each in shown:
        yield f"| {each.text}".rstrip()
        if each.marks and not is_whole:
            yield f"  {each.marks}"


def _is_marked_whole(line: Line) -> bool:
    return all(each.is_marked or not each.text.strip() for each in line.pieces)


def _pieces(text: str, number: int, common: int, marked: list[Span]) -> Iterator[Piece]:
    """Yield the parts of a line; what is marked begins and ends with what is no space."""
    size = len(text)
    flags = [False] * size
    indentation = size - len(text.lstrip())
    for each in marked:
        if each.line <= number <= each.end_line:
            begin = _characters(text, each.column) if number == each.line else indentation
            end = _characters(text, each.end_column) if number == each.end_line else size
            flags[begin:end] = [True] * (min(end, size) - begin)
    begin = common
    for at in range(common + 1, size + 1):
        if at == size or flags[at] != flags[begin]:
            yield Piece(text[begin:at], flags[begin])
            begin = at


def _characters(text: str, column: int) -> int:
    """Return a column that is counted in bytes, in characters."""
    return len(text.encode()[:column].decode(errors="ignore"))


def _nodes(file: str, lines: tuple[str, ...]) -> list[ast.expr | ast.stmt]:
    """Return all of a file that has a place, outer nodes first; nothing where it is no Python."""
    return _parsed(file, hash(lines), lines)


@functools.lru_cache(maxsize=16)
def _parsed(file: str, version: int, lines: tuple[str, ...]) -> list[ast.expr | ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program's escapes, which its import has shown
            tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):  # a cell with magics, or source that is another one by now
        return []
    return [each for each in ast.walk(tree) if isinstance(each, ast.expr | ast.stmt)]


def _place(node: ast.expr | ast.stmt) -> Span:
    return Span(
        node.lineno,
        node.end_lineno or node.lineno,
        node.col_offset,
        node.end_col_offset or node.col_offset,
    )


def _expression(span: Span, nodes: list[ast.expr | ast.stmt]) -> Span:
    """Return what a span stands for: a part of the statement, the call of the function, itself."""
    for node in nodes:
        if _place(node) == span and (part := _decisive(node)) is not None:
            return _place(part)
    for node in nodes:
        if isinstance(node, ast.Call) and span in _callables(node.func):
            return _place(node)
    return span


def _decisive(node: ast.expr | ast.stmt) -> ast.expr | None:
    """Return the part of a compound statement, or of a choice, that is computed at its place."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            return node.test
        case ast.With():
            return node.items[0].context_expr
        case ast.For():
            return node.iter
    return None


def _callables(called: ast.expr) -> Iterator[Span]:
    """Yield the place of what is called, and of that of which it is an attribute."""
    yield _place(called)
    while isinstance(called, ast.Attribute):
        called = called.value
        if isinstance(called, ast.Name):
            yield _place(called)


def _head(line: int, nodes: list[ast.expr | ast.stmt]) -> tuple[int, int]:
    """Return the first and last line of the innermost statement at a line, without its body."""
    found = line, line
    for node in nodes:  # outer ones first
        if not isinstance(node, ast.stmt):
            continue
        first, last = node.lineno, node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:
            last = max(first, body[0].lineno - 1) if body[0].lineno > first else first
        if first <= line <= last:
            found = first, last
    return found
