"""Propose to split code in front of an instruction that reads a value with two forms.

Where the arms of a branch have left None and a tensor, or two numbers, no single value stands for
both, but both can be carried along with the condition. The first instruction that has to know which
of the two it is becomes a branch on that condition: its arms run the same instructions, each with
its own form. Reads facts and a place; produces a lowering or a refusal, as for any branch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from bcmend.analysis.facts import Facts, facts_of
from bcmend.cfg.dominance import EXIT, immediate_post_dominators
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch
from bcmend.codeobj import behavior
from bcmend.codeobj.nulls import pushes_null, with_explicit_nulls
from bcmend.codeobj.opcodes import row
from bcmend.rewrite.branch import propose_branch
from bcmend.rewrite.plan import BranchLowering, Refusal, chained
from bcmend.rewrite.widen import wider_forms

__all__ = ["facts_with_splits", "propose_split"]

#: What leaves an operand on the stack for longer than a statement.
_STAYS: Final = frozenset(
    ["GET_ITER", "BEFORE_WITH", "BEFORE_ASYNC_WITH", "GET_AITER", "PUSH_EXC_INFO"]
)


#: What the interpreter jumps over when an iterator is exhausted, wherever the jump points to.
_END_FOR: Final = "END_FOR"


def facts_with_splits(facts: Facts, offsets: Collection[int]) -> tuple[Facts, tuple[int, ...]]:
    """Return facts about a form of the function that can be split at ``offsets``.

    Returns them, in which the NULLs of the calls concerned are operands of their own and
    blocks begin where a split does and where it may end, and the instructions to split in front of.
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
    starts |= {
        _behind_loop(index) for index, each in enumerate(facts.instructions) if each.op == _END_FOR
    }
    return facts_of(facts.function, starts), places


def _behind_loop(end: int) -> int:
    """Return where control goes on that an exhausted iterator sends to the END_FOR at ``end``."""
    return end + (1 if behavior.END_FOR_POPS_ITERATOR else 2)


def _places(facts: Facts, offsets: Collection[int]) -> tuple[int, ...]:
    """Return the instructions decoded from ``offsets``, of those decoded from one the first.

    Those that control never comes to are left out.
    """
    instructions = facts.instructions
    found = (
        index
        for index, each in enumerate(instructions)
        if each.offset in offsets and (index == 0 or instructions[index - 1].offset != each.offset)
    )
    # The names of a call's keywords are set right before it, and belong to no operand.
    return tuple(
        index - (index > 0 and instructions[index - 1].op == "KW_NAMES")
        for index in found
        if facts.stacks[index] is not None
    )


def _ends(facts: Facts, index: int) -> Iterator[int]:
    """Yield where a split may end: behind the instruction, and behind its statement.

    Not between what loads a method and its call: a NULL that is loaded with it cannot be kept.
    """
    if facts.instructions[index].op == "KW_NAMES":
        index += 1
    lowest = _lowest(facts, index)
    following, loads_null = index, pushes_null(facts.instructions[index])
    while _falls_through(facts, following):
        following += 1
        depth = facts.depth_before(following)
        is_next = following == index + 1 and not loads_null
        if is_next or (depth is not None and depth <= lowest):
            yield following
        if depth is None or depth <= lowest:
            break


def _lowest(facts: Facts, index: int) -> int:
    """Return how deep the stack is where the statement of an instruction begins and ends."""
    stack = facts.stacks[index]
    assert stack is not None
    return next(
        (depth for depth, makers in enumerate(stack) if not _stays(facts, makers)), len(stack)
    )


def _behind_its_statement(facts: Facts, index: int) -> int:
    """Return the first block that control always comes to behind the statement of ``index``."""
    lowest, after = _lowest(facts, index), facts.graph.block_of[index]
    dominators = immediate_post_dominators(facts.graph)
    while True:
        following = dominators[after]
        if following is None or following == EXIT:
            return EXIT
        after = following
        depth = facts.depth_before(facts.graph.blocks[after].start)
        if depth is not None and depth <= lowest:
            return after


def _stays(facts: Facts, makers: frozenset[int]) -> bool:
    return all(maker < 0 or facts.instructions[maker].op in _STAYS for maker in makers)


def _falls_through(facts: Facts, index: int) -> bool:
    instruction = facts.instructions[index]
    return instruction.target is None and row(instruction.op).falls_through


def propose_split(facts: Facts, index: int) -> BranchLowering | Refusal:
    """Propose to split in front of an instruction, in all forms, narrowest first."""
    if any(each.op == _END_FOR for each in facts.instructions[max(index - 1, 0) : index + 1]):
        return Refusal("stack-shape", "the end of a loop")
    forms = [_joined_at(facts, index, facts.graph.block_of[end]) for end in _ends(facts, index)]
    if not forms:
        forms = [_joined_at(facts, index, _behind_its_statement(facts, index))]
    forms.extend(wider_forms(facts, forms[-1]))
    proposals = [propose_branch(facts, form, is_split=True) for form in dict.fromkeys(forms)]
    found = [each for each in proposals if isinstance(each, BranchLowering)]
    return chained(found) if found else proposals[0]


def _leaves_null(facts: Facts, index: int, join: int) -> bool:
    before = {maker for makers in facts.stacks[index] or () for maker in makers}
    behind = facts.stacks[facts.graph.blocks[join].start] or ()
    made = {maker for makers in behind for maker in makers} - before
    return any(facts.instructions[maker].op == "PUSH_NULL" for maker in made if maker >= 0)


def _joined_at(facts: Facts, index: int, join: int) -> Branch:
    entry = facts.graph.block_of[index]
    start = 0 if join == EXIT else facts.graph.blocks[join].start
    if facts.instructions[start].op == _END_FOR:
        join = facts.graph.block_of[_behind_loop(start)]
    blocks = walk(entry, facts.graph.successors, join)
    return Branch(index, entry, entry, join, blocks, blocks, False, False)
