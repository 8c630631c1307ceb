"""Find jumps on lists to which one side of a branch alone appends, as ``if found:`` behind a loop.

How long such a list is depends on data where the branch does, so that the jump does, too; but
nothing that the jump itself reads says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.conditions import called_name, callees
from bcmend.analysis.facts import Facts
from bcmend.bytecode.opcodes import BUILDS, CALLS, COMPARISONS, TRUTHS, UNARY_OPERATORS, row
from bcmend.cfg.regions import Branch


def grown_lists(facts: Facts, branches: Iterable[Branch]) -> frozenset[str]:
    """Return the variables for lists made here to which one side of some of ``branches`` appends.

    In a loop that is left early that is the side that goes on.
    """
    found = (
        name
        for branch in branches
        for index in facts.indices_of(branch.taken_blocks ^ branch.fallthrough_blocks)
        for name in _appended_to(facts, index)
    )
    return frozenset(name for name in found if _is_made_here(facts, name))


def asks_about(facts: Facts, jump: int, names: frozenset[str]) -> bool:
    """Return whether a jump tests whether, or how often, one of some lists has items."""
    return not names.isdisjoint(_lists_tested(facts, jump))


def _appended_to(facts: Facts, index: int) -> Iterator[str]:
    if facts.instructions[index].op not in CALLS or called_name(facts, index) != "append":
        return
    for source in (each for slot in callees(facts, index) for each in slot if each >= 0):
        if names_of(facts.instructions[source]) == "append":
            yield from _variables(facts, source)


def _lists_tested(facts: Facts, index: int) -> Iterator[str]:
    """Yield the variables of which an instruction gets the truth, the contrary or the length."""
    yield from _variables(facts, index)
    for maker in (each for each in facts.operand(index, -1) if each >= 0):
        if facts.instructions[maker].op in UNARY_OPERATORS | TRUTHS:
            yield from _lists_tested(facts, maker)
        elif facts.instructions[maker].op in COMPARISONS:
            for call in facts.operand(maker, -2) | facts.operand(maker, -1):
                if call >= 0 and _is_length(facts, call):
                    yield from _variables(facts, call)


def _is_length(facts: Facts, index: int) -> bool:
    return facts.instructions[index].op in CALLS and called_name(facts, index) == "len"


def _variables(facts: Facts, index: int) -> Iterator[str]:
    """Yield the variables that an instruction may have as its last operand."""
    for maker in (each for each in facts.operand(index, -1) if each >= 0):
        instruction = facts.instructions[maker]
        if row(instruction.op).reads in ("local", "cell"):
            yield instruction.arg


def _is_made_here(facts: Facts, name: str) -> bool:
    makers = (each for store in facts.stores.get(name, ()) for each in facts.operand(store, -1))
    return any(each >= 0 and facts.instructions[each].op in BUILDS for each in makers)
