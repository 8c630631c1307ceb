"""Leave out that a comprehension in its function's own code puts a variable of its name aside.

CPython 3.12 and later write a comprehension into the function that has it. Before it, the value of
each of its variables is pushed and cleared, and behind it put back: a NULL, where the variable has
no value. No variable can hold that NULL, so that no region could begin in the comprehension and end
behind it. Where nobody reads the variable behind the comprehension, None does as well as its value,
and nothing need be put back.

Reads facts; produces facts about a function of which nothing else is different.
"""

from __future__ import annotations

from collections.abc import Iterator

from bcmend.analysis.effects import touched
from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.liveness import live_before
from bcmend.codeobj.decode import Instruction
from bcmend.codeobj.opcodes import row
from bcmend.rewrite.rearrange import with_others

__all__ = ["without_saved_variables"]


def without_saved_variables(facts: Facts) -> Facts:
    """Return facts about the function without what is saved for nobody."""
    while (found := next(_useless(facts), None)) is not None:
        save, places = found
        others = dict.fromkeys(places, Instruction("POP_TOP")) | {save: Instruction("LOAD_CONST")}
        facts = facts_of(with_others(facts.function, others))
    return facts


def _useless(facts: Facts) -> Iterator[tuple[int, list[int]]]:
    """Yield where a variable is put aside that nobody reads again, the last one first.

    With it, where it is given its value back.
    """
    saves = [
        index
        for index, each in enumerate(facts.instructions)
        if each.op == "LOAD_FAST_AND_CLEAR" and facts.stacks[index] is not None
    ]
    if not saves or touched(facts, range(len(facts.instructions))).introspects:
        return
    for save in reversed(saves):
        places = _put_back(facts, save)
        if places and not any(_is_read_behind(facts, each) for each in places):
            yield save, places


def _put_back(facts: Facts, save: int) -> list[int]:
    """Return where the variable is given its value back; nothing where that is not all."""
    name, places = facts.instructions[save].arg, []
    for index, each in enumerate(facts.instructions):
        takes, _ = row(each.op).effect(each.arg)
        stack = facts.stacks[index]
        if stack is None or each.op == "SWAP":
            continue
        if any(save in slot for slot in stack[len(stack) - takes :]):
            if each.op != "STORE_FAST" or each.arg != name or stack[-1] != {save}:
                return []
            places.append(index)
    return places


def _is_read_behind(facts: Facts, store: int) -> bool:
    following = store + 1
    is_last = following == len(facts.instructions)
    return not is_last and facts.instructions[store].arg in live_before(
        facts.graph, facts.liveness, following
    )
