"""Put a call in front of jumps on a truth, so that what it returns decides which side is taken.

The result is a program of its own, that runs with and without bcmend: ``if c`` becomes ``if
forced(key, c)``. A jump in a loop also counts, in a local, how often its frame has come to it: that
is ``forced(key, c, count)``, and ``turned(key, c, count, stays)`` where a loop is left, for another
truth than ``stays``. Of jumps on one expression of the source, as CPython writes the test of a
``while`` twice, all ask by one key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item, assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import Instruction, decoded_index
from bcmend.bytecode.opcodes import EXITS, STARTS, TRUTH_JUMPS, TRUTHS, row
from bcmend.cfg.graph import Graph
from bcmend.cfg.loops import Loop, loops_around
from bcmend.names import FORCED, FORCED_TURNS, FORCED_VALUE
from bcmend.rewrite.passes.rearrange import rewritten

Offsets = Mapping[int, str]
"""The offset of each jump of a code object that is to be forced, and its key."""


@dataclass(frozen=True, slots=True)
class ForcedJump:
    """A jump that asks which side to take.

    Attributes:
        key: by which it asks.
        keys: of the jumps on the same expression, its own among them.
        is_in_loop: whether a frame may come to it more than once.
        stays: the truth for which control goes round the innermost loop that is left otherwise;
            None where none is left.
    """

    key: str
    keys: tuple[str, ...]
    is_in_loop: bool
    stays: bool | None


def with_forced_jumps(
    code: CodeType, offsets: Offsets, checks: Collection[str] = ()
) -> tuple[CodeType, list[ForcedJump]]:
    """Return ``code`` in which the jumps at ``offsets`` ask, and those jumps.

    What is no jump on a truth is left out, and so is what asks whether a ``with`` block swallows an
    exception. Code nested in ``code`` stays as it is. A jump whose key is among ``checks`` leaves
    no loop: it raises.

    Raises:
        ValueError: the code cannot be decoded, or written.
    """
    facts = facts_of(decode(code))
    asking = {
        index: each
        for group in _groups(facts)
        if (each := _forced(facts, group, offsets, checks)) is not None
        for index in group
    }
    forced = list(dict.fromkeys(asking.values()))
    turns = {
        each: FORCED_TURNS.format(number) for number, each in enumerate(forced) if each.is_in_loop
    }
    first = next(i for i, each in enumerate(facts.instructions) if each.op in STARTS)

    def replacement(index: int, instruction: Instruction) -> Iterator[Item]:
        if index + 1 in asking and instruction.op in TRUTHS:
            return
        if index in asking:
            yield from _asked(instruction, asking[index], turns.get(asking[index]))
        yield emit.without_cast(instruction) if index + 1 in asking else instruction
        for each in turns.values() if index == first else ():
            yield from emit.call_global((FORCED, "begun"), [])
            yield from emit.store_local(each)

    written = rewritten(facts.function, replacement)
    return assemble(written.shape, *labelled(written)), forced


def _groups(facts: Facts) -> Iterator[list[int]]:
    """Yield the jumps on a truth, those on one expression together.

    The parts of a chained comparison have one place in the source, and other operands below.
    """
    groups: dict[object, list[int]] = {}
    for index, each in enumerate(facts.instructions):
        if each.op in TRUTH_JUMPS and not _ends_with_block(facts, index):
            is_known = each.location is not None and each.location.col_offset is not None
            place = (each.location, facts.depth_before(index)) if is_known else index
            groups.setdefault(place, []).append(index)
    yield from groups.values()


def _ends_with_block(facts: Facts, jump: int) -> bool:
    before = facts.instructions[max(jump - 2, 0) : jump]
    return any(each.op in EXITS for each in before if each.op not in TRUTHS)


def _forced(
    facts: Facts, group: Sequence[int], offsets: Offsets, checks: Collection[str]
) -> ForcedJump | None:
    places = (facts.instructions[index].offset for index in group)
    keys = tuple(offsets[each] for each in places if each in offsets)
    if not keys:
        return None
    graph = facts.graph
    loops = {
        index: around[0]
        for index in group
        if (around := loops_around(graph, graph.block_of[index]))
    }
    stays = None if keys[0] in checks else _stays(graph, loops)
    return ForcedJump(keys[0], keys, bool(loops), stays)


def _stays(graph: Graph, loops: Mapping[int, Loop]) -> bool | None:
    """Return for which truth control goes on in the innermost loop of a jump, if for one alone."""
    for index, loop in loops.items():
        instruction = graph.function.instructions[index]
        sides = decoded_index(instruction.target), index + 1
        taken, other = (graph.block_of[each] in loop.blocks for each in sides)
        if taken is not other:
            return (row(instruction.op).jump == "if_true") is taken
    return None


def _asked(instruction: Instruction, jump: ForcedJump, turns: str | None) -> Iterator[Item]:
    """Yield what puts the answer in the place of the condition."""
    place = instruction.location
    arguments = [emit.load_const(jump.key, place), emit.load_local(FORCED_VALUE, place)]
    yield from emit.store_local(FORCED_VALUE, place)
    if turns is not None:
        arguments.append(emit.load_local(turns, place))
    if jump.stays is not None:
        arguments.append(emit.load_const(jump.stays, place))
    asks = "forced" if jump.stays is None else "turned"
    yield from emit.call_global((FORCED, asks), arguments, place)
    if turns is not None:
        yield from emit.call_global((FORCED, "later"), [emit.load_local(turns, place)], place)
        yield from emit.store_local(turns, place)
    yield from emit.as_condition(place)


def with_nested(
    code: CodeType, offsets_of: Mapping[int, Offsets], checks: Collection[str] = ()
) -> tuple[CodeType, list[ForcedJump]]:
    """Return ``code`` with the jumps of it, and of code nested in it, that ask; and these jumps.

    ``offsets_of`` has the jumps of code objects by their identities. Where there are none, it is
    the very ``code``.

    Raises:
        ValueError: the code cannot be decoded, or written.
    """
    found: list[ForcedJump] = []
    asks, constants = code, list(code.co_consts)
    for place, each in enumerate(constants):
        if isinstance(each, CodeType):
            constants[place], inner = with_nested(each, offsets_of, checks)
            found += inner
    if offsets := offsets_of.get(id(code)):
        asks, own = with_forced_jumps(code, offsets, checks)
        found += own
    if found:
        others = {id(old): new for old, new in zip(code.co_consts, constants, strict=True)}
        asks = asks.replace(co_consts=tuple(others.get(id(each), each) for each in asks.co_consts))
    return asks, found
