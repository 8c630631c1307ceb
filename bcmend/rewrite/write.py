"""Write new code: the only place where instructions are put together.

Reads facts and a plan; produces code objects. A body is the whole function with every planned site
mended; a region, a raising arm or a deferred statement is a stretch of it that becomes a function
of its own. Each mended site keeps the original instructions behind it, for the calls in which there
is nothing to mend.

A region function is entered at any of the arms that meet at one join, by number, and is given
itself as an argument: a branch inside it that meets at the same join calls it again. So the code of
a function grows with its length however many early returns it has, and an arm may go round the loop
that it is in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType

from bcmend.analysis.facts import Facts
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.graph import decoded_index
from bcmend.codeobj import emit
from bcmend.codeobj.assemble import Item, assemble
from bcmend.codeobj.decode import Instruction, Label, Location, Shape, TryRange
from bcmend.codeobj.opcodes import row
from bcmend.names import (
    BUFFER,
    CONDITION,
    ENTRY,
    FUNCTION,
    INPUT,
    INPUTS,
    NAMESPACE,
    OPERAND,
    RESULT,
)
from bcmend.rewrite.plan import (
    BranchLowering,
    GuardLowering,
    OutputLowering,
    Plan,
    RegionKey,
    Site,
    Slice,
    Trial,
)

__all__ = ["CodeWriter"]

Emitted = Sequence[Item]


@dataclass(slots=True)
class _Stretch:
    """Code being written.

    Attributes:
        items: what has been written.
        base: operands that lie under the stretch in the function and not in the new code.
        outer: positions of try ranges that cover the whole stretch and stay outside.
        wraps_returns: whether a returned value is put in a tuple (in arms).
        keeps_buffer: whether it is a body with the buffer of the call.
        is_plain: whether it is never traced, so that no site in it needs a lowering.
        region: which region the stretch is the function of, if it is one.
        starts_at: the first instruction that is written.
        marks: for each run of items, the index of the instruction whose handlers are theirs: the
            one that they were written for, or one at the join where they call a region.
    """

    base: int = 0
    outer: frozenset[int] = frozenset()
    wraps_returns: bool = False
    keeps_buffer: bool = False
    is_plain: bool = False
    region: RegionKey | None = None
    starts_at: int = 0
    items: list[Item] = field(default_factory=list)
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    labels: dict[int, Label] = field(default_factory=dict)
    places: dict[int, Label] = field(default_factory=dict)

    def add(self, emitted: Iterable[Item]) -> None:
        self.items.extend(emitted)

    def mark(self, start: int, index: int) -> None:
        """Give the items from ``start`` on that have no mark yet the handlers of an instruction."""
        marked = self.marks[-1][1] if self.marks else 0
        if marked < len(self.items):
            self.marks.append((max(start, marked), len(self.items), index))

    def label(self, block: int) -> Label:
        return self.labels.setdefault(block, Label(f"block {block}"))


class CodeWriter:
    """Writes the code objects of one function.

    ``key_of`` names a site in the bytecode; ``nested`` maps code objects among the constants to
    what replaces them.
    """

    def __init__(
        self,
        facts: Facts,
        plan: Plan,
        key_of: Callable[[Site], str],
        nested: dict[CodeType, CodeType],
    ) -> None:
        self._facts = facts
        self._sites = plan.lowerings
        self._splits = plan.splits
        self._key_of = key_of
        self._nested = nested
        self._regions = _regions([*self._sites.values(), *self._splits.values()])
        self._codes: dict[RegionKey, CodeType] = {}
        self._begun: set[RegionKey] = set()
        self._unchanged = self._find_unchanged()
        #: Every code object written so far.
        self.written: list[CodeType] = []

    # Whole functions

    def body(self, *, with_buffer: bool) -> CodeType:
        """Write the function with its sites mended.

        With a buffer, every argument is passed by position, ``*args`` and ``**kwargs`` as the tuple
        and the dictionary that they are, and the buffer of the call is the last.
        """
        facts = self._facts
        stretch = _Stretch(keeps_buffer=with_buffer)
        self._write_blocks(stretch, facts.graph.reachable, None)
        shape = facts.function.shape
        return self._finish(stretch, _flattened(shape) if with_buffer else shape)

    def both_ways(self, gate: Callable[[Label], Sequence[Item]]) -> CodeType:
        """Write a function that holds its own instructions and, behind them, its mended form.

        That is for a generator: the frame that is suspended is the one that was entered, so that
        it cannot hand over to a body. ``gate`` is run before the first statement, and goes to the
        label that it is given where the mended form is wanted.
        """
        facts, mended = self._facts, Label("mended")
        start = 1 + next(i for i, each in enumerate(facts.instructions) if each.op == "RESUME")
        plain = _Stretch()
        self._write_originals(plain, start, gate(mended))
        stretch = _Stretch(starts_at=start)
        stretch.add([mended])
        self._write_blocks(stretch, facts.graph.reachable, None)
        items, tries = self._with_tries(plain)
        more, more_tries = self._with_tries(stretch)
        code = assemble(facts.function.shape, [*items, *more], [*tries, *more_tries])
        self.written.append(code)
        return code

    def _write_originals(self, stretch: _Stretch, start: int, gate: Sequence[Item]) -> None:
        """Write the function as it is, with ``gate`` before instruction ``start``."""
        for block in self._facts.graph.blocks:
            stretch.add([stretch.label(block.index)])
            for index in range(block.start, block.end):
                first = len(stretch.items)
                if index == start:
                    stretch.add(gate)
                instruction = self._facts.instructions[index]
                if instruction.target is not None:
                    instruction = self._copied(stretch, index)
                stretch.add([instruction])
                stretch.marks.append((first, len(stretch.items), index))

    def _region_code(self, key: RegionKey) -> CodeType:
        """Write a region as a function from an entry and live-ins to a tuple of live-outs."""
        if key not in self._codes:
            self._begun.add(key)
            members = self._regions[key]
            first = self._first_of(key)
            cells = self._cells_of(key)
            stretch = _Stretch(key.base, key.outer, key.join == EXIT, region=key)
            shape = self._inner((*first, FUNCTION, ENTRY, INPUTS), cells)
            stretch.add(emit.prologue(self._inner((), cells)))
            for number, member in enumerate(members):
                self._write_entry(stretch, 2 * number, member, taken=True)
                self._write_entry(stretch, 2 * number + 1, member, taken=False)
            stretch.add([*emit.load_const(None), *emit.return_value()])
            blocks = self._blocks_of(key)
            if blocks:
                self._write_blocks(stretch, blocks, None)
            if key.join != EXIT:
                stretch.add([stretch.label(key.join)])
                stretch.add(_pack_results(key.outputs, members[0].extra))
            self._codes[key] = self._finish(stretch, shape)
        return self._codes[key]

    def _first_of(self, key: RegionKey) -> tuple[str, ...]:
        return next((each.first for each in self._all_of(key) if each.first), ())

    def _cells_of(self, key: RegionKey) -> tuple[str, ...]:
        return tuple(sorted({name for each in self._all_of(key) for name in each.cells}))

    def _all_of(self, key: RegionKey) -> list[BranchLowering]:
        """Return the branches of a region, and of the regions that its code may call."""
        found: dict[RegionKey, None] = {}
        pending = [key]
        while pending:
            known = pending.pop()
            if known in found:
                continue
            found[known] = None
            here = self._blocks_of(known)
            for site in (*self._sites.values(), *self._splits.values()):
                if self._facts.graph.block_of[site.index] in here:
                    pending.extend(self._called_by(site))
        return [member for each in found for member in self._regions[each]]

    def _blocks_of(self, key: RegionKey) -> frozenset[int]:
        return frozenset().union(*(member.blocks for member in self._regions[key]))

    @staticmethod
    def _called_by(site: Site) -> list[RegionKey]:
        if not isinstance(site.decision, BranchLowering):
            return []
        return [form.region for form in site.decision.alternatives]

    def _write_entry(
        self, stretch: _Stretch, number: int, member: BranchLowering, *, taken: bool
    ) -> None:
        """Write: if this is the entry asked for, put the live-ins in place and go there."""
        following = Label("next entry")
        stretch.add([*emit.load_local(ENTRY), *emit.load_const(number), *emit.equal()])
        stretch.add(emit.jump_if_false(following))
        values = len(member.inputs) + member.operands + (member.kept is not None)
        values -= len(member.nulls)
        if values:
            stretch.add([*emit.load_local(INPUTS), *emit.unpack_sequence(values)])
        for name in member.inputs:
            stretch.add(emit.store_local(name))
        if member.nulls:
            stretch.add(_with_nulls(member))
        if member.kept is not None and member.kept is not taken:
            stretch.add(emit.pop_top())
        place = member.then_entry if taken else member.else_entry
        stretch.add([*emit.jump(stretch.label(place)), following])

    def _raising_arm(self, lowering: GuardLowering) -> CodeType:
        outer = frozenset(self._facts.handlers_over(lowering.jump))
        stretch = _Stretch(lowering.arm.base, outer, is_plain=True)
        operands = _operand_names(lowering)
        stretch.add(emit.prologue(self._inner((), lowering.cells)))
        for name in reversed(operands):
            stretch.add(emit.load_local(name))
        self._write_blocks(stretch, lowering.arm.blocks, lowering.arm.entry)
        return self._finish(stretch, self._inner((*lowering.inputs, *operands), lowering.cells))

    def _statement(self, lowering: OutputLowering) -> CodeType:
        """Write an output statement as a function of its inputs."""
        # What the call gives is the result where it was not dropped; nobody looks at it.
        return self._function_of_parts(lowering, [Slice(lowering.start, lowering.end)])

    def _trial(self, lowering: OutputLowering, trial: Trial) -> CodeType:
        """Write what may fail of a statement as a function of the same inputs."""
        return self._function_of_parts(lowering, trial.parts)

    def _function_of_parts(self, lowering: OutputLowering, parts: Sequence[Slice]) -> CodeType:
        stretch = _Stretch(base=self._facts.depth_before(lowering.start) or 0)
        stretch.add(emit.prologue(self._inner((), ())))
        for part in parts:
            self._write_with_inputs(stretch, lowering, part)
            for _ in range(self._pushed_by(part)):
                stretch.add(emit.pop_top())
        stretch.add([*emit.load_const(None), *emit.return_value()])
        names = tuple(INPUT.format(number) for number in range(len(lowering.inputs)))
        return self._finish(stretch, self._inner(names, ()))

    def _pushed_by(self, part: Slice) -> int:
        before, after = (self._facts.depth_before(index) or 0 for index in (part.start, part.end))
        return after - before

    def _write_with_inputs(self, stretch: _Stretch, lowering: OutputLowering, part: Slice) -> None:
        """Write a part of a statement, with the inputs in the place of what makes them."""
        starts = {each.start: (number, each) for number, each in enumerate(lowering.inputs)}
        self._mark_targets(stretch, part)
        index = part.start
        while index < part.end:
            if index in stretch.places:
                stretch.add([stretch.places[index]])
            if index in starts:
                number, given = starts[index]
                stretch.add(emit.load_local(INPUT.format(number)))
                index = given.end
            else:
                stretch.add([self._copied(stretch, index)])
                index += 1
        if index in stretch.places:  # where the next part may begin
            stretch.add([stretch.places.pop(index)])

    def _inner(self, arguments: tuple[str, ...], cells: tuple[str, ...]) -> Shape:
        """Return the shape of a function made of a part of this one."""
        shape = self._facts.function.shape
        flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
        return replace(
            shape,
            argcount=len(arguments),
            posonlyargcount=0,
            kwonlyargcount=0,
            flags=flags | (inspect.CO_NESTED if cells else 0),
            argnames=arguments,
            varnames=arguments,
            cellvars=(),
            freevars=cells,
            docstring=None,
        )

    # Stretches of blocks

    def _write_blocks(self, stretch: _Stretch, blocks: frozenset[int], entry: int | None) -> None:
        facts, order = self._facts, sorted(blocks)
        if entry is not None and order[0] != entry:
            stretch.add(emit.jump(stretch.label(entry)))
        for position, number in enumerate(order):
            block = facts.graph.blocks[number]
            stretch.add([stretch.label(number)])
            for index in range(max(block.start, stretch.starts_at), block.end):
                start = len(stretch.items)
                if index in self._unchanged and index not in stretch.places:
                    stretch.items.append(facts.instructions[index])
                else:
                    self._write_instruction(stretch, index)
                stretch.mark(start, facts.covered(index))
            following = order[position + 1] if position + 1 < len(order) else None
            falls = row(facts.instructions[block.end - 1].op).falls_through
            if falls and following != number + 1:
                stretch.add(emit.jump(stretch.label(number + 1)))

    def _find_unchanged(self) -> frozenset[int]:
        """Return the instructions that are copied as they are, wherever they are written."""
        tested = {index - 1 for index, site in self._sites.items() if _jumps(site)}
        return frozenset(
            index
            for index, instruction in enumerate(self._facts.instructions)
            if instruction.target is None
            and index not in self._sites
            and index not in self._splits
            and index not in tested
            and not isinstance(instruction.arg, CodeType)
            and row(instruction.op).ends != "return"
        )

    def _write_instruction(self, stretch: _Stretch, index: int) -> None:
        if index in stretch.places:
            stretch.add([stretch.places[index]])
        instruction = self._facts.instructions[index]
        if stretch.is_plain:
            self._write_copy(stretch, index)
            return
        site = self._sites.get(index)
        if index in self._splits:
            self._write_split(stretch, self._splits[index], instruction.location)
        if site is not None:
            self._write_site(stretch, site, instruction.location)
        elif self._tests_for_a_site(index):
            return  # the site decides first; it makes the test itself
        elif row(instruction.op).ends == "return":
            self._write_return(stretch, instruction)
            return
        self._write_copy(stretch, index)

    def _write_copy(self, stretch: _Stretch, index: int) -> None:
        copy = self._copied(stretch, index)
        following = self._sites.get(index + 1)
        if following is not None and _jumps(following) and not stretch.is_plain:
            copy = emit.without_cast(copy)
        stretch.add([copy])

    def _tests_for_a_site(self, index: int) -> bool:
        """Whether this is the TO_BOOL right before a jump that is a site."""
        site = self._sites.get(index + 1)
        return site is not None and _jumps(site) and self._facts.instructions[index].op == "TO_BOOL"

    def _copied(self, stretch: _Stretch, index: int) -> Instruction:
        instruction = self._facts.instructions[index]
        if instruction.target is not None:
            target = decoded_index(instruction.target)
            place = stretch.places.get(target)
            if place is None:
                place = stretch.label(self._facts.graph.block_of[target])
            offset, location = instruction.offset, instruction.location
            return Instruction(instruction.op, None, place, offset, location)
        if isinstance(instruction.arg, CodeType):
            return replace(instruction, arg=self._nested.get(instruction.arg, instruction.arg))
        return instruction

    def _mark_targets(self, stretch: _Stretch, part: Slice) -> None:
        """Prepare labels for jumps inside a statement."""
        for index in range(part.start, part.end):
            target = self._facts.instructions[index].target
            if isinstance(target, int):
                stretch.places.setdefault(target, Label(f"at {target}"))

    def _write_return(self, stretch: _Stretch, instruction: Instruction) -> None:
        if instruction.op == "RETURN_CONST" and stretch.wraps_returns:
            stretch.add(emit.load_const((instruction.arg,), instruction.location))
            stretch.add(emit.return_value(instruction.location))
            return
        if stretch.wraps_returns:
            stretch.add(emit.build_tuple(1, instruction.location))
        if stretch.keeps_buffer:
            # A use at the end keeps the buffer among the live variables after a graph break.
            stretch.add([*emit.load_local(BUFFER), *emit.pop_top()])
        stretch.add([instruction])

    # Sites

    def _write_site(self, stretch: _Stretch, site: Site, location: Location | None) -> None:
        decision = site.decision
        if isinstance(decision, BranchLowering):
            self._write_branch(stretch, site, decision, location)
        elif isinstance(decision, GuardLowering):
            self._write_guard(stretch, site, decision, location)
        elif isinstance(decision, OutputLowering):
            self._write_output(stretch, site, decision, location)

    def _ask(self, site: Site, name: str, *arguments: Emitted, at: Location | None) -> Emitted:
        key = emit.load_const(self._key_of(site), at)
        return emit.call_global((NAMESPACE, name), [key, *arguments], at)

    def _write_branch(
        self, stretch: _Stretch, site: Site, lowering: BranchLowering, at: Location | None
    ) -> None:
        original, start = Label("original"), len(stretch.items)
        stretch.add(emit.store_local(CONDITION, at))
        stretch.add(self._ask(site, "data_dependent", emit.load_local(CONDITION, at), at=at))
        stretch.add(emit.jump_if_false(original, at))
        for form, wider in enumerate(lowering.alternatives):
            if self._can_be_called(stretch, wider):
                stretch.mark(start, self._facts.covered(site.index))
                self._write_attempt(stretch, site, form, wider, at)
                stretch.mark(start, self._index_of_join(wider))
        self._write_original_test(stretch, site.index, original, at)

    def _index_within(self, site: Site, lowering: BranchLowering) -> int:
        """Return an instruction with the handlers that stay around a region; -1 for none."""
        if lowering.outer == self._facts.all_handlers_over(site.index):
            return self._facts.covered(site.index)
        ranges = self._facts.innermost(lowering.outer)
        starts = (decoded_index(self._facts.function.tries[each].start) for each in ranges)
        return min(starts, default=-1)

    def _index_of_join(self, lowering: BranchLowering) -> int:
        """Return the first instruction at the join; -1, which has no handler, for the end."""
        if lowering.join == EXIT:
            return -1
        return self._facts.graph.blocks[lowering.join].start

    def _can_be_called(self, stretch: _Stretch, lowering: BranchLowering) -> bool:
        """Whether the join of a branch is in the code being written, or is its own end.

        A region with handlers that are outside this one has no place in it, nor has one of which
        this one is a part.
        """
        key = stretch.region
        if key is None or lowering.region == key:
            return True
        if lowering.region in self._begun and lowering.region not in self._codes:
            return False
        here = self._blocks_of(key)
        return lowering.blocks <= here and lowering.join in here | {key.join}

    def _write_attempt(
        self,
        stretch: _Stretch,
        site: Site,
        form: int,
        lowering: BranchLowering,
        at: Location | None,
    ) -> None:
        """Write: call the region; where that gives something, go on at the join."""
        key, following = lowering.region, Label("not mended")
        entry, start = 2 * self._regions[key].index(lowering), len(stretch.items)
        operands = _operand_names(lowering)
        stretch.add(_keep_operands(operands, at))
        given = [CONDITION] if lowering.kept is not None else []
        stretch.add(
            self._ask(
                site,
                "branch",
                emit.load_const(form, at),
                emit.load_local(CONDITION, at),
                self._load_region(stretch, key, at),
                _tuple_of(self._first_of(key), at),
                emit.load_const(entry, at),
                _tuple_of([*lowering.inputs, *given, *operands], at),
                at=at,
            )
        )
        stretch.add([*emit.store_local(RESULT, at), *emit.load_local(RESULT, at)])
        stretch.add(emit.jump_if_none(following, at))
        stretch.mark(start, self._index_within(site, lowering))
        if lowering.returns:
            for _ in operands:
                stretch.add(emit.pop_top(at))
            self._return_result(stretch, at)
        else:
            stretch.add(_unpack_results(lowering, at))
            stretch.add(emit.jump(stretch.label(lowering.join), at))
        stretch.add([following])

    def _write_split(self, stretch: _Stretch, site: Site, at: Location | None) -> None:
        """Write: where an operand has one form on each side, go on from here in either form.

        All operands are kept in variables for as long as that is being decided, but for NULLs,
        which are used up and pushed anew.
        """
        narrowest = site.decision
        assert isinstance(narrowest, BranchLowering)
        forms = [form for form in narrowest.alternatives if self._can_be_called(stretch, form)]
        if not forms:
            return
        lowest = min(form.base for form in forms)
        widest = next(form for form in forms if form.base == lowest)
        names = [
            None if number in widest.nulls else OPERAND.format(number)
            for number in range(widest.operands)
        ]
        # Dynamo takes an instruction without a handler for the end of all `with` blocks.
        original, start = Label("original"), len(stretch.items)
        for name in reversed(names):
            stretch.add(_drop_null(at) if name is None else emit.store_local(name, at))
        read = [name for name in names[narrowest.base - lowest :] if name is not None]
        stretch.add(self._ask(site, "undecided", _tuple_of(read, at), at=at))
        stretch.add(emit.jump_if_false(original, at))
        for form in forms:
            stretch.mark(start, site.index)
            self._write_half(stretch, site, form, names[: form.base - lowest], names, read, at)
            stretch.mark(start, self._index_within(site, form))
        stretch.add([original])
        stretch.add(_pushed(names, at))

    def _write_half(
        self,
        stretch: _Stretch,
        site: Site,
        form: BranchLowering,
        under: Sequence[str | None],
        names: Sequence[str | None],
        read: Sequence[str],
        at: Location | None,
    ) -> None:
        """Write one form of a split: call the region twice; if that works go on at the join."""
        key, following = form.region, Label("not split")
        narrowest = site.decision
        assert isinstance(narrowest, BranchLowering)
        given = [name for name in reversed(names[len(under) :]) if name is not None]
        stretch.add(
            self._ask(
                site,
                "split",
                emit.load_const(narrowest.alternatives.index(form), at),
                self._load_region(stretch, key, at),
                _tuple_of(self._first_of(key), at),
                emit.load_const(2 * self._regions[key].index(form), at),
                _tuple_of([*form.inputs, *given], at),
                _tuple_of(read, at),
                at=at,
            )
        )
        stretch.add([*emit.store_local(RESULT, at), *emit.load_local(RESULT, at)])
        stretch.add(emit.jump_if_none(following, at))
        if form.returns:
            self._return_result(stretch, at)
        else:
            stretch.add(_pushed(under, at))
            stretch.add(_unpack_results(replace(form, operands=0), at))
            stretch.add(emit.jump(stretch.label(form.join), at))
        stretch.add([following])

    def _load_region(self, stretch: _Stretch, key: RegionKey, at: Location | None) -> Emitted:
        if stretch.region == key:
            return emit.load_local(FUNCTION, at)
        return emit.make_function(self._region_code(key), self._cells_of(key), at)

    def _return_result(self, stretch: _Stretch, at: Location | None) -> None:
        stretch.add(emit.load_local(RESULT, at))
        if not stretch.wraps_returns:
            stretch.add(emit.unpack_sequence(1, at))
        if stretch.keeps_buffer:
            stretch.add([*emit.load_local(BUFFER), *emit.pop_top()])
        stretch.add(emit.return_value(at))

    def _write_guard(
        self, stretch: _Stretch, site: Site, lowering: GuardLowering, at: Location | None
    ) -> None:
        original = Label("original")
        condition = emit.load_local(CONDITION, at)
        code = self._raising_arm(lowering)
        stretch.add(emit.store_local(CONDITION, at))
        stretch.add(self._ask(site, "data_dependent", condition, at=at))
        stretch.add(emit.jump_if_false(original, at))
        operands = _operand_names(lowering)
        stretch.add(_keep_operands(operands, at))
        stretch.add(
            self._ask(
                site,
                "guard",
                condition,
                emit.load_const(lowering.raises_if, at),
                emit.make_function(code, lowering.cells, at),
                _tuple_of([*lowering.inputs, *operands], at),
                at=at,
            )
        )
        stretch.add(emit.jump_if_false(original, at))
        stretch.add(emit.jump(stretch.label(lowering.goes_on), at))
        self._write_original_test(stretch, site.index, original, at)

    def _write_original_test(
        self, stretch: _Stretch, jump: int, original: Label, at: Location | None
    ) -> None:
        """Come back to where the untouched jump follows, its condition on the stack."""
        stretch.add([original, *emit.load_local(CONDITION, at), *emit.as_condition(at)])

    def _write_output(
        self, stretch: _Stretch, site: Site, lowering: OutputLowering, at: Location | None
    ) -> None:
        original = Label("original")
        question = self._question(stretch, lowering, at)
        stretch.add(self._ask(site, "recording", *question, at=at))
        stretch.add(emit.jump_if_false(original, at))
        inputs = [each for part in lowering.inputs for each in self._slice(stretch, part)]
        action = emit.make_function(self._statement(lowering), (), at)
        values = [*inputs, *emit.build_tuple(len(lowering.inputs), at)]
        more = self._level_and_trial(lowering, at)
        stretch.add(self._ask(site, "record", action, values, *more, at=at))
        stretch.add(emit.pop_top(at))
        if not lowering.is_dropped:
            stretch.add(emit.load_const(None, at))
        stretch.add([*emit.jump(self._place(stretch, lowering.end), at), original])

    def _level_and_trial(self, lowering: OutputLowering, at: Location | None) -> Sequence[Emitted]:
        """Return what else is passed to ``rt.record``, as far as it is out of the common."""
        trial = lowering.trial
        level, shows = lowering.stack_level, lowering.shows_tracebacks
        constants = (emit.load_const(level, at), emit.load_const(shows, at))
        if trial is None:
            return constants if level != 1 or shows else ()
        return (
            *constants,
            emit.make_function(self._trial(lowering, trial), (), at),
            emit.load_const((tuple(sorted(trial.inputs)), trial.chance), at),
        )

    def _question(
        self, stretch: _Stretch, lowering: OutputLowering, at: Location | None
    ) -> Sequence[Emitted]:
        """Return what is passed on to find out whether a call writes: see ``rt.recording``."""
        callee = lowering.callee
        if callee is None:
            return ()
        level = (
            emit.load_const(None, at)
            if callee.level is None or callee.method != "log"
            else self._load(stretch, callee.level)
        )
        return (
            self._load(stretch, callee.load),
            emit.load_const(callee.method, at),
            level,
            emit.load_const(lowering.unless_silent, at),
            emit.load_const(lowering.is_dropped, at),
        )

    def _slice(self, stretch: _Stretch, part: Slice) -> list[Item]:
        """Return a copy of what pushes an operand; its jumps stay inside of it."""
        targets = (self._facts.instructions[i].target for i in range(part.start, part.end))
        labels = {each: Label(f"copy of {each}") for each in targets if isinstance(each, int)}
        items: list[Item] = []
        for index in range(part.start, part.end):
            if index in labels:
                items.append(labels[index])
            target = self._facts.instructions[index].target
            copied = self._copied(stretch, index)
            items.append(replace(copied, target=labels[target]) if target in labels else copied)
        if part.end in labels:
            items.append(labels[part.end])
        return items

    def _load(self, stretch: _Stretch, part: Slice) -> list[Instruction]:
        """Return the loads of ``part`` alone, without the NULL of a call that ends behind them."""
        first, *rest = (self._copied(stretch, index) for index in range(part.start, part.end))
        if isinstance(first.arg, tuple) and not any(each.op.startswith("CALL") for each in rest):
            first = replace(first, arg=(False, *first.arg[1:]))
        return [first, *rest]

    def _place(self, stretch: _Stretch, index: int) -> Label:
        """Return a label for an instruction of this stretch, at a block's start or not."""
        graph = self._facts.graph
        block = graph.block_of[index]
        if graph.blocks[block].start == index:
            return stretch.label(block)
        return stretch.places.setdefault(index, Label(f"at {index}"))

    # The end of a code object

    def _finish(self, stretch: _Stretch, shape: Shape) -> CodeType:
        items, tries = self._with_tries(stretch)
        code = assemble(shape, items, tries)
        self.written.append(code)
        return code

    def _with_tries(self, stretch: _Stretch) -> tuple[list[Item], list[TryRange]]:
        """Put labels around the runs of items that each try range of the function covers."""
        tries: list[TryRange] = []
        inserted: dict[int, list[Label]] = {}
        for position, entry in enumerate(self._facts.function.tries):
            handler = self._facts.graph.block_of[decoded_index(entry.handler)]
            if position in stretch.outer or handler not in stretch.labels:
                continue
            for first, last in _runs(stretch.marks, entry):
                start, end = Label("try"), Label("end of try")
                inserted.setdefault(first, []).append(start)
                inserted.setdefault(last, []).append(end)
                depth = entry.depth - stretch.base
                tries.append(TryRange(start, end, stretch.labels[handler], depth, entry.push_lasti))
        items: list[Item] = []
        for index, item in enumerate(stretch.items):
            around = inserted.get(index, ())
            items.extend(around)
            if any(entry.start in around for entry in tries) and _begins_with_jump(stretch, index):
                # Dynamo (torch/_dynamo/bytecode_transformation.py, fix_extended_args) cannot
                # write a range that begins with an instruction that needs EXTENDED_ARG.
                items.append(Instruction("NOP"))
            items.append(item)
        items.extend(inserted.get(len(stretch.items), ()))
        return items, tries


