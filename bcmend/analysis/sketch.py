"""A sketch of a function, for judging its conditions without the cost of analysing it.

It answers the same questions as ``Facts``, or says that it cannot: it looks back from an operand
along straight-line code alone. Most conditions are made right before they are tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from types import CodeType

from bcmend.analysis.conditions import FINDS_INDICES, TAKE_OUT, Chance, may_be_tensor
from bcmend.bytecode.decode import (
    argument_readers,
    decode_shape,
    jump_target,
    raw_steps,
    table_rows,
)
from bcmend.bytecode.instructions import DecodeError, Instruction
from bcmend.bytecode.names_used import code_objects, has_loop, has_truth_jump
from bcmend.bytecode.opcodes import row


class Unclear(Exception):
    """Raised where paths join before an operand, so that looking straight back is not enough."""


def may_branch_on_tensor(code: CodeType) -> bool:
    """Return whether a condition of ``code`` is a likely tensor; ``True`` where that is unclear."""
    if not has_truth_jump(code):
        return False
    try:
        sketch = Sketch(code)
        return any(may_be_tensor(sketch, jump) is Chance.LIKELY for jump in sketch.truth_jumps())
    except (Unclear, DecodeError):
        return True


def may_loop_over_number(code: CodeType) -> bool:
    """Return whether ``code`` has the names needed to loop up to a number out of a tensor."""
    names = code.co_names
    return "range" in names and any(name in names for name in TAKE_OUT)


def may_loop_over_indices(codes: Iterable[CodeType]) -> bool:
    """Return whether code has a loop, and names a call that returns indices of a mask."""
    known = [each for code in codes for each in code_objects(code)]
    finds = any(not FINDS_INDICES.isdisjoint(each.co_names) for each in known)
    return finds and any(has_loop(each) for each in known)


class _Instructions:
    """Instructions without locations, each made when it is asked for."""

    def __init__(self, code: CodeType, steps: Sequence[tuple[str, str, int]]) -> None:
        self._readers = argument_readers(code)
        self._steps = steps

    def __getitem__(self, index: int, /) -> Instruction:
        op, argument, raw = self._steps[index]
        try:
            return Instruction(op, None if argument == "jump" else self._readers[argument](raw))
        except (IndexError, KeyError) as error:
            raise DecodeError(f"{op} with {raw}, which stands for nothing that there is") from error


class Sketch:
    """The instructions of a function and where paths join, read in one pass."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        #: Of each instruction its name, the kind of its argument and the argument as a number.
        self._steps: list[tuple[str, str, int]] = []
        starts: list[int] = []
        targets = {handler for _, _, handler, _ in table_rows(code.co_exceptiontable)}
        end = 0
        for unit, known, raw in raw_steps(code):
            if known.parts:
                pair = zip(known.parts, (raw >> 4, raw & 15), strict=True)
                self._steps.extend((name, "local", number) for name, number in pair)
                starts.append(end)
            else:
                self._steps.append((known.name, known.argument, raw))
                if known.argument == "jump":
                    targets.add(jump_target(unit, known, raw))
            starts.append(end)
            end = unit + known.words
        self._joins = frozenset(i for i, start in enumerate(starts) if start in targets)
        self.instructions = _Instructions(code, self._steps)

    @cached_property
    def argument_names(self) -> Sequence[str]:
        return decode_shape(self._code).argnames

    @cached_property
    def stores(self) -> dict[str, list[int]]:
        """For each local or cell, the instructions that bind it."""
        found: dict[str, list[int]] = {}
        for index, (op, _, _) in enumerate(self._steps):
            if row(op).writes in ("local", "cell"):
                found.setdefault(self.instructions[index].arg, []).append(index)
        return found

    def truth_jumps(self) -> Iterator[int]:
        """Yield the jumps on the truth of a value."""
        for index, (op, argument, _) in enumerate(self._steps):
            if argument == "jump" and row(op).tests_truth:
                yield index

    def operand(self, index: int, position: int) -> tuple[int, ...]:
        """Return what made an operand of an instruction, ``position`` -1 being the top.

        Raises:
            Unclear: it may have been made on more than one path.
        """
        depth = -position
        while True:
            if index in self._joins or index == 0:
                raise Unclear
            index -= 1
            facts = row(self._steps[index][0])
            if not facts.falls_through:
                raise Unclear
            if facts.moves is not None:
                depth = _moved(facts.moves, self._steps[index][2], depth)
                continue
            pops, pushes = facts.effect(self.instructions[index].arg)
            if depth <= pushes:
                return (index,)
            depth += pops - pushes


def _moved(how: str, distance: int, depth: int) -> int:
    """Return where the operand at ``depth`` was before it was copied or swapped; 1 is the top."""
    if depth == 1:
        return distance
    if how == "copy":
        return depth - 1
    return 1 if depth == distance else depth
