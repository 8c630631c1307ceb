"""Write output statements: a function of the statement's inputs, and a record of it.

The inputs are evaluated where the statement stands; the rest of it becomes a function that is
called when the records are delivered. What may fail of the rest becomes a second function, which is
tried before the effects of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Label
from bcmend.names import INPUT
from bcmend.rewrite.sites.plan import CodeRange, OutputLowering, Site
from bcmend.rewrite.writer.instruction_copies import Copier
from bcmend.rewrite.writer.primitive_calls import ask
from bcmend.rewrite.writer.stretch import BlockWriter, Emitted, Stretch


class StatementWriter:
    """Writes the output statements of one function."""

    def __init__(self, writer: BlockWriter, copier: Copier) -> None:
        self._writer = writer
        self._facts = writer.facts
        self._copier = copier

    def write(self, stretch: Stretch, site: Site, lowering: OutputLowering) -> None:
        """Write: where output is recorded, make the record and continue behind the statement."""
        original = Label("original")
        stretch.add(ask(site, "recording", *self._question(stretch, lowering)))
        stretch.add(emit.jump_if_false(original))
        inputs = [each for part in lowering.inputs for each in self._copier.part(stretch, part)]
        # A result that the statement does not drop is popped: nobody reads it.
        statement = [CodeRange(lowering.start, lowering.end)]
        action = emit.make_function(self._function_of(lowering, statement))
        values: Sequence[Item] = [*inputs, *emit.build_tuple(len(lowering.inputs))]
        stretch.add(ask(site, "record", action, values, *self._level_and_trial(lowering)))
        stretch.add(emit.pop_top())
        if not lowering.is_dropped:
            stretch.add(emit.load_const(None))
        following = self._copier.place(stretch, lowering.end)
        stretch.add([*emit.jump(following), original])

    def _question(self, stretch: Stretch, lowering: OutputLowering) -> Sequence[Emitted]:
        """Return the further arguments of the primitive ``recording``."""
        callee = lowering.callee
        frames = emit.load_const(lowering.stack_level)
        if callee is None:
            return (frames,)
        level: Emitted = emit.load_const(None)
        if callee.level is not None and callee.method == "log":
            level = self._copier.load(stretch, callee.level)
        flags = map(emit.load_const, (lowering.unless_silent, lowering.is_dropped))
        load = self._copier.load(stretch, callee.load)
        return (frames, load, emit.load_const(callee.method), level, *flags)

    def _level_and_trial(self, lowering: OutputLowering) -> Sequence[Emitted]:
        """Return the further arguments of the primitive ``record``, but for trailing defaults."""
        trial = lowering.trial
        level, shows = lowering.stack_level, lowering.shows_tracebacks
        constants = (emit.load_const(level), emit.load_const(shows))
        if trial is None:
            return constants if level != 1 or shows else ()
        function = emit.make_function(self._function_of(lowering, trial.parts))
        return (
            *constants,
            function,
            emit.load_const((tuple(sorted(trial.inputs)), int(trial.fails))),
        )

    def _function_of(self, lowering: OutputLowering, parts: Sequence[CodeRange]) -> CodeType:
        """Return the code of a function that runs parts of a statement, given its inputs."""
        names = tuple(INPUT.format(number) for number in range(len(lowering.inputs)))
        shape = self._facts.function.shape.of_part(names, ())
        stretch = Stretch(base=self._facts.depth_before(lowering.start) or 0)
        stretch.add(emit.prologue(shape))
        for part in parts:
            self._write_with_inputs(stretch, lowering, part)
            depths = [self._facts.depth_before(index) or 0 for index in (part.start, part.end)]
            stretch.add(emit.pop_top() * (depths[1] - depths[0]))
        stretch.add([*emit.load_const(None), *emit.return_value()])
        return self._writer.finish(stretch, shape)

    def _write_with_inputs(
        self, stretch: Stretch, lowering: OutputLowering, part: CodeRange
    ) -> None:
        """Write a part of a statement, with the inputs in the place of what makes them."""
        starts = {each.start: (number, each) for number, each in enumerate(lowering.inputs)}
        self._copier.mark_targets(stretch, part)
        index = part.start
        while index < part.end:
            if index in stretch.places:
                stretch.add([stretch.places[index]])
            if index in starts:
                number, given = starts[index]
                stretch.add(emit.load_local(INPUT.format(number)))
                index = given.end
            else:
                stretch.add([self._copier.copied(stretch, index)])
                index += 1
        if index in stretch.places:  # where the next part may begin
            stretch.add([stretch.places.pop(index)])
