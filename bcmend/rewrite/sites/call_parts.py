"""The parts of a call: where what it calls, and each of its arguments, is pushed."""

from __future__ import annotations

from itertools import pairwise, takewhile

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.facts import Facts
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import CONSTANT_LOADS, KEYWORD_CALLS, KEYWORD_NAMES, STARRED_CALLS, row
from bcmend.rewrite.passes.unbound_marks import checks_in
from bcmend.rewrite.sites.plan import CodeRange


def path_read(facts: Facts, index: int) -> tuple[str, ...]:
    """Return the name of the variable that is loaded at ``index``, and of attributes read of it."""
    following = facts.instructions[index + 1 :]
    attributes = takewhile(lambda each: _attributes_pushed(each) == 1, following)
    return tuple(map(names_of, (facts.instructions[index], *attributes)))


def is_attribute_load(facts: Facts, index: int) -> bool:
    """Return whether an instruction replaces an operand by an attribute of it, or a method."""
    return _attributes_pushed(facts.instructions[index]) >= 1


def _attributes_pushed(instruction: Instruction) -> int:
    """Return 1 for a load of an attribute, 2 for that of a method to be called, 0 for others."""
    known = row(instruction.op)
    if known.argument not in ("name", "flagged_name") or known.reads is not None:
        return 0
    pops, pushes = known.effect(instruction.arg)
    return pushes if pops == 1 else 0


def start_of(facts: Facts, index: int, count: int) -> int | None:
    """Return where the pushing of the top ``count`` operands before ``index`` begins."""
    depth = facts.depth_before(index)
    assert depth is not None
    for candidate in range(index - 1, -1, -1):
        at = facts.depth_before(candidate)
        if at is None or at <= depth - count:
            return candidate if at == depth - count else None
    return None


def arguments_of(facts: Facts, start: int, call: int) -> list[CodeRange]:
    """Return the slices of the arguments of a plain call."""
    instruction = facts.instructions[call]
    if instruction.op in STARRED_CALLS:
        return []
    before = facts.instructions[call - 1]
    has_names = instruction.op in KEYWORD_CALLS or before.op in KEYWORD_NAMES
    top = call - has_names
    slices = []
    for _ in range(instruction.arg):
        begin = _start_of_expression(facts, start, top, 1)
        if begin is None or begin <= start:
            return []
        slices.append(CodeRange(begin, top))
        top = begin
    return _with_checks(facts, slices[::-1])


def _with_checks(facts: Facts, arguments: list[CodeRange]) -> list[CodeRange]:
    """Return each argument with the check whether the variable that it begins with is bound."""
    end = arguments[-1].end if arguments else 0
    checks = {read: at for at, read in checks_in(facts, 0, end).items()}
    bounds = [*(checks.get(each.start, each.start) for each in arguments), end]
    return [CodeRange(*each) for each in pairwise(bounds)]


def starred_arguments_of(facts: Facts, start: int, call: int) -> CodeRange | None:
    """Return what pushes the arguments of a call that unpacks them: a tuple, and a dictionary."""
    instruction = facts.instructions[call]
    if instruction.op not in STARRED_CALLS:
        return None
    pops, _ = row(instruction.op).effect(instruction.arg)
    begin = _start_of_expression(facts, start, call, pops - 2)
    return None if begin is None or begin <= start else CodeRange(begin, call)


def _start_of_expression(facts: Facts, start: int, index: int, count: int) -> int | None:
    """Return where the pushing of the top ``count`` operands before ``index`` begins."""
    begin = start_of(facts, index, count)
    while begin is not None and _is_jumped_into(facts, start, begin, index):
        # Only one of the paths to this argument begins here: it is an `or`, or a ternary.
        begin = start_of(facts, begin, 0)
    return begin


def _is_jumped_into(facts: Facts, start: int, begin: int, end: int) -> bool:
    """Return whether a jump of the statement from before ``begin`` lands behind it."""
    targets = (facts.instructions[index].target for index in range(start, begin))
    return any(isinstance(target, int) and begin < target <= end for target in targets)


def keywords_of(facts: Facts, call: int) -> tuple[str, ...] | None:
    """Return the names of the keyword arguments of a call; ``None`` if unknown."""
    before, instruction = facts.instructions[call - 1 : call + 1]
    if instruction.op in STARRED_CALLS:
        return None
    has_names = instruction.op in KEYWORD_CALLS or before.op in KEYWORD_NAMES
    return before.arg if has_names else ()


def keyword_argument(facts: Facts, start: int, call: int, name: str) -> CodeRange | None:
    """Return the argument that a call is given under a name."""
    names = keywords_of(facts, call) or ()
    arguments = arguments_of(facts, start, call)
    return dict(zip(reversed(names), reversed(arguments), strict=False)).get(name)


def is_constant(facts: Facts, part: CodeRange) -> bool:
    return part.end - part.start == 1 and facts.instructions[part.start].op in CONSTANT_LOADS


def is_false(facts: Facts, part: CodeRange) -> bool:
    """Return whether an argument is a constant that is false."""
    return is_constant(facts, part) and not facts.instructions[part.start].arg
