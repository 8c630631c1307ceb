"""Propose to split code in front of an instruction that reads a phi without a common form.

Where the arms of a branch have left None and a tensor, or two numbers, both are carried along with
the condition. The first instruction that needs to know which of the two it has becomes a branch on
that condition, whose arms run the same instructions, each with one of the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import Final

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import behavior
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import (
    BLOCK_ENTRIES,
    HANDLERS,
    ITERATORS,
    KEYWORD_NAMES,
    LOOP_ENDS,
    TRUTHS,
    row,
)
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch
from bcmend.rewrite.passes.nulls import pushes_null, with_explicit_nulls
from bcmend.rewrite.sites.branch import propose_branch
from bcmend.rewrite.sites.plan import BranchLowering, SiteRefusal, chained
from bcmend.rewrite.sites.widen import wider_forms

#: What leaves an operand on the stack for longer than a statement.
_STAYS: Final = ITERATORS | BLOCK_ENTRIES | HANDLERS


def facts_with_splits(facts: Facts, offsets: Collection[int]) -> tuple[Facts, tuple[int, ...]]:
    """Return facts in which the function can be split at ``offsets``, and the instructions there.

    The NULLs of the calls concerned are operands of their own, and blocks begin where a split does
    and where it may end.
    """
    if not offsets:
        return facts, ()
    loads = {
        maker
        for index in _places(facts, offsets)
        for makers in facts.stacks[index] or ()
        for maker in makers
        if maker >= 0 and pushes_null(facts.instructions[maker])
    }
    facts = facts_of(with_explicit_nulls(facts.function, loads))
    places = _places(facts, offsets)
    starts = {each for index in places for each in (index, *_ends(facts, index))}
    ends = (index for index, each in enumerate(facts.instructions) if each.op in LOOP_ENDS)
    return facts_of(facts.function, starts.union(map(_behind_loop, ends))), places


def _behind_loop(end: int) -> int:
    """Return where control continues when an exhausted iterator jumps to the loop's end at ``end``.

    The interpreter jumps over that instruction, wherever the jump points to.
    """
    return end + (1 if behavior.END_FOR_POPS_ITERATOR else 2)


def _places(facts: Facts, offsets: Collection[int]) -> tuple[int, ...]:
    """Return the first reachable instruction decoded from each of ``offsets``."""
    instructions = facts.instructions
    found = (
        index
        for index, each in enumerate(instructions)
        if each.offset in offsets and (index == 0 or instructions[index - 1].offset != each.offset)
    )
    # The names of a call's keywords are set right before it, and belong to no operand; a cast to a
    # bool and what reads it stay together.
    return tuple(
        index - (index > 0 and instructions[index - 1].op in KEYWORD_NAMES | TRUTHS)
        for index in found
        if facts.stacks[index] is not None
    )


def _ends(facts: Facts, index: int) -> Iterator[int]:
    """Yield where a split may end: behind the instruction, and behind its statement.

    Not between what loads a method and its call: a NULL that is loaded with it cannot be stored.
    Nor between a cast to a bool and what reads it (``TRUTHS``).
    """
    if facts.instructions[index].op in KEYWORD_NAMES:
        index += 1
    lowest = _lowest(facts, index)
    following, loads_null = index, pushes_null(facts.instructions[index])
    while _continues(facts.instructions[following]):
        following += 1
        depth = facts.depth_before(following)
        is_next = following == index + 1 and not loads_null
        is_behind = is_next or (depth is not None and depth <= lowest)
        if is_behind and facts.instructions[following - 1].op not in TRUTHS:
            yield following
        if depth is None or depth <= lowest:
            break


def _lowest(facts: Facts, index: int) -> int:
    """Return how deep the stack is where the statement of an instruction begins and ends."""
    stack = facts.stacks[index]
    assert stack is not None
    return sum(1 for _ in takewhile(lambda makers: _stays(facts, makers), stack))


def _behind_its_statement(facts: Facts, index: int) -> int:
    """Return the first block that control always reaches behind the statement of ``index``."""
    lowest, after = _lowest(facts, index), facts.graph.block_of[index]
    dominators = facts.post_dominators
    while (following := dominators[after]) is not None and following != EXIT:
        after = following
        depth = facts.depth_before(facts.graph.blocks[after].start)
        if depth is not None and depth <= lowest:
            return after
    return EXIT


def _stays(facts: Facts, makers: frozenset[int]) -> bool:
    return all(maker < 0 or facts.instructions[maker].op in _STAYS for maker in makers)


def _continues(instruction: Instruction) -> bool:
    return instruction.target is None and row(instruction.op).falls_through


def propose_split(facts: Facts, index: int) -> BranchLowering | SiteRefusal:
    """Propose to split in front of an instruction, in all forms, narrowest first."""
    if any(each.op in LOOP_ENDS for each in facts.instructions[max(index - 1, 0) : index + 1]):
        return SiteRefusal("stack-shape", "the end of a loop")
    forms = [_joined_at(facts, index, facts.graph.block_of[end]) for end in _ends(facts, index)]
    if not forms:
        forms = [_joined_at(facts, index, _behind_its_statement(facts, index))]
    forms.extend(wider_forms(facts, forms[-1]))
    proposals = [propose_branch(facts, form, is_split=True) for form in dict.fromkeys(forms)]
    found = [each for each in proposals if isinstance(each, BranchLowering)]
    return chained(found) if found else proposals[0]


def _joined_at(facts: Facts, index: int, join: int) -> Branch:
    entry = facts.graph.block_of[index]
    start = 0 if join == EXIT else facts.graph.blocks[join].start
    if facts.instructions[start].op in LOOP_ENDS:
        join = facts.graph.block_of[_behind_loop(start)]
    blocks = walk(entry, facts.graph.successors, join)
    return Branch(index, entry, entry, join, blocks, blocks, False, False)
