"""Have the turns of a loop end in one place, where one test decides whether the loop is left.

A loop that is left from within a branch (``elif b: break``, ``if a: if b: break``), or by several
jumps, has no jump of which one side makes another turn and the other is behind the loop. So what
goes to the next turn or out of the loop sets a flag, and all of it meets in front of the next turn:

    for i in range(n):                       for i in range(n):
        if a:                                    if a:
            x = f(x)                                 x, leaves = f(x), False
        elif b:                                  else:
            break                                    leaves = True if b else False
                                                 if leaves:
                                                     break

The branches are parts of the turn then, and the flag is a tensor where one of them was decided by
one. What ends a loop over an iterator that is exhausted, or raises, is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import FunctionCode, Instruction, Label, decoded_index
from bcmend.bytecode.opcodes import CONSTANT_LOADS, FILLERS, LOCAL_LOADS, LOOPS, row
from bcmend.cfg.dominance import always_raises
from bcmend.cfg.graph import Graph
from bcmend.cfg.loops import Loop, loops_around
from bcmend.names import LEAVES
from bcmend.rewrite.passes.rearrange import rewritten, with_others, without_unreachable
from bcmend.rewrite.passes.shared_exits import MOST_WAYS, dead_locals, mark_dead


def with_joined_exits(facts: Facts, offsets: Collection[int]) -> Facts:
    """Return facts about the function in which loops with jumps at ``offsets`` have one test."""
    if offsets:
        facts = _past_fillers(facts)
    for offset in sorted(offsets):
        joining = _joining(facts, offset)
        if joining is not None:
            facts = facts_of(without_unreachable(joining.write()))
    return facts


def _past_fillers(facts: Facts) -> Facts:
    """Return facts about the function in which no jump goes to an instruction that does nothing.

    From Python 3.12 on, ``continue`` goes to one in front of the first of a ``while True`` loop.
    """
    code, graph = facts.instructions, facts.graph
    jumps = {}
    for index, each in enumerate(code):
        if each.target is None or each.op in LOOPS:
            continue
        target = first = decoded_index(each.target)
        while code[target].op in FILLERS and _share_a_range(graph, first, target + 1):
            target += 1
        if target != first:
            jumps[index] = each._replace(target=target)
    return facts_of(without_unreachable(with_others(facts.function, jumps))) if jumps else facts


def _share_a_range(graph: Graph, one: int, other: int) -> bool:
    return graph.handlers[graph.block_of[one]] == graph.handlers[graph.block_of[other]]


def _joining(facts: Facts, offset: int) -> _Joining | None:
    """Return how the innermost loop around the jumps at an offset is written; ``None`` if as it is.

    The test of a ``while`` loop stands twice, in front of the loop and at its end.
    """
    graph = facts.graph
    found = [
        loop
        for index, each in enumerate(facts.instructions)
        if each.offset == offset and row(each.op).jump and facts.stacks[index] is not None
        for loop in loops_around(graph, graph.block_of[index])[:1]
    ]
    for loop in sorted(found, key=lambda each: len(each.blocks)):
        exits = _exits(facts, loop)
        model = _model(facts, loop)
        if 1 <= len(exits) <= MOST_WAYS and model is not None and _fit(facts, loop, exits):
            return _Joining(facts, loop, exits, model)
    return None


def _exits(facts: Facts, loop: Loop) -> list[int]:
    """Return the blocks behind a loop that its turns go to, by jumps of their own."""
    raising = always_raises(facts.graph)
    found = {
        target: None
        for block in sorted(loop.blocks)
        for target in facts.graph.successors[block]
        if target not in loop.blocks | raising and not _is_exhausted(facts, block)
    }
    return list(found)


def _is_exhausted(facts: Facts, block: int) -> bool:
    """Return whether a block ends where an iterator gives its next item, or has none."""
    return facts.instructions[facts.graph.last(block)].op in LOOPS


def _model(facts: Facts, loop: Loop) -> Instruction | None:
    """Return the instruction whose place in the source the test gets: nothing ever stops there."""
    loads = CONSTANT_LOADS | LOCAL_LOADS
    code = (facts.instructions[index] for index in facts.indices_of(loop.blocks))
    return next((each for each in code if each.op in loads and each.offset >= 0), None)


def _fit(facts: Facts, loop: Loop, exits: list[int]) -> bool:
    """Return whether all ways out of a turn can meet: with as many operands, in the same ranges."""
    graph = facts.graph
    depths = {facts.depth_before(graph.blocks[each].start) for each in (loop.header, *exits)}
    sources = [
        block
        for block in loop.blocks
        if not {loop.header, *exits}.isdisjoint(graph.successors[block])
    ]
    falls_into_header = any(
        block == loop.header - 1 and row(facts.instructions[graph.last(block)].op).falls_through
        for block in sources
    )
    ranges = {graph.handlers[each] for each in (loop.header, *sources)}
    return len(depths) == 1 and len(ranges) == 1 and not falls_into_header


@dataclass(slots=True)
class _Joining:
    """Writes a function in which the turns of one loop end in one place.

    ``model`` gives what is written its place in the source. ``stubs`` are labels of what sets the
    flags, by the block to which control goes then.
    """

    facts: Facts
    loop: Loop
    exits: list[int]
    model: Instruction
    stubs: dict[int, Label] = field(default_factory=dict)

    def write(self) -> FunctionCode:
        targets = self.loop.header, *self.exits
        self.stubs = {each: Label(f"turn ends, for block {each}") for each in targets}
        return rewritten(self.facts.function, self._replacement)

    def _replacement(self, index: int, instruction: Instruction) -> Iterator[Item]:
        graph = self.facts.graph
        block = graph.block_of[index]
        if index == graph.blocks[self.loop.header].start:
            yield from self._turn_ends()
        if block not in self.loop.blocks or index != graph.last(block):
            yield instruction
            return
        if instruction.target is not None and instruction.op not in LOOPS:
            target = graph.block_of[decoded_index(instruction.target)]
            instruction = instruction._replace(target=self.stubs.get(target, instruction.target))
        yield instruction
        if row(instruction.op).falls_through and block + 1 in self.stubs:
            yield from self._placed(emit.jump(self.stubs[block + 1]))

    def _turn_ends(self) -> Iterator[Item]:
        """Yield what sets the flags, the test of them, and where the next turn begins."""
        test, begins = Label("test whether the loop is left"), Label("turn begins")
        yield from self._placed(emit.jump(begins))
        live = self.facts.liveness.live_in
        everything = frozenset[str]().union(*(live[each] for each in self.stubs))
        for target, label in self.stubs.items():
            yield label
            for name in dead_locals(self.facts, everything, live[target]):
                yield from self._placed(mark_dead(name))
            for number, leaves in enumerate(self._flags(target)):
                flag = emit.store_local(self._flag(number))
                yield from self._placed((*emit.load_const(leaves), *flag))
            yield from self._placed(emit.jump(test))
        yield test
        yield from self._placed(emit.load_local(self._flag(0)))
        yield from self._placed(emit.jump_if_false(begins))
        *others, last = self.exits
        for number, target in enumerate(others, start=1):
            yield from self._placed(emit.load_local(self._flag(number)))
            yield from self._placed(emit.jump_if_true(self.facts.graph.blocks[target].start))
        yield from self._placed(emit.jump(self.facts.graph.blocks[last].start))
        yield begins

    def _flags(self, target: int) -> list[bool]:
        """Return whether the loop is left, and by which of its exits but the last."""
        return [target != self.loop.header, *(target == each for each in self.exits[:-1])]

    def _flag(self, number: int) -> str:
        return LEAVES.format(self.model.offset, number)

    def _placed(self, emitted: Iterable[Instruction]) -> Iterator[Instruction]:
        for each in emitted:
            yield each._replace(offset=self.model.offset, location=self.model.location)
