"""Questions to the facts about a function."""

from __future__ import annotations

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.stack import InconsistentStack
from tests.listing import Listing, listing


def _facts(made: Listing) -> Facts:
    return facts_of(made.function)


DIAMOND = listing(
    """
        LOAD_FAST c
        POP_JUMP_IF_FALSE -> other
        LOAD_CONST 1
        JUMP -> join
    other:
        LOAD_FAST a
    join:
        STORE_FAST x
        RETURN_CONST 1
    dead:
        POP_TOP
        RETURN_CONST 2
    """,
    ("a", "c"),
)


def test_operands_and_depths() -> None:
    facts, join = _facts(DIAMOND), DIAMOND.at["join"]
    assert facts.operand(join, -1) == {2, 4}
    assert facts.operand(join, -2) == frozenset()
    assert [facts.depth_before(index) for index in range(join + 2)] == [0, 1, 0, 1, 0, 1, 0]


def test_unreachable_instructions_have_no_operands() -> None:
    facts, dead = _facts(DIAMOND), DIAMOND.at["dead"]
    assert facts.depth_before(dead) is None
    assert facts.operand(dead, -1) == frozenset()


def test_instructions_of_blocks_are_in_order() -> None:
    facts = _facts(DIAMOND)
    blocks = {facts.graph.block_of[DIAMOND.at[each]] for each in ("join", "other")}
    assert facts.indices_of(frozenset(blocks)) == [4, 5, 6]
    assert facts.indices_of(frozenset()) == []


def test_branches_liveness_and_arguments() -> None:
    facts = _facts(DIAMOND)
    assert [each.jump for each in facts.branches] == [1]
    assert facts.liveness.live_in[0] == {"a", "c"}
    assert facts.argument_names == ("a", "c")
    assert facts.instructions is DIAMOND.function.instructions


def test_stores_of_locals_and_cells() -> None:
    text = "LOAD_FAST a\nSTORE_FAST x\nLOAD_FAST a\nSTORE_DEREF c\nLOAD_FAST a\nSTORE_FAST x"
    made = listing(f"MAKE_CELL c\n{text}\nRETURN_CONST 1", ("a",), ("c",))
    assert _facts(made).stores == {"x": [2, 6], "c": [4]}


def test_blocks_can_begin_elsewhere_too() -> None:
    made = listing("LOAD_CONST 1\nSTORE_FAST x\nRETURN_CONST 1")
    assert len(facts_of(made.function).graph.blocks) == 1
    assert [each.start for each in facts_of(made.function, [1]).graph.blocks] == [0, 1]


def test_an_inconsistent_function_has_no_facts() -> None:
    with pytest.raises(InconsistentStack):
        facts_of(listing("POP_TOP\nRETURN_CONST 1").function)


NESTED = listing(
    """
        NOP
    outer:
        NOP
    inner:
        NOP
    end_inner:
        NOP
    gap:
        NOP
    again:
        NOP
    end:
        RETURN_CONST 1
    inner_handler:
        POP_TOP
        RETURN_CONST 2
    outer_handler:
        POP_TOP
        RETURN_CONST 3
    .try outer inner outer_handler 0
    .try inner end_inner inner_handler 0
    .try end_inner gap outer_handler 0
    .try again end outer_handler 0
    .try inner_handler outer_handler outer_handler 0
    """
)


def test_all_ranges_of_one_handler_are_counted() -> None:
    facts, at = _facts(NESTED), NESTED.at
    assert facts.handlers_over(0) == []
    assert facts.handlers_over(at["inner"]) == [1]
    outer = [0, 2, 3, 4]
    assert facts.handlers_over(at["outer"]) == facts.handlers_over(at["again"]) == outer
    assert facts.handlers_over(at["gap"]) == []


def test_handlers_of_handlers_are_counted_too() -> None:
    facts, at = _facts(NESTED), NESTED.at
    assert facts.all_handlers_over(at["inner"]) == {0, 1, 2, 3, 4}
    assert facts.all_handlers_over(at["outer"]) == {0, 2, 3, 4}
    assert facts.all_handlers_over(at["end"]) == frozenset()


def test_the_innermost_of_handlers() -> None:
    facts, at = _facts(NESTED), NESTED.at
    assert facts.innermost(facts.all_handlers_over(at["inner"])) == [1]
    assert facts.innermost(facts.all_handlers_over(at["outer"])) == [0, 2, 3, 4]


def test_a_jump_in_no_range_is_covered_with_what_makes_its_condition() -> None:
    made = listing(
        """
        start:
            LOAD_FAST a
        end:
            POP_JUMP_IF_TRUE -> other
            RETURN_CONST 1
        other:
            RETURN_CONST 2
        handler:
            POP_TOP
            RETURN_CONST 3
        .try start end handler 0
        """,
        ("a",),
    )
    facts = _facts(made)
    assert [facts.covered(index) for index in range(3)] == [0, 0, 2]
    assert facts.handlers_over(made.at["end"]) == [0]


def test_a_jump_in_a_range_of_its_own_is_covered_there() -> None:
    made = listing(
        """
            LOAD_FAST a
        start:
            POP_JUMP_IF_TRUE -> end
        end:
            RETURN_CONST 1
        handler:
            POP_TOP
            RETURN_CONST 3
        .try start end handler 0
        """,
        ("a",),
    )
    assert _facts(made).covered(made.at["start"]) == made.at["start"]
