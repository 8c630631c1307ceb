"""Entries of torch's database in mended programs: a part of ``python -m tests.opinfo``."""

from __future__ import annotations

import torch

from bcmend.knowledge import effects
from tests.opinfo.comparison import Case, cases, judge
from tests.opinfo.entries import Entry, entries


def _is_random(entry: Entry) -> bool:
    return effects.facts_of_target(entry.info.op).is_random


def _chosen() -> list[Case]:
    """Return random entries made of constants, and others in turn in all other cases."""
    random = [each for each in entries() if _is_random(each) and "." not in each.name]
    others = [each for each in entries() if not _is_random(each)]
    found = [Case(each, "number", constants=True) for each in random[::2]]
    found += [Case(each, "condition", constants=True) for each in random[1::4]]
    every = cases(others)
    return found + every[7 :: len(every) // 14]


def test_an_entry_does_in_a_mended_program_what_it_does_in_eager() -> None:
    verdicts = {str(case): judge(case) for case in _chosen()}
    wrong = {case: each.detail for case, each in verdicts.items() if each.status == "wrong"}
    assert not wrong
    assert sum(each.status == "equal" for each in verdicts.values()) > 15, verdicts


def test_the_comparison_sees_a_draw_that_is_taken_for_a_constant() -> None:
    entry = next(each for each in entries() if each.name == "bernoulli")
    case = Case(entry, "number", constants=True)
    assert judge(case).status == "equal"
    harmless = effects.EffectFacts()
    operators = (torch.bernoulli, torch.ops.aten.bernoulli.default)
    known = {each: effects.facts_of_target(each) for each in operators}
    try:
        for each in operators:
            effects._KNOWN.put(each, harmless)
        assert judge(case).status == "wrong"
    finally:
        for each, facts in known.items():
            effects._KNOWN.put(each, facts)
