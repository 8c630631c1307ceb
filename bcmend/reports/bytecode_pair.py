"""The bytecode of a function before and after mending, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from types import CodeType
from typing import Final, NamedTuple

from bcmend.bytecode.decode import PREFIXES, unfused
from bcmend.bytecode.names_used import code_objects
from bcmend.names import PREFIX
from bcmend.reports.places import shown_place, source_line


@dataclass(frozen=True, slots=True)
class CodeRow:
    """An instruction before mending, after it, or in both.

    Attributes:
        line: of the source; None where the instruction has none.
        before, after: offset, name and argument; empty where it is not there.
    """

    line: int | None
    before: str
    after: str

    @property
    def mark(self) -> str:
        """A plus where bcmend has written the instruction, a minus where it has removed it."""
        if self.before and self.after:
            return " "
        return "+" if self.after else "-"


@dataclass(frozen=True, slots=True)
class CodePair:
    """A function before and after mending, or a code object that mending has written.

    Attributes:
        title: the qualified name of the function, or ``code 1`` and so on, as in the instruction
            that loads such an object.
        file, line: where the function begins.
        rows: the instructions, in order.
    """

    title: str
    file: str
    line: int
    rows: tuple[CodeRow, ...]

    @property
    def counts(self) -> str:
        """How many instructions are new or gone, in a few words."""
        marks = [row.mark for row in self.rows]
        return f"{len(marks)} instructions, {marks.count('+')} new, {marks.count('-')} removed"

    def __str__(self) -> str:
        lines = [f"{self.title}  {shown_place(self.file, self.line)}  {self.counts}"]
        width = min(_WIDEST, max((len(row.before) for row in self.rows), default=0))
        for line, rows in by_line(self.rows):
            lines.append(
                f"{'' if line is None else line:>5}  {source_line(self.file, line)}".rstrip()
            )
            lines += [f"  {row.before:{width}}  {row.mark} {row.after}".rstrip() for row in rows]
        return "\n".join(lines)


_WIDEST: Final = 56  # of the left column; what is longer moves the right one


def by_line(rows: Iterable[CodeRow]) -> Iterator[tuple[int | None, list[CodeRow]]]:
    """Yield the rows of each run of one line of source."""
    run: list[CodeRow] = []
    for row in rows:
        if run and row.line != run[-1].line:
            yield run[-1].line, run
            run = []
        run.append(row)
    if run:
        yield run[-1].line, run


def pairs_of(before: CodeType, after: CodeType) -> Iterator[CodePair]:
    """Yield a function beside itself mended, then each code object that mended code loads."""
    originals = {id(each) for each in code_objects(before)}
    written = [each for each in code_objects(after) if id(each) not in originals | {id(after)}]
    names = {id(each): f"code {number}" for number, each in enumerate(written, 1)}
    yield _pair(before.co_qualname, before, after, names)
    _, *nested = code_objects(before)
    known = {(each.co_qualname, _parameters(each)): each for each in nested}
    for each in written:
        original = known.get((each.co_qualname, _parameters(each)))
        yield _pair(f"{names[id(each)]} of {each.co_qualname}", original, each, names)


def _parameters(code: CodeType) -> tuple[str, ...]:
    """Return the names of the parameters, which only the mended form of a function has too."""
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class _Shown(NamedTuple):
    """An instruction: what it is compared by, and how it is shown."""

    line: int | None
    name: str
    argument: str
    text: str

    @property
    def key(self) -> tuple[int | None, str, str]:
        return self.line, self.name, self.argument


def _pair(title: str, before: CodeType | None, after: CodeType, names: dict[int, str]) -> CodePair:
    old = [] if before is None else _instructions(before, names)
    rows = tuple(_rows(old, _instructions(after, names)))
    return CodePair(title, after.co_filename, after.co_firstlineno, rows)


def _instructions(code: CodeType, names: dict[int, str]) -> list[_Shown]:
    lines = {start: line for start, _, line in code.co_lines()}
    found, line = [], None
    for each in unfused(code):
        line = lines.get(each.offset, line)
        if each.opcode in PREFIXES:
            continue
        argument = each.argval if "_FAST" in each.opname else each.argrepr  # fused ones show both
        if not argument and each.arg is not None:
            argument = str(each.arg)
        if isinstance(each.argval, CodeType):
            argument = names.get(id(each.argval), each.argval.co_qualname)
        argument = argument.replace(PREFIX, "bcmend_")
        # Where a jump leads is another offset afterwards.
        compared = _TARGET.sub("", argument)
        text = f"{each.offset:>4} {each.opname} {argument}".rstrip()
        found.append(_Shown(line, each.opname, compared, text))
    return found


_TARGET: Final = re.compile(r"\bto L?\d+$")


def _rows(old: Sequence[_Shown], new: Sequence[_Shown]) -> Iterator[CodeRow]:
    matcher = SequenceMatcher(None, [each.key for each in old], [each.key for each in new], False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind == "equal":
            both = zip(old[start:end], new[other_start:other_end], strict=True)
            yield from (CodeRow(one.line, one.text, other.text) for one, other in both)
            continue
        yield from (CodeRow(each.line, each.text, "") for each in old[start:end])
        yield from (CodeRow(each.line, "", each.text) for each in new[other_start:other_end])
