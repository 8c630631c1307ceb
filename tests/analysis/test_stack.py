"""Symbolic stacks of small functions."""

from __future__ import annotations

import pytest

from bcmend.analysis.stack import InconsistentStack, operand_stacks
from bcmend.bytecode import behavior
from bcmend.bytecode.decode import decode
from bcmend.cfg.graph import build_graph
from tests.listing import Listing, listing

EXCEPTION = frozenset({-1})


def stacks_of(made: Listing) -> list[list[set[int]] | None]:
    found = operand_stacks(build_graph(made.function))
    return [None if stack is None else [set(slot) for slot in stack] for stack in found]


def test_makers_are_the_instructions_that_push() -> None:
    text = "LOAD_FAST a\nLOAD_FAST b\nBUILD_TUPLE 2\nRETURN_VALUE"
    assert stacks_of(listing(text)) == [[], [{0}], [{0}, {1}], [{2}]]


def test_copy_and_swap_keep_the_makers() -> None:
    text = "LOAD_CONST 1\nLOAD_CONST 2\nLOAD_CONST 3\nSWAP 3\nCOPY 2\nBUILD_TUPLE 4\nRETURN_VALUE"
    stacks = stacks_of(listing(text))
    assert stacks[4] == [{2}, {1}, {0}]
    assert stacks[5] == [{2}, {1}, {0}, {1}]


def test_swap_of_neighbours() -> None:
    text = "LOAD_CONST 1\nLOAD_CONST 2\nSWAP 2\nSWAP 1\nBUILD_TUPLE 2\nRETURN_VALUE"
    stacks = stacks_of(listing(text))
    assert stacks[3] == stacks[4] == [{1}, {0}]


def test_ways_that_join_unite_their_makers() -> None:
    text = """
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> other
            LOAD_CONST 1
            JUMP -> join
        other:
            LOAD_CONST 2
        join:
            RETURN_VALUE
    """
    made = listing(text)
    assert stacks_of(made)[made.at["join"]] == [{2, 4}]


def test_or_pop_keeps_the_condition_only_where_it_jumps() -> None:
    text = "LOAD_FAST a\nJUMP_IF_TRUE_OR_POP -> end\nLOAD_FAST b\nend:\nRETURN_VALUE"
    made = listing(text)
    assert stacks_of(made)[2] == []
    assert stacks_of(made)[made.at["end"]] == [{0, 2}]


def test_loop_keeps_its_iterator_below() -> None:
    text = """
            LOAD_FAST items
            GET_ITER
        head:
            FOR_ITER -> done
            POP_TOP
            JUMP -> head
        done:
            NOP
            RETURN_CONST 1
    """
    made = listing(text)
    stacks = stacks_of(made)
    assert stacks[made.at["head"]] == [{1}]
    assert stacks[3] == [{1}, {2}]
    left = [] if behavior.FOR_ITER_POPS_ITERATOR else [{1}, {2}]
    assert stacks[made.at["done"]] == left


def test_several_pushed_slots_have_one_maker() -> None:
    text = "LOAD_FAST a\nUNPACK_SEQUENCE 3\nBUILD_TUPLE 3\nRETURN_VALUE"
    assert stacks_of(listing(text))[2] == [{1}, {1}, {1}]


def test_null_of_a_call_is_a_slot() -> None:
    def call(a):
        return len(a)

    graph = build_graph(decode(call.__code__))
    (called,) = (i for i, e in enumerate(graph.function.instructions) if e.op == "CALL")
    (loaded,) = (i for i, e in enumerate(graph.function.instructions) if e.op == "LOAD_GLOBAL")
    stack = operand_stacks(graph)[called]
    assert stack is not None
    assert [set(slot) for slot in stack] == [{loaded}, {loaded}, {called - 1}]


def handled(lasti: str) -> Listing:
    return listing(
        f"""
            .try start end handler 1 {lasti}
            LOAD_FAST below
        start:
            LOAD_FAST above
            LOAD_GLOBAL g
            POP_TOP
            POP_TOP
        end:
            RETURN_VALUE
        handler:
            RERAISE 0
        """
    )


def test_handler_starts_with_what_lies_below_and_the_exception() -> None:
    made = handled("")
    assert stacks_of(made)[made.at["handler"]] == [{0}, {-1}]


def test_handler_with_the_offset_of_the_instruction() -> None:
    made = handled("lasti")
    assert stacks_of(made)[made.at["handler"]] == [{0}, {-1}, {-1}]


def test_handler_sees_every_moment_of_what_lies_below() -> None:
    made = listing(
        """
            .try start end handler 1
            LOAD_FAST a
        start:
            POP_TOP
            LOAD_FAST b
        end:
            RETURN_VALUE
        handler:
            RERAISE 0
        """
    )
    with pytest.raises(InconsistentStack, match="wants 1 operands of 0"):
        stacks_of(made)
    made = listing(
        """
            .try start end handler 1
            LOAD_FAST a
        start:
            UNARY_NOT
            UNARY_NOT
        end:
            RETURN_VALUE
        handler:
            RERAISE 0
        """
    )
    assert stacks_of(made)[made.at["handler"]] == [{0, 1}, {-1}]


def test_unreachable_instructions_have_no_stack() -> None:
    assert stacks_of(listing("RETURN_CONST 1\nPOP_TOP\nRETURN_CONST 2")) == [[], None, None]


@pytest.mark.parametrize(
    "text",
    [
        "POP_TOP\nRETURN_CONST 1",
        "LOAD_CONST 1\nSWAP 2\nRETURN_VALUE",
        "LOAD_CONST 1\nCOPY 2\nRETURN_VALUE",
        "LOAD_CONST 1\nCOPY 0\nRETURN_VALUE",
        "LOAD_CONST 1\nSWAP 0\nRETURN_VALUE",
        "top:\nLOAD_CONST 1\nJUMP -> top",
        "LOAD_FAST c\nPOP_JUMP_IF_TRUE -> end\nLOAD_CONST 1\nend:\nRETURN_CONST 1",
        "JUMP_IF_TRUE_OR_POP -> end\nend:\nRETURN_CONST 1",
        "LOAD_CONST 1\nLIST_APPEND 1\nRETURN_CONST 1",
        "LOAD_CONST 1\nLOAD_CONST 2\nMAP_ADD 1\nRETURN_CONST 1",
        "GET_LEN\nRETURN_CONST 1",
        "LOAD_CONST 1\nMATCH_KEYS\nRETURN_CONST 1",
    ],
)
def test_unsound_stacks_are_refused(text: str) -> None:
    with pytest.raises(InconsistentStack):
        stacks_of(listing(text))
