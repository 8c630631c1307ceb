"""Write branches and splits: calls of region functions, and the region functions themselves.

A region function takes the number of an entry and the live-ins, and returns a tuple of live-outs.
Each call is followed by the original instructions, for the case in which it gives nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from bcmend.bytecode import emit
from bcmend.bytecode.instructions import Label
from bcmend.bytecode.opcodes import ITEM_READS
from bcmend.cfg.dominance import EXIT
from bcmend.names import BUFFER, CONDITION, ENTRY, FUNCTION, INPUTS, RESULT
from bcmend.rewrite.sites.plan import BranchLowering, RegionKey, Site
from bcmend.rewrite.writer.primitive_calls import ask, write_condition_test, write_original_test
from bcmend.rewrite.writer.region_table import RegionTable
from bcmend.rewrite.writer.region_values import (
    copy_operands,
    insert_nulls,
    names_or_nulls,
    operand_names,
    pack_results,
    pop_all,
    push_all,
    tuple_of,
    unpack_results,
)
from bcmend.rewrite.writer.stretch import BlockWriter, Emitted, Stretch


class BranchWriter:
    """Writes the branches and splits of one function, and each region function once."""

    def __init__(self, writer: BlockWriter, regions: RegionTable) -> None:
        self._writer = writer
        self._facts = writer.facts
        self._regions = regions
        self._codes: dict[RegionKey, CodeType] = {}
        self._begun: set[RegionKey] = set()

    def write_branch(self, stretch: Stretch, site: Site, lowering: BranchLowering) -> None:
        """Write: where the condition is data-dependent, try the forms of the branch one by one."""
        original, start = Label("original"), len(stretch.items)
        write_condition_test(stretch, site, original)
        for number, form in enumerate(lowering.alternatives):
            if self._can_be_called(stretch, form):
                stretch.mark(start, self._facts.covered(site.index))
                self._write_attempt(stretch, site, number, form)
                stretch.mark(start, self._index_of_join(form))
        write_original_test(stretch, original)

    def _write_attempt(
        self, stretch: Stretch, site: Site, number: int, form: BranchLowering
    ) -> None:
        """Write: call the region; where that gives something, continue at the join."""
        following, start = Label("not mended"), len(stretch.items)
        operands = operand_names(form)
        stretch.add(copy_operands(operands))
        given = [CONDITION] if form.retained_if is not None else []
        which = (emit.load_const(number), emit.load_local(CONDITION))
        inputs = tuple_of([*form.inputs, *given, *operands])
        stretch.add(ask(site, "branch", *which, *self._region_and_entry(stretch, form), inputs))
        stretch.add(_store_result(following))
        stretch.mark(start, self._index_within(site, form))
        self._write_results(stretch, form, (), form.operands)
        stretch.add([following])

    def write_split(self, stretch: Stretch, site: Site) -> None:
        """Write: where an operand is a phi without a common form, continue with each of its forms.

        All operands are stored in variables while that is decided, but for NULLs, which are
        consumed and pushed again.
        """
        narrowest = site.decision
        assert isinstance(narrowest, BranchLowering)
        forms = [form for form in narrowest.alternatives if self._can_be_called(stretch, form)]
        if not forms:
            return
        lowest = min(form.base for form in forms)
        names = names_or_nulls(next(form for form in forms if form.base == lowest))
        # Dynamo takes an instruction without a handler for the end of all `with` blocks.
        original, start = Label("original"), len(stretch.items)
        stretch.add(pop_all(names))
        read = [name for name in names[narrowest.base - lowest :] if name is not None]
        subscripts = emit.load_const(self._facts.instructions[site.index].op in ITEM_READS)
        stretch.add(ask(site, "undecided", tuple_of(read), subscripts))
        stretch.add(emit.jump_if_false(original))
        for number, form in enumerate(narrowest.alternatives):
            if form not in forms:
                continue
            # The primitive calls the region twice; if that works, control continues at the join.
            stretch.mark(start, site.index)
            following, depth = Label("not split"), form.base - lowest
            operands = [name for name in reversed(names[depth:]) if name is not None]
            region = (emit.load_const(number), *self._region_and_entry(stretch, form))
            inputs = (tuple_of([*form.inputs, *operands]), tuple_of(read), subscripts)
            stretch.add(ask(site, "split", *region, *inputs))
            stretch.add(_store_result(following))
            self._write_results(stretch, form, names[:depth], 0)
            stretch.add([following])
            stretch.mark(start, self._index_within(site, form))
        stretch.add([original])
        stretch.add(push_all(names))

    def _write_results(
        self, stretch: Stretch, form: BranchLowering, under: Sequence[str | None], given: int
    ) -> None:
        """Write: return what a region returned, or push ``under`` and its results and go on.

        ``given`` is the number of operands given to the region that are still on the stack.
        """
        if not form.returns:
            stretch.add(push_all(under))
            stretch.add(unpack_results(form, given))
            stretch.add(emit.jump(stretch.label(form.join)))
            return
        stretch.add(emit.pop_top() * given)
        stretch.add(emit.load_local(RESULT))
        if not stretch.wraps_returns:
            stretch.add(emit.unpack_sequence(1))
        if stretch.has_buffer:
            stretch.add([*emit.load_local(BUFFER), *emit.pop_top()])
        stretch.add(emit.return_value())

    def _region_and_entry(
        self, stretch: Stretch, form: BranchLowering
    ) -> tuple[Emitted, Emitted, Emitted]:
        """Return what pushes a region function, a tuple of its first argument, and an entry."""
        key = form.region
        if stretch.region == key:
            function: Emitted = emit.load_local(FUNCTION)
        else:
            function = emit.make_function(self._code_of(key), self._regions.cells_of(key))
        first = tuple_of(self._regions.first_of(key))
        return function, first, emit.load_const(self._regions.entry_of(form))

    # Which regions can be called, and with which handlers

    def _can_be_called(self, stretch: Stretch, form: BranchLowering) -> bool:
        """Return whether the join of a branch is in the code being written, or is its own end.

        Not so for regions with handlers outside this one, or of which this one is a part.
        """
        key = stretch.region
        if key is None or form.region == key:
            return True
        if form.region in self._begun and form.region not in self._codes:
            return False
        here = self._regions.blocks_of(key)
        return form.blocks <= here and form.join in here | {key.join}

    def _index_within(self, site: Site, form: BranchLowering) -> int:
        """Return an instruction with the handlers that stay around a region; -1 for none."""
        if form.outer == self._facts.all_handlers_over(site.index):
            return self._facts.covered(site.index)
        ranges = self._facts.innermost(form.outer)
        starts = (self._facts.function.tries[each].bounds[0] for each in ranges)
        return min(starts, default=-1)

    def _index_of_join(self, form: BranchLowering) -> int:
        """Return the first instruction at the join; -1, which has no handler, for the end."""
        if form.join == EXIT:
            return -1
        return self._facts.graph.blocks[form.join].start

    # Region functions

    def _code_of(self, key: RegionKey) -> CodeType:
        if key not in self._codes:
            self._begun.add(key)
            self._codes[key] = self._written(key)
        return self._codes[key]

    def _written(self, key: RegionKey) -> CodeType:
        members, cells = self._regions.members[key], self._regions.cells_of(key)
        whole = self._facts.function.shape
        shape = whole.of_part((*self._regions.first_of(key), FUNCTION, ENTRY, INPUTS), cells)
        stretch = Stretch(key.base, key.outer, key.join == EXIT, region=key)
        stretch.add(emit.prologue(shape))
        for member in members:
            entry = self._regions.entry_of(member)
            self._write_entry(stretch, entry, member, taken=True)
            self._write_entry(stretch, entry + 1, member, taken=False)
        stretch.add([*emit.load_const(None), *emit.return_value()])
        blocks = self._regions.blocks_of(key)
        if blocks:
            self._writer.write_blocks(stretch, blocks, None)
        if key.join != EXIT:
            stretch.add([stretch.label(key.join)])
            stretch.add(pack_results(key.outputs, members[0].extra))
        return self._writer.finish(stretch, shape)

    def _write_entry(
        self, stretch: Stretch, number: int, member: BranchLowering, *, taken: bool
    ) -> None:
        """Write: if this is the entry asked for, put the live-ins in place and go there."""
        following = Label("next entry")
        stretch.add([*emit.load_local(ENTRY), *emit.load_const(number), *emit.equal()])
        stretch.add(emit.jump_if_false(following))
        values = len(member.inputs) + member.operands + (member.retained_if is not None)
        values -= len(member.nulls)
        if values:
            stretch.add([*emit.load_local(INPUTS), *emit.unpack_sequence(values)])
        for name in member.inputs:
            stretch.add(emit.store_local(name))
        if member.nulls:
            stretch.add(insert_nulls(member))
        if member.retained_if is not None and member.retained_if is not taken:
            stretch.add(emit.pop_top())
        place = member.then_entry if taken else member.else_entry
        stretch.add([*emit.jump(stretch.label(place)), following])


def _store_result(following: Label) -> Emitted:
    """Store what a region gave, and go to ``following`` if that is nothing."""
    return [*emit.store_local(RESULT), *emit.load_local(RESULT), *emit.jump_if_none(following)]
