"""Compute which locals are live, certainly bound, or bound on some path.

"Locals" are fast variables: one that a nested function captures is a cell, and is not tracked. All
three analyses are iterated over blocks (Nielson, Nielson and Hankin, "Principles of Program
Analysis", chapter 2), with two extensions:

- An exception can leave a block before any of its instructions has run to its end, so a handler
  sees the variables of every moment in the block.
- An inlined comprehension (PEP 709) saves a local that it shadows on the operand stack and stores
  it back, bound or not. The saved value is tracked as a variable of its own, so that neither the
  saving counts as a use nor the storing back as a binding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bcmend.analysis.stack import Slot, operand_stacks
from bcmend.bytecode.opcodes import Row, row
from bcmend.cfg.graph import Graph

#: A local by name, or a value saved by an inlined comprehension by the instruction that saves it.
Variable = str | int
Variables = frozenset[Variable]
Node = TypeVar("Node", bound=Hashable)

_NONE: Variables = frozenset()


@dataclass(frozen=True, slots=True)
class Event:
    """What one instruction does to variables."""

    instruction: int
    #: "read", "write", "delete", "save" (the local's state goes to the saved variable
    #: ``instruction``, and the local is unbound) or "restore".
    kind: str
    name: str
    sources: Slot = frozenset()  # of a restore: the saved variables it can get its state from
    certain: bool = True  # of a restore: whether the stored value is a saved one on every path


@dataclass(frozen=True, slots=True)
class Liveness:
    """Facts about the locals at the borders of each block, with saved values but in ``live_in``."""

    live_in: tuple[frozenset[str], ...]  # live when it begins; exception edges are counted
    events: tuple[tuple[Event, ...], ...]
    live_out: tuple[Variables, ...]  # live when it ends without an exception
    live_in_handler: tuple[Variables, ...]
    bound_in: tuple[Variables, ...]  # certainly bound when it begins; empty if unreachable
    maybe_bound_in: tuple[Variables, ...]  # bound on some path when it begins


def liveness(graph: Graph) -> Liveness:
    """Return liveness and boundness of the locals at every block of ``graph``."""
    events = _events(graph)
    blocks = range(len(graph.blocks))
    live = _solve(graph, reversed(blocks), events, _NONE)
    handlers = map(graph.handler_block, blocks)
    shape = graph.function.shape
    arguments: Variables = frozenset(shape.argnames).difference(shape.cellvars)
    return Liveness(
        tuple(_names(live[block]) for block in blocks),
        events,
        tuple(_NONE.union(*(live[each] for each in targets)) for targets in graph.successors),
        tuple(_NONE if handler is None else live[handler] for handler in handlers),
        _forward(graph, events, arguments, all),
        _forward(graph, events, arguments, any),
    )


def live_before(graph: Graph, liveness: Liveness, instruction: int) -> frozenset[str]:
    """Return the locals that are live just before ``instruction``."""
    return _live_from(liveness, graph.block_of[instruction], instruction)


def live_after(graph: Graph, liveness: Liveness, instruction: int) -> frozenset[str]:
    """Return the locals that are live just behind ``instruction``, wherever it goes on."""
    return _live_from(liveness, graph.block_of[instruction], instruction + 1)


def _live_from(liveness: Liveness, block: int, first: int) -> frozenset[str]:
    """Return the locals that are live before what is left of a block from an instruction on."""
    later = [each for each in liveness.events[block] if each.instruction >= first]
    return _names(_before(later, liveness.live_out[block], liveness.live_in_handler[block]))


def bound_before(
    graph: Graph, liveness: Liveness, instruction: int, choose: Choose = all
) -> frozenset[str]:
    """Return the locals bound just before ``instruction``, certainly or (``any``) on some path."""
    bound_in = liveness.bound_in if choose is all else liveness.maybe_bound_in
    block = graph.block_of[instruction]
    earlier = [each for each in liveness.events[block] if each.instruction < instruction]
    return _names(_run(earlier, bound_in[block], choose))


def live_into(
    graph: Graph, liveness: Liveness, entry: int, blocks: frozenset[int], wanted: frozenset[str]
) -> frozenset[str]:
    """Return the locals whose values ``blocks`` need when they are entered at ``entry``.

    ``wanted`` are needed where control leaves the blocks. An exception that leaves them is not
    counted: its handler finds in the frame what was there before.
    """
    live = _solve(graph, sorted(blocks, reverse=True), liveness.events, wanted)
    return _names(live.get(entry, wanted))


def _names(variables: Iterable[Variable]) -> frozenset[str]:
    return frozenset([each for each in variables if isinstance(each, str)])


# --- events --------------------------------------------------------------------------------------


def _events(graph: Graph) -> tuple[tuple[Event, ...], ...]:
    cells = graph.function.shape.cellvars
    touching: list[tuple[int, Row, str]] = [
        (index, row(each.op), each.arg)
        for index, each in enumerate(graph.function.instructions)
        if row(each.op).argument == "local" and each.arg not in cells
    ]
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


def _solve(
    graph: Graph, order: Iterable[int], events: Sequence[Sequence[Event]], wanted: Variables
) -> dict[int, Variables]:
    return solve_live(
        order, graph.successors.__getitem__, graph.handler_block, events.__getitem__, wanted
    )


def solve_live(
    order: Iterable[Node],
    successors_of: Callable[[Node], Iterable[Node]],
    handler_of: Callable[[Node], Node | None],
    events_of: Callable[[Node], Sequence[Event]],
    wanted: Variables,
) -> dict[Node, Variables]:
    """Return what is live before each node of ``order``, where ``wanted`` is live in all others.

    Handlers among the others want nothing. It is fastest where successors come first.
    """
    live: dict[Node, Variables] = dict.fromkeys(order, _NONE)
    handlers = {node: handler_of(node) for node in live}
    changed = True
    while changed:
        changed = False
        for node, handler in handlers.items():
            after = _NONE.union(*(live.get(each, wanted) for each in successors_of(node)))
            in_handler = _NONE if handler is None else live.get(handler, _NONE)
            before = _before(events_of(node), after, in_handler)
            if before != live[node]:
                live[node], changed = before, True
    return live


def _before(events: Sequence[Event], live_out: Variables, in_handler: Variables) -> Variables:
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
            _set_state(bound, event.instruction, event.name in bound)
            bound.discard(event.name)
        elif event.kind == "restore":
            states = [each in bound for each in event.sources]
            _set_state(bound, event.name, choose(states if event.certain else [*states, True]))
        else:
            # A read that did not raise proves that the local is bound.
            bound.add(event.name)
    return frozenset(bound)


def _set_state(bound: set[Variable], variable: Variable, state: bool) -> None:
    if state:
        bound.add(variable)
    else:
        bound.discard(variable)


def _forward(
    graph: Graph, events: Sequence[Sequence[Event]], arguments: Variables, choose: Choose
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
            moments = [before]
            for event in events[block]:
                if event.instruction != graph.last(block):
                    moments.append(_run([event], moments[-1], choose))
            arrivals.append((handler, meet(*moments)))
        for target, arriving in arrivals:
            known = states[target]
            merged = arriving if known is None else meet(known, arriving)
            if merged != known:
                states[target] = merged
                pending.append(target)
    return tuple(_NONE if state is None else state for state in states)
