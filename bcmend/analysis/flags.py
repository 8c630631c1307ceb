"""Flags: locals that hold True, False or None, and the paths that are feasible given their values.

``drop = True if p < 0.5 else False``, then ``if not drop: out = layer(x)``, then
``if drop: out = None``: on every feasible path ``out`` is bound at the end, though the graph alone
has a path on which it is not. Here a block counts once for each set of values that the flags can
have where it begins, and a jump that tests a known flag has one successor.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bcmend.analysis.facts import Facts
from bcmend.analysis.liveness import solve_live
from bcmend.bytecode.instructions import Instruction, decoded_index
from bcmend.bytecode.opcodes import CONSTANT_LOADS, FILLERS, NOTS, TRUTHS, row
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.regions import Branch
from bcmend.names import LEAVES_BEGINS

#: What is known of flags; the operand on top of the stack is the flag without a name.
State = frozenset[tuple[str, bool | None]]
Node = tuple[int, State]

_NOTHING: Final[State] = frozenset()
_OPERAND: Final = ""
#: Flags of one branch that are followed: each doubles the states of a block. With three, where all
#: are set before any is tested, a function takes 1.1 times as long to mend as without, with six 2.6
#: times, with ten 47 times (2.3 s). In the models of transformers no branch has more than one. With
#: more, what only some paths bind counts as unbound there.
_MOST_FLAGS: Final = 3
#: Between a flag and the jump that tests it.
_TESTS: Final = TRUTHS | NOTS


def flags_of(facts: Facts, branch: Branch) -> frozenset[str]:
    """Return the locals that an arm sets to True, False or None, unless both set the same."""
    taken = _constants_set(facts, branch.taken_blocks, branch.join)
    other = _constants_set(facts, branch.fallthrough_blocks, branch.join)
    return frozenset(
        name
        for name in taken.keys() | other.keys()
        if len(taken.get(name, set())) != 1 or taken.get(name) != other.get(name)
    )


def flags_inside(facts: Facts, branch: Branch) -> frozenset[str]:
    """Return the locals set to True, False or None and tested before the join, unless too many."""
    taken = _constants_set(facts, branch.taken_blocks, branch.join)
    other = _constants_set(facts, branch.fallthrough_blocks, branch.join)
    blocks = branch.taken_blocks | branch.fallthrough_blocks
    found = {tested_local(facts, block) for block in blocks} & (taken.keys() | other.keys())
    return frozenset(found) if len(found) <= _MOST_FLAGS else frozenset()


def tested_local(facts: Facts, block: int) -> str:
    """Return the local that the jump at the end of ``block`` tests; empty if it is another test."""
    index = facts.graph.last(block)
    if not row(facts.instructions[index].op).jump:
        return ""
    start = facts.graph.blocks[block].start
    index -= 1
    while index > start and facts.instructions[index].op in _TESTS:
        index -= 1
    if index < start:
        return ""
    instruction = facts.instructions[index]
    return str(instruction.arg) if row(instruction.op).reads == "local" else ""


def live_by_flags(
    facts: Facts, flags: frozenset[str], entry: int, blocks: frozenset[int], wanted: frozenset[str]
) -> frozenset[str]:
    """Return what ``analysis.liveness.live_into`` does, without the paths that flags rule out."""
    successors = _explored(facts, flags, entry, blocks)
    live = solve_live(
        sorted(successors, key=lambda each: -each[0]),
        successors.__getitem__,
        partial(_handler, facts),
        lambda node: facts.liveness.events[node[0]],
        wanted,
    )
    found = live.get((entry, _NOTHING), wanted)
    return frozenset(each for each in found if isinstance(each, str))


def _explored(
    facts: Facts, flags: frozenset[str], entry: int, blocks: frozenset[int]
) -> dict[Node, list[Node]]:
    """Return the nodes in ``blocks`` that control can come to, each with its successors."""
    found: dict[Node, list[Node]] = {}
    pending: list[Node] = [(entry, _NOTHING)]
    while pending:
        node = pending.pop()
        if node in found or node[0] not in blocks:
            continue
        found[node] = _after(facts, flags, node)
        pending.extend(found[node])
        handler = _handler(facts, node)
        if handler is not None:
            pending.append(handler)
    return found


def _handler(facts: Facts, node: Node) -> Node | None:
    handler = facts.graph.handler_block(node[0])
    return None if handler is None else (handler, _NOTHING)


def _after(facts: Facts, flags: frozenset[str], node: Node) -> list[Node]:
    block, state = node
    known = dict(state)
    start, last = facts.graph.blocks[block].start, facts.graph.last(block)
    for index in range(start, last):
        _step(facts.instructions[index], known, flags)
    instruction = facts.instructions[last]
    is_known, truth = _OPERAND in known, known.get(_OPERAND)
    if row(instruction.op).jump != "always":
        _step(instruction, known, flags)
    after = frozenset((name, value) for name, value in known.items() if name in flags | {_OPERAND})
    if row(instruction.op).tests_truth and is_known:
        jumps = bool(truth) == (row(instruction.op).jump == "if_true")
        target = decoded_index(instruction.target)
        return [(facts.graph.block_of[target if jumps else last + 1], after)]
    return [(each, after) for each in facts.graph.successors[block]]


def _step(instruction: Instruction, known: dict[str, bool | None], flags: frozenset[str]) -> None:
    """Update what is known about flags by the effect of one instruction."""
    is_known, top = _OPERAND in known, known.pop(_OPERAND, None)
    facts = row(instruction.op)
    name = instruction.arg
    if facts.deletes == "local" or facts.writes == "local":
        known.pop(name, None)
        if facts.writes and name in flags and is_known:
            known[name] = top
    elif _is_constant(instruction):
        known[_OPERAND] = instruction.arg
    elif facts.reads == "local" and name in known:
        known[_OPERAND] = known[name]
    elif instruction.op in _TESTS and is_known:
        known[_OPERAND] = bool(top) != (instruction.op in NOTS)
    elif instruction.op in FILLERS and is_known:
        known[_OPERAND] = top


def _is_constant(instruction: Instruction) -> bool:
    value = instruction.arg
    return instruction.op in CONSTANT_LOADS and (value is None or isinstance(value, bool))


def _constants_set(facts: Facts, blocks: frozenset[int], join: int) -> dict[str, set[bool | None]]:
    """Return the constants that ``blocks`` set locals to, or leave for the join to set one to."""
    found: dict[str, set[bool | None]] = {}
    for index in facts.indices_of(blocks):
        name = facts.instructions[index].arg
        if row(facts.instructions[index].op).writes != "local" or index == 0:
            continue
        if name.startswith(LEAVES_BEGINS):
            continue  # merged to a tensor, so that no path has to be followed
        before = facts.instructions[index - 1]
        if _is_constant(before):
            found.setdefault(name, set()).add(before.arg)
    if join == EXIT:
        return found
    first = facts.instructions[facts.graph.blocks[join].start]
    if row(first.op).writes == "local":
        for block in blocks:
            if join in facts.graph.successors[block]:
                index = facts.graph.last(block)
                index -= row(facts.instructions[index].op).jump == "always"
                if _is_constant(facts.instructions[index]):
                    found.setdefault(first.arg, set()).add(facts.instructions[index].arg)
    return found