def _begins_with_jump(stretch: _Stretch, index: int) -> bool:
    """Whether the first instruction from an item on is a jump."""
    rest = (item for item in stretch.items[index:] if isinstance(item, Instruction))
    first = next(rest, None)
    return first is not None and first.target is not None


def _runs(marks: Sequence[tuple[int, int, int]], entry: TryRange) -> list[tuple[int, int]]:
    """Return the stretches of items written for the instructions that ``entry`` covers."""
    start, end = decoded_index(entry.start), decoded_index(entry.end)
    runs: list[tuple[int, int]] = []
    for first, last, index in marks:
        if not start <= index < end or first == last:
            continue
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    return runs


def _regions(sites: Iterable[Site]) -> dict[RegionKey, list[BranchLowering]]:
    """Return the branches that share each region function, in the order of their entries."""
    regions: dict[RegionKey, list[BranchLowering]] = {}
    for site in sites:
        if isinstance(site.decision, BranchLowering):
            for lowering in site.decision.alternatives:
                regions.setdefault(lowering.region, []).append(lowering)
    return regions


def _jumps(site: Site) -> bool:
    return isinstance(site.decision, (BranchLowering, GuardLowering))


def _operand_names(lowering: BranchLowering | GuardLowering) -> list[str]:
    """Return the locals for the operands that an arm is given, from the top down."""
    return [OPERAND.format(number) for number in range(lowering.operands)]


