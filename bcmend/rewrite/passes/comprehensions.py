"""Remove what an inlined comprehension saves of its function's variables, if that is not read.

CPython 3.12 and later inline comprehensions (PEP 709). Before one, the value of each variable that
it shadows is pushed and cleared, and behind it restored: a NULL, where the variable has no value.
No variable can hold that NULL, so no region could begin in the comprehension and end behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bcmend.analysis.code_effects import touched
from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.liveness import live_before
from bcmend.bytecode import emit
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import LOCAL_STORES, SAVED_LOCALS, SWAPS, row
from bcmend.rewrite.passes.rearrange import rewritten, with_others


def without_saved_variables(facts: Facts) -> Facts:
    """Return facts about the function with None saved in place of values that are not read."""
    while (found := next(_useless(facts), None)) is not None:
        save, places = found
        (discard,), (nothing,) = emit.pop_top(), emit.load_const(None)
        others = dict.fromkeys(places, discard) | {save: nothing}
        facts = facts_of(with_others(facts.function, others))
    return _set_apart(facts)


def _set_apart(facts: Facts) -> Facts:
    """Return facts about the function with a NOP behind each save.

    Dynamo knows a comprehension by the save in front of it. Where the graph breaks in one, it makes
    a function of it, for which it has no other locals than CPython's: not what regions in it store
    (``_build_comprehension_fn``, torch/_dynamo/comprehension_graph_break.py, 2.13 to 2.15).
    """
    if not any(each.op in SAVED_LOCALS for each in facts.instructions):
        return facts

    def replacement(index: int, each: Instruction) -> list[Instruction]:
        if each.op not in SAVED_LOCALS:
            return [each]
        apart = [one._replace(offset=each.offset, location=each.location) for one in emit.nothing()]
        return [each, *apart]

    return facts_of(rewritten(facts.function, replacement))


def _useless(facts: Facts) -> Iterator[tuple[int, list[int]]]:
    """Yield where a variable is saved that is not read again, and its restores; the last first.

    Saving a variable clears its slot as well, in which a cell is made if functions in the
    comprehension use it: that is left.
    """
    saves = [
        index
        for index, each in enumerate(facts.instructions)
        if each.op in SAVED_LOCALS
        and facts.stacks[index] is not None
        and each.arg not in facts.function.shape.cellvars
    ]
    if not saves or touched(facts, range(len(facts.instructions))).introspects:
        return
    for save in reversed(saves):
        places = _restores(facts, save)
        if places and not any(_is_read_behind(facts, each) for each in places):
            yield save, places


def _restores(facts: Facts, save: int) -> list[int]:
    """Return where the variable is restored; nothing where its value is used otherwise."""
    name, places = facts.instructions[save].arg, []
    for index, each in enumerate(facts.instructions):
        takes, _ = row(each.op).effect(each.arg)
        stack = facts.stacks[index]
        if stack is None or each.op in SWAPS:
            continue
        if any(save in slot for slot in stack[len(stack) - takes :]):
            if each.op not in LOCAL_STORES or each.arg != name or stack[-1] != {save}:
                return []
            places.append(index)
    return places


def _is_read_behind(facts: Facts, store: int) -> bool:
    if store + 1 == len(facts.instructions):
        return False
    return facts.instructions[store].arg in live_before(facts.graph, facts.liveness, store + 1)
