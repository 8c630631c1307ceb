"""Merge the exits of a ``with`` block, so that arms can meet before the block is left.

CPython writes the call of ``__exit__`` once for each exit: for the end of the block, and for each
``return``, ``break`` and ``continue`` in it. Where one arm of a branch returns, the arms meet
nowhere in the block, and neither can be moved out of it, since the frame that has entered the block
has to leave it. So the calls become one, with a test behind it:

    with torch.no_grad():                    with torch.no_grad():
        if p:                                    if p:
            return x                                 leaves, value = True, x
        y = f(x)                                 else:
    return y                                         y, leaves = f(x), False
                                             if leaves:
                                                 return value
                                             return y

The arms meet before the call. The flag that one of them sets is a tensor then
(``tracing.merging.live_outs``), and the test behind the block is another branch on a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.liveness import live_before
from bcmend.bytecode import behavior, emit
from bcmend.bytecode.instructions import FunctionCode, Instruction, Label, retargeted
from bcmend.bytecode.opcodes import (
    ASYNC_BLOCK_ENTRIES,
    BLOCK_ENTRIES,
    CALLS,
    CONSTANT_LOADS,
    DISCARDS,
    EXITS,
    HANDLERS,
    SWAPS,
    TRUTHS,
    begin_with,
    row,
)
from bcmend.cfg.regions import Branch
from bcmend.names import DEAD, LEAVES, LEFT_WITH
from bcmend.rewrite.passes.rearrange import moved, without_unreachable

#: The instructions of a call of ``__exit__`` without an exception.
_CALL: Final = (*[CONSTANT_LOADS] * 3, CALLS, DISCARDS)
#: The swaps that bring a value over what the block is left by.
_RAISING: Final = tuple(range(2, 2 + behavior.WITH_KEEPS))
_BEFORE_TEST: Final = HANDLERS | EXITS | TRUTHS
_WITHS: Final = BLOCK_ENTRIES - ASYNC_BLOCK_ENTRIES
#: Ways on behind a block, besides that of its last exit: each has a flag, and a branch that tests
#: it. With a constant returned in each, five take 1.4 times as long to trace as the block left as
#: it is (1.5 s) and make one graph of six; eight take 5 times as long, twelve 8 times (16 s). The
#: exits of a block with more ways stay apart, and its branches break the graph.
MOST_WAYS: Final = 5
_LONGEST_CONTINUATION: Final = 40


@dataclass(frozen=True, slots=True)
class _Exit:
    """One call of the ``__exit__`` of a block, from its first instruction on.

    ``has_value`` says whether the block has made an operand under ``__exit__``. ``continuation`` is
    what follows up to the end of the function or a jump; empty if that is no straight line.
    """

    start: int
    has_value: bool
    continuation: tuple[int, ...]

    @property
    def call(self) -> int:
        return self.start + _CALL.index(CALLS)

    @property
    def after(self) -> int:
        return self.start + len(_CALL)


def dead_locals(facts: Facts, everything: frozenset[str], live: frozenset[str]) -> list[str]:
    """Return the locals of ``everything`` that are not ``live`` where control goes on.

    The first argument may be read by ``super()`` without an instruction that names it.
    """
    shape = facts.function.shape
    read_by_super = shape.argnames[:1] if "__class__" in shape.freevars else ()
    return sorted(((everything - live) & facts.stores.keys()).difference(read_by_super))


def mark_dead(name: str) -> tuple[Instruction, ...]:
    """Return what puts a constant in the place of a value that is not read any more."""
    return (*emit.load_const(DEAD), *emit.store_local(name))


def with_shared_exits(facts: Facts, is_site: Callable[[Facts, Branch], bool]) -> Facts:
    """Return facts about the function with one exit for blocks that arms of sites leave."""
    if not any(each.op in _WITHS for each in facts.instructions):
        return facts
    done: set[int] = set()  # by source offset, which stays
    while (block := _block_to_leave(facts, is_site, done)) is not None:
        done.add(facts.instructions[block].offset)
        sharing = _Sharing(facts, block, _exits_of(facts, block))
        if len(sharing.exits) > 1 and len(sharing.groups()) <= MOST_WAYS:
            facts = facts_of(without_unreachable(sharing.write()))
    return facts


def _block_to_leave(
    facts: Facts, is_site: Callable[[Facts, Branch], bool], done: set[int]
) -> int | None:
    """Return the innermost block (the instruction that enters it) that an arm of a site leaves."""
    found = [
        block
        for branch in facts.branches
        if is_site(facts, branch)
        for block in _blocks_left(facts, branch)
        if facts.instructions[block].offset not in done
    ]
    return max(found, default=None)


def _blocks_left(facts: Facts, branch: Branch) -> Iterator[int]:
    """Yield the ``with`` blocks around a branch that an arm leaves."""
    around = frozenset().union(*(facts.stacks[branch.jump] or ()))
    for index in facts.indices_of(branch.taken_blocks | branch.fallthrough_blocks):
        block = _left_at(facts, index)
        if block is not None and block in around:
            yield block


def _left_at(facts: Facts, start: int) -> int | None:
    """Return the ``with`` block that the instructions from ``start`` on leave, if they do."""
    code = facts.instructions[start : start + len(_CALL)]
    if not begin_with([each.op for each in code], _CALL):
        return None
    if any(each.arg is not None for each in code[:3]):
        return None
    block, *others = facts.operand(start, -1) or (-1,)
    is_entered = block >= 0 and facts.instructions[block].op in _WITHS
    return block if is_entered and not others else None


def _exits_of(facts: Facts, block: int) -> list[_Exit]:
    """Return the calls of ``__exit__`` of a block; none where they are not as expected."""
    base = facts.depth_before(block)
    assert base is not None
    targets = {each.target for each in facts.instructions}
    exits = []
    for start in range(len(facts.instructions)):
        if _left_at(facts, start) == block:
            values = (facts.depth_before(start) or 0) - base - (behavior.WITH_KEEPS - 1)
            after = start + len(_CALL)
            if values not in (0, 1) or targets.intersection(range(start + 1, after)):
                return []
            exits.append(_Exit(start, values == 1, _continuation(facts, after)))
    return exits


def _continuation(facts: Facts, start: int) -> tuple[int, ...]:
    """Return the instructions from ``start`` on, up to an end; none if control may branch."""
    for index in range(start, start + _LONGEST_CONTINUATION):
        instruction = facts.instructions[index]
        known = row(instruction.op)
        if instruction.op in _WITHS or (instruction.target and known.jump != "always"):
            break
        if not known.falls_through:
            return tuple(range(start, index + 1))
    return ()


@dataclass(slots=True)
class _Sharing:
    """Writes a function in which one block has one call of ``__exit__``.

    ``written`` has the index of the instruction in whose place each stands, and ``places`` where
    labels and old indices are in it.
    """

    facts: Facts
    block: int
    exits: Sequence[_Exit]
    written: list[tuple[Instruction, int]] = field(default_factory=list)
    places: dict[int | Label, int] = field(default_factory=dict)
    shared: Label = field(default_factory=lambda: Label("shared exit"))

    def write(self) -> FunctionCode:
        starts = {each.start: each for each in self.exits}
        index = 0
        while index < len(self.facts.instructions):
            self.places[index] = len(self.written)
            if index in starts:
                self._write_exit(starts[index])
                index = starts[index].after
            else:
                self._copy(index)
                index += 1
        function = self.facts.function
        handlers = [self.places[entry.handler] for entry in function.tries]
        return FunctionCode(
            function.shape,
            retargeted((each for each, _ in self.written), self.places.__getitem__),
            tuple(moved(function.tries, [origin for _, origin in self.written], handlers)),
        )

    @property
    def _last(self) -> _Exit:
        return self.exits[-1]

    def _write_exit(self, leaving: _Exit) -> None:
        """Write: store the value and which exit this is, and go to the shared call."""
        start = leaving.start
        if any(each.has_value for each in self.exits):
            if leaving.has_value:
                self._bring_value_up(start)
            else:
                self._add(emit.load_const(DEAD), start)
            self._add(emit.store_local(self._value), start)
        for number, group in enumerate(self.groups()):
            self._add(emit.load_const(leaving in group), start)
            self._add(emit.store_local(self._flag(number)), start)
        for name in self._dead_at(leaving):
            self._add(mark_dead(name), start)
        if leaving is not self._last:
            self._add(emit.jump(self.shared), start)
            return
        self.places[self.shared] = len(self.written)
        for index in range(leaving.start, leaving.after):
            self._copy(index)
        for number, group in enumerate(self.groups()):
            self._write_continuation(number, group[0])
        self._load_value(leaving)

    def _bring_value_up(self, start: int) -> None:
        """Undo the swaps that brought ``__exit__`` to the top; an arm may not move that operand."""
        before = self.facts.instructions[start - len(_RAISING) : start]
        goals = range(start - len(_RAISING) + 1, start + 1)
        is_target = any(each.target in goals for each in self.facts.instructions)
        swaps = [each.arg for each in reversed(before) if each.op in SWAPS]
        if swaps == [*_RAISING] and not is_target:
            del self.written[-len(_RAISING) :]
            return
        for distance in _RAISING:
            self._add(emit.swap(distance), start)

    def _write_continuation(self, number: int, leaving: _Exit) -> None:
        """Write: if the block was left by this exit, continue as it does."""
        following = Label("next exit")
        self._add(emit.load_local(self._flag(number)), self._last.call)
        for instruction in emit.jump_if_false(following):
            self._add((instruction._replace(offset=self._test_offset),), self._last.call)
        self._load_value(leaving)
        for index in leaving.continuation:
            self._copy(index)
        if not leaving.continuation:
            self._add(emit.jump(leaving.after), self._last.call)
        self.places[following] = len(self.written)

    def _load_value(self, leaving: _Exit) -> None:
        if leaving.has_value:
            self._add(emit.load_local(self._value), self._last.call)

    def groups(self) -> list[list[_Exit]]:
        """Return the exits by equal continuations, without those that continue like the last."""
        groups: dict[object, list[_Exit]] = {}
        for each in self.exits:
            groups.setdefault(self._kind(each), []).append(each)
        del groups[self._kind(self._last)]
        return list(groups.values())

    def _kind(self, leaving: _Exit) -> object:
        """Return a key that is equal for two exits with equal continuations."""
        if not leaving.continuation:
            return leaving.start
        code = (self.facts.instructions[index] for index in leaving.continuation)
        return leaving.has_value, tuple((each.op, repr(each.arg), each.target) for each in code)

    def _dead_at(self, leaving: _Exit) -> list[str]:
        """Return the locals that are live at other exits, but not at this one."""
        facts = self.facts
        live = [live_before(facts.graph, facts.liveness, each.start) for each in self.exits]
        everything = frozenset[str]().union(*live)
        return dead_locals(facts, everything, live[self.exits.index(leaving)])

    @property
    def _value(self) -> str:
        return LEFT_WITH.format(self.facts.instructions[self.block].offset)

    def _flag(self, number: int) -> str:
        return LEAVES.format(self.facts.instructions[self.block].offset, number)

    @property
    def _test_offset(self) -> int:
        """The offset of tests of flags: that of the test whether ``__exit__`` suppresses.

        It has the same position in the source, by which a trace that stops identifies a jump.
        """
        graph = self.facts.graph
        handler = graph.handler_block(graph.block_of[self.block + 1])
        if handler is None:
            return -1
        block = graph.blocks[handler]
        code = self.facts.instructions[block.start : block.end]
        return next((each.offset for each in code if each.op not in _BEFORE_TEST), -1)

    def _add(self, emitted: Iterable[Instruction], origin: int) -> None:
        model = self.facts.instructions[origin]
        for each in emitted:
            offset = model.offset if each.offset < 0 else each.offset
            self.written.append((each._replace(offset=offset, location=model.location), origin))

    def _copy(self, index: int) -> None:
        self.written.append((self.facts.instructions[index], index))
