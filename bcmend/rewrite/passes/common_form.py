"""Give code of each Python the form that all but the newest compilers write.

From 3.13 on jumps and ``not`` take a bool alone. The compiler leaves the cast out behind what gives
one, such as a comparison, which may have it in itself. What gives a bool in Python may give a
tensor while Dynamo traces it, and be read elsewhere: casts are written out. Of ``not not x`` the
compiler leaves nothing but a cast, which Dynamo takes to stand in front of a jump or a ``not``
(``TO_BOOL``, torch/_dynamo/symbolic_convert.py).
From 3.14 on the compiler writes some constructs in another shape, which means the same:

* The test of a ``while`` stands once, at the start of the loop, and a jump leads back to it.
  Before, it stands a second time at the end. There the first turn has a test of its own, and what
  has not changed when no turn is made is seen to be so.
* ``any``, ``all`` and ``tuple`` over a generator are a loop beside the call, for the case that the
  name stands for the builtin. The call does the same, and what is known of it holds.

Code that is analysed is in the older form, whatever compiler it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType

from bytecode.instr import CommonConstant

from bcmend.bytecode import behavior, emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode, Instruction, Label
from bcmend.bytecode.opcodes import (
    COMMON_CONSTANTS,
    COPIES,
    IDENTITIES,
    NOTS,
    TRUTH_JUMPS,
    TRUTHS,
    row,
)
from bcmend.rewrite.passes.rearrange import rewritten

#: Builtins that are inlined, as the compiler writes what they are compared with.
_INLINED = frozenset(
    [CommonConstant.BUILTIN_ALL, CommonConstant.BUILTIN_ANY, CommonConstant.BUILTIN_TUPLE]
)
#: A jump back takes so many bytes: as many parts of a test can have an offset of their own in it.
_BYTES_OF_A_JUMP = 4


def in_common_form(code: CodeType) -> FunctionCode:
    """Return ``code`` decoded, in the form that is analysed.

    Raises:
        DecodeError: it has no canonical form.
    """
    function = decode(code)
    if behavior.HAS_TO_BOOL:
        function = _with_casts(function)
    if behavior.SOME_BUILTINS_ARE_INLINED:
        function = _with_calls(function)
    return _with_tests_at_ends(function) if behavior.LOOPS_TEST_ONCE else function


def _with_casts(function: FunctionCode) -> FunctionCode:
    """Return the function with a cast to a bool in front of each jump and ``not`` that needs one.

    And with two ``not`` behind each cast that nothing else reads.
    """
    code = function.instructions
    targets = {each.target for each in code}
    behind: dict[int, Sequence[Instruction]] = {}
    in_front = set()
    for index, (one, after) in enumerate(pairwise(code)):
        is_read = after.op in TRUTH_JUMPS | NOTS
        if one.op in TRUTHS and not is_read:
            behind[index] = emit.negate(one.location) * 2
        elif one.op not in TRUTHS and is_read and index + 1 not in targets:
            behind[index] = emit.as_condition(one.location)
        elif one.op not in TRUTHS and is_read:
            in_front.add(index + 1)

    def replacement(index: int, instruction: Instruction) -> Iterator[Item]:
        if index in in_front:
            (cast,) = emit.as_condition(instruction.location)
            yield cast._replace(offset=instruction.offset)
        yield emit.without_cast(instruction)
        for each in behind.get(index, ()):
            yield each._replace(offset=instruction.offset)

    return rewritten(function, replacement) if behind or in_front else function


def inlines_builtins(code: CodeType) -> bool:
    """Return whether ``code`` has loops in place of builtins, which stop Dynamo at their tests."""
    return behavior.SOME_BUILTINS_ARE_INLINED and bool(_loops_for_calls(decode(code)))


def _loops_for_calls(function: FunctionCode) -> frozenset[int]:
    code = function.instructions
    found = (
        _inlined(code, index)
        for index, each in enumerate(code)
        if each.op in COMMON_CONSTANTS and each.arg in _INLINED
    )
    return frozenset(index for each in found for index in each)


def _with_calls(function: FunctionCode) -> FunctionCode:
    """Return a function in which builtins that are inlined are called alone."""
    dropped = _loops_for_calls(function)
    if not dropped:
        return function
    return rewritten(function, lambda index, each: () if index in dropped else (each,))


def _inlined(code: Sequence[Instruction], index: int) -> range:
    """Return the test of a name for a builtin at ``index``, and the loop in place of the call."""
    test, jump = code[index + 1 : index + 3]
    is_test = code[index - 1].op in COPIES and test.op in IDENTITIES
    if not (is_test and row(jump.op).jump == "if_false" and isinstance(jump.target, int)):
        return range(0)
    inlined = range(index - 1, jump.target)
    others = (each.target for at, each in enumerate(code) if at not in inlined)
    return inlined if not any(each in inlined for each in others) else range(0)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that begins with its test: the instructions of that, and the jumps back to it."""

    test: range
    jumps: tuple[int, ...]

    @property
    def end(self) -> int:
        """The last jump back."""
        return self.jumps[-1]


