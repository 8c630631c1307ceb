"""Which locals are live, certainly bound, or bound on some path.

Reads a ``Graph``; produces a ``Liveness``. "Locals" are fast variables only: one that a nested
function captures is a cell, and is not tracked. All three analyses are iterated over blocks
(Nielson, Nielson and Hankin, "Principles of Program Analysis", chapter 2), with two extensions:

- An exception can leave a block before any of its instructions has run to its end, so a handler
  sees the variables of every moment in the block.
- An inlined comprehension (PEP 709) saves a local that it shadows on the operand stack and stores
  it back, bound or not. The saved value is tracked as a variable of its own, so that neither the
  saving counts as a use nor the storing back as a binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from bcmend.analysis.stack import Slot, operand_stacks
from bcmend.cfg.graph import Graph
from bcmend.codeobj.opcodes import Row, row

#: A local by name, or a value saved by an inlined comprehension by the instruction that saves it.
Variable = str | int
Variables = frozenset[Variable]

_NONE: Variables = frozenset()


@dataclass(frozen=True, slots=True)
class Event:
    """What one instruction does to variables.

    Attributes:
        instruction: its index.
        kind: ``"read"``, ``"write"``, ``"delete"``, ``"save"`` (the local's state goes to the
            saved variable ``instruction``, and the local is unbound) or ``"restore"``.
        name: the local.
        sources: of a restore, the saved variables that the local can get its state from.
        certain: of a restore, whether the stored value is a saved one on every path.
    """

    instruction: int
    kind: str
    name: str
    sources: Slot = frozenset()
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Liveness:
    """Facts about the locals at the borders of each block.

    Attributes:
        live_in: live when the block begins; exception edges are counted.
        live_out: live when the block ends without an exception.
        bound_in: certainly bound when the block begins; empty for unreachable blocks.
        maybe_bound_in: bound on some path when the block begins.
        tracked: what the ``..._before`` functions need besides.
    """

    live_in: tuple[frozenset[str], ...]
    live_out: tuple[frozenset[str], ...]
    bound_in: tuple[frozenset[str], ...]
    maybe_bound_in: tuple[frozenset[str], ...]
    tracked: Tracked = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tracked:
    """The same facts with saved values as variables, and the events they come from, per block."""

    events: tuple[tuple[Event, ...], ...]
    live_out: tuple[Variables, ...]
    live_in_handler: tuple[Variables, ...]
    bound_in: tuple[Variables, ...]
    maybe_bound_in: tuple[Variables, ...]


def liveness(graph: Graph) -> Liveness:
    """Return liveness and boundness of the locals at every block of ``graph``.

    Raises:
        InconsistentStack: the function saves locals on an operand stack that has no sound form.
    """
    events = _events(graph)
    live_in = _live_in(graph, events)
    live_out = tuple(_union(live_in[each] for each in targets) for targets in graph.successors)
    in_handler = tuple(_in_handler(graph, block.index, live_in) for block in graph.blocks)
    arguments: Variables = frozenset(graph.function.shape.argnames) - _cells(graph)
    bound = _forward(graph, events, arguments, all)
    maybe_bound = _forward(graph, events, arguments, any)
    saves = any(event.kind == "save" for each in events for event in each)
    names = _names if saves else _only_names
    return Liveness(
        tuple(map(names, live_in)),
        tuple(map(names, live_out)),
        tuple(map(names, bound)),
        tuple(map(names, maybe_bound)),
        Tracked(events, live_out, in_handler, bound, maybe_bound),
    )


def live_before(graph: Graph, liveness: Liveness, instruction: int) -> frozenset[str]:
    """Return the locals that are live just before ``instruction``."""
    tracked, block = liveness.tracked, graph.block_of[instruction]
    later = [each for each in tracked.events[block] if each.instruction >= instruction]
    return _names(needed_before(later, tracked.live_out[block], tracked.live_in_handler[block]))


def bound_before(graph: Graph, liveness: Liveness, instruction: int) -> frozenset[str]:
    """Return the locals that are certainly bound just before ``instruction``."""
    tracked, block = liveness.tracked, graph.block_of[instruction]
    earlier = [each for each in tracked.events[block] if each.instruction < instruction]
    return _names(_run(earlier, tracked.bound_in[block], all))


def maybe_bound_before(graph: Graph, liveness: Liveness, instruction: int) -> frozenset[str]:
    """Return the locals that are bound on some path just before ``instruction``."""
    tracked, block = liveness.tracked, graph.block_of[instruction]
    earlier = [each for each in tracked.events[block] if each.instruction < instruction]
    return _names(_run(earlier, tracked.maybe_bound_in[block], any))


def live_into(
    graph: Graph,
    liveness: Liveness,
    entry: int,
    blocks: frozenset[int],
    wanted: frozenset[str],
) -> frozenset[str]:
    """Return the locals whose values a stretch of code needs when it begins.

    An exception that leaves the stretch is not counted: who handles it finds in the frame what was
    there before the stretch.

    Args:
        graph: the function.
        liveness: its facts.
        entry: the block at which the stretch begins; outside ``blocks`` for an empty stretch.
        blocks: the blocks of the stretch.
        wanted: the locals that are needed where control leaves ``blocks``.
    """
    events = liveness.tracked.events
    live: dict[int, Variables] = dict.fromkeys(blocks, _NONE)
    changed = True
    while changed:
        changed = False
        for block in sorted(blocks, reverse=True):
            after = _union(live.get(each, wanted) for each in graph.successors[block])
            handler = graph.handler_block(block)
            in_handler = _NONE if handler is None else live.get(handler, _NONE)
            before = needed_before(events[block], after, in_handler)
            if before != live[block]:
                live[block], changed = before, True
    return _names(live.get(entry, wanted))


def _names(variables: Iterable[Variable]) -> frozenset[str]:
    return frozenset([each for each in variables if isinstance(each, str)])


def _only_names(variables: Variables) -> frozenset[str]:
    """Return ``variables``, of which none is a saved value: most functions save none."""
    return cast(frozenset[str], variables)


def _union(sets: Iterable[Variables]) -> Variables:
    return _NONE.union(*sets)


def _cells(graph: Graph) -> frozenset[str]:
    return frozenset(graph.function.shape.cellvars)


# --- events --------------------------------------------------------------------------------------


def _events(graph: Graph) -> tuple[tuple[Event, ...], ...]:
    cells = _cells(graph)
    touching: list[tuple[int, Row, str]] = []
    for index, instruction in enumerate(graph.function.instructions):
        facts = row(instruction.op)
        if facts.argument == "local" and instruction.arg not in cells:
            touching.append((index, facts, instruction.arg))
    saves = {index: name for index, facts, name in touching if _saves(facts)}
    stacks = operand_stacks(graph) if saves else ()
    by_block: list[list[Event]] = [[] for _ in graph.blocks]
    for index, facts, name in touching:
        stack = stacks[index] if saves else None
        top = stack[-1] if stack else frozenset()
        by_block[graph.block_of[index]].append(_event(index, facts, name, saves, top))
    return tuple(map(tuple, by_block))


def _saves(facts: Row) -> bool:
    return facts.reads == "local" and facts.deletes == "local"


def _event(index: int, facts: Row, name: str, saves: dict[int, str], top: Slot) -> Event:
    if _saves(facts):
        return Event(index, "save", name)
    if facts.writes is not None:
        sources = frozenset(each for each in top if saves.get(each) == name)
        if sources:
            return Event(index, "restore", name, sources, sources == top)
        return Event(index, "write", name)
    return Event(index, "delete" if facts.deletes is not None else "read", name)


# --- liveness, backward --------------------------------------------------------------------------


def _live_in(graph: Graph, events: Sequence[Sequence[Event]]) -> list[Variables]:
    live_in = [_NONE] * len(graph.blocks)
    changed = True
    while changed:
        changed = False
        for block in reversed(range(len(graph.blocks))):
            live_out = _union(live_in[each] for each in graph.successors[block])
            in_handler = _in_handler(graph, block, live_in)
            live = needed_before(events[block], live_out, in_handler)
            if live != live_in[block]:
                live_in[block], changed = live, True
    return live_in


def _in_handler(graph: Graph, block: int, live_in: Sequence[Variables]) -> Variables:
    handler = graph.handler_block(block)
    return _NONE if handler is None else live_in[handler]


def needed_before(events: Sequence[Event], live_out: Variables, in_handler: Variables) -> Variables:
    """Return what is live before ``events``, which are followed by the end of their block."""
    live = {*live_out, *in_handler}
    for event in reversed(events):
        if event.kind in ("read", "delete"):
            live.add(event.name)
        elif event.kind == "save":
            live.discard(event.name)
            if event.instruction in live:
                live.discard(event.instruction)
                live.add(event.name)
        elif event.name in live:
            live.discard(event.name)
            live.update(event.sources)
        live |= in_handler
    return frozenset(live)


# --- boundness, forward --------------------------------------------------------------------------

Choose = Callable[[Iterable[bool]], bool]


def _run(events: Sequence[Event], before: Variables, choose: Choose) -> Variables:
    """Return what is bound after ``events``.

    ``choose`` is ``all`` for what is certainly bound and ``any`` for what may be: it says whether a
    local restored from several saved values is.
    """
    if not events:
        return before
    bound = set(before)
    for event in events:
        if event.kind == "delete":
            bound.discard(event.name)
        elif event.kind == "save":
            _copy_state(bound, event.instruction, event.name in bound)
            bound.discard(event.name)
        elif event.kind == "restore":
            states = [each in bound for each in event.sources]
            _copy_state(bound, event.name, choose(states if event.certain else [*states, True]))
        else:
            # A read that did not raise proves that the local is bound.
            bound.add(event.name)
    return frozenset(bound)


def _copy_state(bound: set[Variable], variable: Variable, state: bool) -> None:
    if state:
        bound.add(variable)
    else:
        bound.discard(variable)


def _moments(
    events: Sequence[Event], before: Variables, last: int, choose: Choose
) -> list[Variables]:
    """Return what is bound at each moment of a block, ending with ``last``, that can raise."""
    moments = [before]
    for event in events:
        if event.instruction != last:
            moments.append(_run([event], moments[-1], choose))
    return moments


def _forward(
    graph: Graph,
    events: Sequence[Sequence[Event]],
    arguments: Variables,
    choose: Choose,
) -> tuple[Variables, ...]:
    """Return what is bound at the beginning of each block, on all paths or on any."""
    meet = frozenset.intersection if choose is all else frozenset.union
    states: list[Variables | None] = [None] * len(graph.blocks)
    states[0] = arguments
    pending = [0]
    while pending:
        block = pending.pop()
        before = states[block]
        assert before is not None
        after = _run(events[block], before, choose)
        arrivals = [(target, after) for target in graph.successors[block]]
        handler = graph.handler_block(block)
        if handler is not None:
            moments = _moments(events[block], before, graph.last(block), choose)
            arrivals.append((handler, meet(*moments)))
        for target, arriving in arrivals:
            known = states[target]
            merged = arriving if known is None else meet(known, arriving)
            if merged != known:
                states[target] = merged
                pending.append(target)
    return tuple(_NONE if state is None else state for state in states)