def _keep_operands(names: Sequence[str], at: Location | None) -> Emitted:
    """Bind the topmost operands to locals, and leave them where they are."""
    return [
        each
        for number, name in enumerate(names, 1)
        for each in (*emit.copy(number, at), *emit.store_local(name, at))
    ]


def _tuple_of(names: Sequence[str], at: Location | None) -> Emitted:
    loads = [each for name in names for each in emit.load_local(name, at, may_be_unbound=True)]
    return [*loads, *emit.build_tuple(len(names), at)]


def _with_nulls(member: BranchLowering) -> Emitted:
    """Put the NULLs of a region among the operands that it is given."""
    names = [
        None if number in member.nulls else OPERAND.format(number)
        for number in range(member.operands)
    ]
    stores = [
        each for name in reversed(names) if name is not None for each in emit.store_local(name)
    ]
    return [*stores, *_pushed(names, None)]


def _pushed(names: Sequence[str | None], at: Location | None) -> Emitted:
    """Push variables, the first deepest; ``None`` stands for a NULL."""
    return [
        each
        for name in names
        for each in (emit.push_null(at) if name is None else emit.load_local(name, at))
    ]


def _drop_null(at: Location | None) -> Emitted:
    """Use up the NULL on top of the stack: nothing but a call may take one."""
    return [*emit.call_over_null((NAMESPACE, "nothing"), at), *emit.pop_top(at)]