def _with_tests_at_ends(function: FunctionCode) -> FunctionCode:
    """Return a function whose loops have their test a second time, in place of the jump back."""
    loops = {each.end: each for each in _loops(function)}
    if not loops:
        return function
    starts = {end: Label("test") for end in loops}
    others = {at: starts[end] for end, loop in loops.items() for at in loop.jumps[:-1]}

    def replacement(index: int, instruction: Instruction) -> Iterator[Item]:
        if index in loops:
            yield starts[index]
            yield from _second_test(function.instructions, loops[index])
        elif index in others:
            yield instruction._replace(target=others[index])
        else:
            yield instruction

    return rewritten(function, replacement)


def _loops(function: FunctionCode) -> Iterator[_Loop]:
    code = function.instructions
    back: dict[int, list[int]] = {}
    for index, each in enumerate(code):
        if isinstance(each.target, int) and each.target < index and row(each.op).jump == "always":
            back.setdefault(each.target, []).append(index)
    for start, jumps in back.items():
        loop = _Loop(_test_from(code, start, jumps[-1]), tuple(jumps))
        if loop.test and not _is_entered(code, loop.test) and _has_one_handler(function, loop):
            yield loop


def _test_from(code: Sequence[Instruction], start: int, end: int) -> range:
    """Return the test that a loop begins with, which leaves it behind ``end``; or nothing.

    That is one expression, or some of which each may leave, or go on with another or with the
    loop: no operand is left between them.
    """
    depth, last, parts = 0, start, 0
    inside: set[int] = set()
    for index in range(start, end):
        each = code[index]
        known = row(each.op)
        if each.op in TRUTH_JUMPS:
            if depth != 1 or not known.pops_condition or not isinstance(each.target, int):
                break
            depth, parts = 0, parts + 1
            if each.target > end:
                last = index + 1
            elif each.target > index:
                inside.add(each.target)
            else:
                break
            continue
        pops, pushes = known.effect(each.arg)
        is_plain = known.jump is None and known.falls_through and not known.suspends
        if not is_plain or known.needs(each.arg) > depth or depth - pops + pushes == 0:
            break
        depth += pushes - pops
    is_whole = parts <= _BYTES_OF_A_JUMP and all(each <= last for each in inside)
    return range(start, last) if is_whole else range(0)


def _is_entered(code: Sequence[Instruction], test: range) -> bool:
    """Return whether a jump from elsewhere leads into a test, behind its start."""
    others = (each.target for index, each in enumerate(code) if index not in test)
    return any(each in test and each != test.start for each in others)


def _has_one_handler(function: FunctionCode, loop: _Loop) -> bool:
    """Return whether the same try ranges are around a test and the jump back to it."""
    return all(
        entry.covers(index) == entry.covers(loop.end)
        for entry in function.tries
        for index in loop.test
    )


def _second_test(code: Sequence[Instruction], loop: _Loop) -> Iterator[Item]:
    """Yield the test of a loop, to go round it or on; its jumps are known by offsets of their own.

    They are those of the bytes of the jump that it replaces.
    """
    offset = code[loop.end].offset
    places = {each.target: Label() for each in code[loop.test.start : loop.test.stop]}
    for index in loop.test:
        each = code[index]._replace(offset=offset)
        if index in places:
            yield places[index]
        if each.target in loop.test:
            each = each._replace(target=places[each.target])
        if each.op not in TRUTH_JUMPS:
            yield each
        elif index + 1 == loop.test.stop and each.target == loop.end + 1:
            is_true = row(each.op).jump == "if_true"
            (_, back) = (emit.jump_if_false if is_true else emit.jump_if_true)(index + 1)
            yield back._replace(offset=offset, location=each.location)
            return
        else:
            yield each
            offset += 1
    (back,) = emit.jump(loop.test.stop, code[loop.end].location)
    yield back._replace(offset=code[loop.end].offset)
