"""Bring the ways out of a ``with`` block together, so that arms can meet before the block is left.

CPython writes the call of ``__exit__`` once for each way out: for the end of the block, and for
each ``return``, ``break`` and ``continue`` in it. Where one arm of a branch returns, the arms meet
nowhere in the block, and neither can be moved out of it: the block is left by the frame that has
entered it. So the calls become one, with a test behind it:

    with torch.no_grad():                    with torch.no_grad():
        if p:                                    if p:
            return x                                 leaves, value = True, x
        y = f(x)                                 else:
    return y                                         y, leaves = f(x), False
                                             if leaves:
                                                 return value
                                             return y

The arms meet before the call. The flag that one of them sets is a tensor then (``runtime.exits``),
and the test behind the block another branch on a tensor, with nothing of the block left to do.

Reads facts; produces a function that does the same, and the facts about that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.liveness import live_before
from bcmend.cfg.graph import decoded_index
from bcmend.cfg.regions import Branch
from bcmend.codeobj import emit
from bcmend.codeobj.decode import FunctionCode, Instruction, Label
from bcmend.codeobj.opcodes import row
from bcmend.names import DEAD, LEAVES, LEFT_WITH
from bcmend.rewrite.rearrange import moved, without_unreachable

__all__ = ["with_shared_exits"]

#: The instructions of a call of ``__exit__`` when no exception is on its way.
_CALL: Final = ("LOAD_CONST", "LOAD_CONST", "LOAD_CONST", "CALL", "POP_TOP")
_BEFORE_TEST: Final = ("PUSH_EXC_INFO", "WITH_EXCEPT_START", "TO_BOOL")
_MOST_WAYS: Final = 6
_LONGEST_WAY: Final = 40


@dataclass(frozen=True, slots=True)
class _Exit:
    """One call of the ``__exit__`` of a block.

    Attributes:
        start: its first instruction.
        has_value: whether an operand lies under ``__exit__`` that the block has made.
        way: what is done behind it, up to the end of the function or a jump; empty if that is not
            one straight line.
    """

    start: int
    has_value: bool
    way: tuple[int, ...]

    @property
    def call(self) -> int:
        return self.start + _CALL.index("CALL")

    @property
    def after(self) -> int:
        return self.start + len(_CALL)


def with_shared_exits(facts: Facts, is_site: Callable[[Facts, Branch], bool]) -> Facts:
    """Return facts about a form of the function in which no arm has to leave a block.

    Args:
        facts: about the function.
        is_site: whether a branch is to be mended.
    """
    if not any(each.op == "BEFORE_WITH" for each in facts.instructions):
        return facts
    done: set[int] = set()  # by source offset, which stays
    while (block := _block_to_leave(facts, is_site, done)) is not None:
        done.add(facts.instructions[block].offset)
        exits = _exits_of(facts, block)
        sharing = _Sharing(facts, block, exits)
        if len(exits) > 1 and len(sharing.groups()) < _MOST_WAYS:
            facts = facts_of(without_unreachable(sharing.write()))
    return facts


def _block_to_leave(
    facts: Facts, is_site: Callable[[Facts, Branch], bool], done: set[int]
) -> int | None:
    """Return the innermost block (its BEFORE_WITH) that an arm of a site leaves."""
    found = [
        block
        for branch in facts.branches
        if is_site(facts, branch)
        for block in _blocks_left(facts, branch)
        if facts.instructions[block].offset not in done
    ]
    return max(found, default=None)


def _blocks_left(facts: Facts, branch: Branch) -> Iterator[int]:
    """Yield the blocks around a branch that an arm leaves."""
    stack = facts.stacks[branch.jump]
    around = frozenset().union(*(stack or ()))
    for index in facts.indices_of(branch.taken_blocks | branch.fallthrough_blocks):
        block = _left_at(facts, index)
        if block is not None and block in around:
            yield block


def _left_at(facts: Facts, start: int) -> int | None:
    """Return which block is left by the instructions from ``start`` on, if one is."""
    code = facts.instructions[start : start + len(_CALL)]
    if tuple(each.op for each in code) != _CALL or any(each.arg is not None for each in code[:3]):
        return None
    makers = facts.operand(start, -1)
    if len(makers) != 1:
        return None
    (block,) = makers
    return block if block >= 0 and facts.instructions[block].op == "BEFORE_WITH" else None


def _exits_of(facts: Facts, block: int) -> list[_Exit]:
    """Return the calls of ``__exit__`` of a block; none where they are not as expected."""
    base = facts.depth_before(block)
    assert base is not None
    targets = {each.target for each in facts.instructions}
    exits = []
    for start in range(len(facts.instructions)):
        if _left_at(facts, start) == block:
            depth = facts.depth_before(start)
            assert depth is not None
            inner = set(range(start + 1, start + len(_CALL)))
            if not base <= depth <= base + 1 or inner & targets:
                return []
            exits.append(_Exit(start, depth > base, _way(facts, start + len(_CALL))))
    return exits


def _way(facts: Facts, start: int) -> tuple[int, ...]:
    """Return the instructions from ``start`` on, up to an end; none if control may divide."""
    indices: list[int] = []
    index = start
    while len(indices) < _LONGEST_WAY:
        instruction = facts.instructions[index]
        known = row(instruction.op)
        if instruction.op == "BEFORE_WITH" or (instruction.target and known.jump != "always"):
            break
        indices.append(index)
        if not known.falls_through:
            return tuple(indices)
        index += 1
    return ()


@dataclass(slots=True)
class _Sharing:
    """Writes a function in which one block has one call of ``__exit__``.

    Attributes:
        written: instructions, with the index of the one in whose place each stands.
        labels: where they are jumped to, by index in the old function.
    """

    facts: Facts
    block: int
    exits: Sequence[_Exit]
    written: list[tuple[Instruction, int]] = field(default_factory=list)
    placed: dict[Label, int] = field(default_factory=dict)
    labels: dict[int, Label] = field(default_factory=dict)
    shared: Label = field(default_factory=lambda: Label("shared exit"))

    def write(self) -> FunctionCode:
        starts = {each.start: each for each in self.exits}
        index, instructions = 0, self.facts.instructions
        while index < len(instructions):
            self._place(self._label(index))
            if index in starts:
                self._write_exit(starts[index])
                index = starts[index].after
            else:
                self._copy(index)
                index += 1
        return self._finished()

    @property
    def _last(self) -> _Exit:
        return self.exits[-1]

    def _write_exit(self, leaving: _Exit) -> None:
        """Write: note the value and the way, and go to the call that all share."""
        start = leaving.start
        if self._keeps_value:
            if leaving.has_value:
                self._bring_value_up(start)
            else:
                self._add(emit.load_const(DEAD), start)
            self._add(emit.store_local(self._value), start)
        for number, group in enumerate(self.groups()):
            self._add(emit.load_const(leaving in group), start)
            self._add(emit.store_local(self._flag(number)), start)
        for name in self._dead_at(leaving):
            self._add((*emit.load_const(DEAD), *emit.store_local(name)), start)
        if leaving is not self._last:
            self._add(emit.jump(self.shared), start)
            return
        self._place(self.shared)
        for index in range(leaving.start, leaving.after):
            self._copy(index)
        for number, group in enumerate(self.groups()):
            self._write_way(number, group[0])
        self._load_value(leaving)

    def _bring_value_up(self, start: int) -> None:
        """Take back the exchange that brought ``__exit__`` up; an arm may not move that operand."""
        before = self.facts.instructions[start - 1]
        if before.op == "SWAP" and before.arg == 2 and not self._is_target(start):
            self.written.pop()
        else:
            self._add(emit.swap(2), start)

    def _is_target(self, index: int) -> bool:
        return any(each.target == index for each in self.facts.instructions)

    def _write_way(self, number: int, leaving: _Exit) -> None:
        """Write: if the block was left by this way, go on with it."""
        following = Label("next way")
        self._add(emit.load_local(self._flag(number)), self._last.call)
        for instruction in emit.jump_if_false(following):
            self._add((replace(instruction, offset=self._test_offset),), self._last.call)
        self._load_value(leaving)
        if leaving.way:
            for index in leaving.way:
                self._copy(index)
        else:
            self._add(emit.jump(self._label(leaving.after)), self._last.call)
        self._place(following)

    def _load_value(self, leaving: _Exit) -> None:
        if leaving.has_value:
            self._add(emit.load_local(self._value), self._last.call)

    # What is known of the ways out

    @property
    def _keeps_value(self) -> bool:
        return any(each.has_value for each in self.exits)

    def groups(self) -> list[list[_Exit]]:
        """Return the ways out that go on alike, without those that go on as the last does."""
        groups: dict[object, list[_Exit]] = {}
        for each in self.exits:
            groups.setdefault(self._kind(each), []).append(each)
        del groups[self._kind(self._last)]
        return list(groups.values())

    def _kind(self, leaving: _Exit) -> object:
        """Return what two ways out have in common that go on alike."""
        if not leaving.way:
            return leaving.start
        code = (self.facts.instructions[index] for index in leaving.way)
        return leaving.has_value, tuple((each.op, repr(each.arg), each.target) for each in code)

    def _dead_at(self, leaving: _Exit) -> list[str]:
        """Return the locals that other ways out still read, but this one does not.

        A variable that is never bound again is the same on all ways. The first argument may be read
        by ``super()``, which no instruction says.
        """
        facts, shape = self.facts, self.facts.function.shape
        live = [live_before(facts.graph, facts.liveness, each.start) for each in self.exits]
        dead = frozenset().union(*live) - live[self.exits.index(leaving)]
        read_by_super = shape.argnames[:1] if "__class__" in shape.freevars else ()
        return sorted((dead & facts.stores.keys()).difference(read_by_super))

    @property
    def _number(self) -> int:
        return self.facts.instructions[self.block].offset

    @property
    def _value(self) -> str:
        return LEFT_WITH.format(self._number)

    def _flag(self, number: int) -> str:
        return LEAVES.format(self._number, number)

    @property
    def _test_offset(self) -> int:
        """The offset that tests of flags are known by: of the test whether ``__exit__`` swallows.

        It has the same position in the source, by which the runtime asks for a jump.
        """
        graph = self.facts.graph
        handler = graph.handler_block(graph.block_of[self.block + 1])
        if handler is None:
            return -1
        block = graph.blocks[handler]
        code = self.facts.instructions[block.start : block.end]
        return next((each.offset for each in code if each.op not in _BEFORE_TEST), -1)

    # Putting the function together

    def _label(self, index: int) -> Label:
        return self.labels.setdefault(index, Label(f"at {index}"))

    def _place(self, label: Label) -> None:
        self.placed[label] = len(self.written)

    def _add(self, emitted: Iterable[Instruction], origin: int) -> None:
        model = self.facts.instructions[origin]
        for each in emitted:
            offset = model.offset if each.offset < 0 else each.offset
            new = replace(each, offset=offset, location=model.location)
            self.written.append((new, origin))

    def _copy(self, index: int) -> None:
        instruction = self.facts.instructions[index]
        if instruction.target is not None:
            target = self._label(decoded_index(instruction.target))
            instruction = replace(instruction, target=target)
        self.written.append((instruction, index))

    def _finished(self) -> FunctionCode:
        function = self.facts.function
        instructions = tuple(
            replace(each, target=self.placed[each.target])
            if isinstance(each.target, Label)
            else each
            for each, _ in self.written
        )
        origins = [origin for _, origin in self.written]
        handlers = {
            position: self.placed[self.labels[decoded_index(entry.handler)]]
            for position, entry in enumerate(function.tries)
        }
        return FunctionCode(
            function.shape, instructions, tuple(moved(function.tries, origins, handlers))
        )
