"""Which branches share a region function, and what it needs."""

from __future__ import annotations

from typing import Any

from bcmend.analysis.facts import Facts, facts_of
from bcmend.rewrite.sites.plan import BranchLowering, OutputLowering, Plan, RegionKey, Site, chained
from bcmend.rewrite.writer.region_table import RegionTable
from tests.listing import listing

#: Three branches, of which the second is in an arm of the first.
MADE = listing(
    """
        LOAD_FAST a
        POP_JUMP_IF_FALSE -> join
    arm:
        LOAD_FAST b
        POP_JUMP_IF_FALSE -> inner
        NOP
    inner:
        NOP
    join:
        LOAD_FAST c
        POP_JUMP_IF_FALSE -> end
        NOP
    end:
        RETURN_CONST 1
    """,
    ("a", "b", "c"),
)
FACTS: Facts = facts_of(MADE.function)
FIRST, SECOND, THIRD = (each.jump for each in FACTS.branches)


def _block(label: str) -> int:
    return FACTS.graph.block_of[MADE.at[label]]


def _branch(jump: int, join: str, *blocks: str, **changes: Any) -> BranchLowering:
    values: dict[str, Any] = {
        "jump": jump,
        "then_entry": 0,
        "else_entry": 0,
        "join": _block(join),
        "blocks": frozenset(map(_block, blocks)),
        "base": 0,
        "operands": 0,
        "extra": 0,
        "retained_if": None,
        "inputs": (),
        "outputs": (),
        "cells": (),
        "first": (),
        "outer": frozenset(),
    }
    return BranchLowering(**{**values, **changes})


def _table(*branches: BranchLowering) -> RegionTable:
    sites = [Site(f"f:{each.jump}", "branch", each.jump, 1, 0, each) for each in branches]
    return RegionTable(FACTS, Plan(sites))


def test_branches_with_one_join_share_a_region_and_have_two_entries_each() -> None:
    one = _branch(FIRST, "join", "arm", "inner", then_entry=1)
    other = _branch(SECOND, "join", "inner", then_entry=2)
    table = _table(one, other)
    key = RegionKey(_block("join"), 0, (), frozenset())
    assert one.region == other.region == key
    assert table.members[key] == [one, other]
    assert (table.entry_of(one), table.entry_of(other)) == (0, 2)
    assert table.blocks_of(key) == {_block("arm"), _block("inner")}


def test_branches_with_other_joins_have_regions_of_their_own() -> None:
    one, other = _branch(FIRST, "join", "arm"), _branch(THIRD, "end", "join")
    table = _table(one, other)
    assert table.members[one.region] == [one] and table.members[other.region] == [other]
    assert table.entry_of(other) == 0


def test_wider_forms_belong_to_other_regions() -> None:
    form = chained([_branch(FIRST, "join", "arm"), _branch(FIRST, "end", "arm", "join")])
    assert form.wider is not None
    table = _table(form)
    assert table.members[form.region] == [form]
    assert table.members[form.wider.region] == [form.wider]


def test_a_region_needs_what_the_regions_called_in_it_need() -> None:
    outer = _branch(FIRST, "join", "arm", "inner", cells=("x",))
    inner = _branch(SECOND, "inner", cells=("y", "x"), first=("self",))
    behind = _branch(THIRD, "end", cells=("z",))
    table = _table(outer, inner, behind)
    assert table.cells_of(outer.region) == ("x", "y")
    assert table.first_of(outer.region) == ("self",)
    assert table.cells_of(inner.region) == ("x", "y")
    assert table.cells_of(behind.region) == ("z",) and table.first_of(behind.region) == ()


def test_regions_that_call_each_other_come_to_an_end() -> None:
    one = _branch(FIRST, "join", "arm", cells=("x",))
    # The jump of each is in the arms of the other.
    other = _branch(SECOND, "end", cells=("y",), blocks=frozenset([0]))
    table = _table(one, other)
    assert table.cells_of(one.region) == table.cells_of(other.region) == ("x", "y")


def test_splits_count_and_other_sites_do_not() -> None:
    split = _branch(FIRST, "join", "arm")
    sites = [
        Site("f:1:split", "split", FIRST, 1, 0, split),
        Site("f:1:output", "output", SECOND, 1, 0, OutputLowering(0, 1, (), None)),
    ]
    assert RegionTable(FACTS, Plan(sites)).members[split.region] == [split]
