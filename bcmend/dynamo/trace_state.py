"""The beginning of a trace that patched code takes part in, and the steps at its end.

Steps run in the order of their phases, whenever and wherever they were added. Other values of a
trace are ``Slot``s on its ``OutputGraph``, declared by the modules that own them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from torch.fx import GraphModule

from bcmend.dynamo import compat, frames, hooks, slots, values
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.slots import Slot


class Phase(IntEnum):
    """The steps when a trace is complete, before its graph is compiled, in this order.

    NUMBERS: numbers out of tensors are resolved, and dead ones are removed.
    CHECK: what the trace has relied on is compared with what became of it; it may start anew.
    JUDGE: decides whether the call can be re-executed in eager.
    FLATTEN: choices one in another are written one behind another.
    EDIT: the graph, and the code in front of it, are completed.
    TELL: something is said to the user.
    """

    NUMBERS = 0
    CHECK = 1
    JUDGE = 2
    FLATTEN = 3
    EDIT = 4
    TELL = 5


#: Is given the graph as a module; ``None`` where the graph is empty and nothing is compiled.
Step = Callable[[GraphModule | None], None]


@dataclass(slots=True, eq=False)
class TraceState:
    """The steps at the end of one trace, and whether Dynamo will call ``end``."""

    steps: list[tuple[Phase, Step]] = field(default_factory=list)
    is_registered: bool = False

    def end(self, module: GraphModule | None) -> None:
        """Run the steps; they may add others of later phases."""
        while self.steps:
            first = min(phase for phase, _ in self.steps)
            now = [step for phase, step in self.steps if phase is first]
            self.steps = [each for each in self.steps if each[0] is not first]
            for step in now:
                step(module)


_STATE: Final[Slot[TraceState]] = Slot(TraceState, rolls_back=False)


#: Look at the part of a trace before patched code, which was not followed.
_WHEN_LATE: Final[list[Callable[[Any], None]]] = []


def when_late(look: Callable[[Any], None]) -> Callable[[Any], None]:
    """Have ``look`` called for a trace that comes to patched code only after other code."""
    _WHEN_LATE.append(look)
    return look


#: Look at each frame of patched code that a trace enters.
WHEN_ENTERED: Final[list[Callable[[Any], None]]] = []


@when_late
def _guard_what_was_computed(tx: compat.Tracer) -> None:
    effects = tx.output.side_effects
    stored = list(effects.store_attr_mutations.values())
    for frame in frames.being_traced(tx):
        held = [*frame.symbolic_locals.values(), *frame.stack]
        objects.guard_computed([held, stored], effects)


def put_hooks_in_place(tx: compat.Tracer) -> None:
    """Put the hooks in place for a trace that has come to patched code."""
    output = tx.output
    if _STATE.peek(output) is not None or frames.is_left_alone(output.root_tx.f_code):
        return
    _STATE.of(output)
    if not hooks.is_active():
        hooks.activate_for(output)
    hooks.adopt((output, output.side_effects, output.shape_env))
    if not frames.is_covered(output.root_tx):
        for look in _WHEN_LATE:
            look(tx)


@hooks.around(
    compat.InstructionTranslatorBase, methods.RUN, "the beginning of a frame", gate=hooks.first
)
def _run(inner: Any, tx: compat.Tracer) -> Any:
    put_hooks_in_place(tx)
    for look in WHEN_ENTERED:
        look(tx)
    is_root = tx is tx.output.root_tx  # of which the output forgets when it ends
    try:
        return inner(tx)
    except BaseException:
        if is_root:
            values.remove_globals(tx.output)
        raise
    finally:
        if is_root:  # as Dynamo does with its own: steps lead back to what they are stored on
            slots.forget(tx.output)


def at_the_end(output: compat.OutputGraph, phase: Phase, step: Step) -> None:
    """Have ``step`` run when the trace is complete, also if its graph is empty."""
    state = _STATE.of(output)
    if not state.is_registered:
        state.is_registered = True
        output.register_finalizer_fns.append(state.end)
    state.steps.append((phase, step))


def at_the_end_of_a_graph(
    output: compat.OutputGraph, phase: Phase, step: Callable[[GraphModule], None]
) -> None:
    """Have ``step`` run when the trace is complete, if it has a graph."""
    at_the_end(output, phase, lambda module: None if module is None else step(module))


@hooks.around(
    compat.OutputGraph,
    methods.COMPILE_SUBGRAPH,
    "the end of a trace whose graph is empty",
    gate=None,
)
def _compile_subgraph(
    inner: Any, output: compat.OutputGraph, *arguments: Any, **keywords: Any
) -> Any:
    found = inner(output, *arguments, **keywords)
    _STATE.of(output).end(None)  # no step is left if Dynamo has called it
    return found