def _pack_results(outputs: Sequence[str], extra: int) -> Emitted:
    """Return the results of an arm: its outputs, then its operands from the top down."""
    operands = [OPERAND.format(number) for number in range(extra)]
    stores = [each for name in operands for each in emit.store_local(name)]
    loads = [
        each
        for name in (*outputs, *operands)
        for each in emit.load_local(name, may_be_unbound=True)
    ]
    count = len(outputs) + extra
    return [*stores, *loads, *emit.build_tuple(count), *emit.return_value()]


def _unpack_results(lowering: BranchLowering, at: Location | None) -> Emitted:
    """Bind the outputs and put the operands that the arm left in the place of those given to it.

    The stack never gets lower than it is before or behind, since a handler may count on it.
    """
    count = len(lowering.outputs) + lowering.extra
    if count == 0:
        return [each for _ in range(lowering.operands) for each in emit.pop_top(at)]
    new = [OPERAND.format(number) for number in range(lowering.extra)]
    code = [*emit.load_local(RESULT, at), *emit.unpack_sequence(count, at)]
    code += [each for name in lowering.outputs for each in emit.store_local(name, at)]
    if not lowering.operands:
        return code
    code += [each for name in new for each in emit.store_local(name, at)]
    for _ in range(lowering.operands - lowering.extra):
        code += emit.pop_top(at)
    above = max(lowering.extra - lowering.operands, 0)
    for depth, name in enumerate(new[above:], 2):
        code += [*emit.load_local(name, at), *emit.swap(depth, at), *emit.pop_top(at)]
    return [*code, *(each for name in reversed(new[:above]) for each in emit.load_local(name, at))]


def _flattened(shape: Shape) -> Shape:
    """Return a shape in which every argument is positional and the buffer comes last."""
    arguments = (*shape.argnames, BUFFER)
    flags = shape.flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    others = tuple(name for name in shape.varnames if name not in shape.argnames)
    return replace(
        shape,
        argcount=len(arguments),
        posonlyargcount=0,
        kwonlyargcount=0,
        flags=flags,
        argnames=arguments,
        varnames=(*arguments, *others),
    )
