"""Blocks and edges of small functions, and of random ones."""

from __future__ import annotations

import pytest
from hypothesis import given

from bcmend.bytecode.instructions import FunctionCode, Label, decoded_index
from bcmend.cfg.graph import Block, build_graph, walk
from tests.listing import listing
from tests.random_functions import functions, handlers, ordinary_ways, reached


def test_straight_line_is_one_block() -> None:
    graph = build_graph(listing("LOAD_CONST 1\nRETURN_VALUE").function)
    assert graph.blocks == (Block(0, 0, 2),)
    assert graph.successors == graph.predecessors == ((),)
    assert graph.reachable == {0}


def test_diamond() -> None:
    made = listing(
        """
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> other
            NOP
            JUMP -> join
        other:
            NOP
        join:
            LOAD_CONST 1
            RETURN_VALUE
        """,
        ("c",),
    )
    graph = build_graph(made.function)
    assert graph.blocks == (Block(0, 0, 2), Block(1, 2, 4), Block(2, 4, 5), Block(3, 5, 7))
    assert graph.successors == ((1, 2), (3,), (3,), ())
    assert graph.block_of == (0, 0, 1, 1, 2, 3, 3)
    assert graph.predecessors[3] == (1, 2)
    assert graph.last(1) == 3


def test_try_ranges_divide_blocks_and_exceptions_are_no_successors() -> None:
    made = listing(
        """
            .try start end handler 0
            NOP
        start:
            LOAD_GLOBAL g
            POP_TOP
        end:
            LOAD_CONST 1
            RETURN_VALUE
        handler:
            POP_TOP
            LOAD_CONST 2
            RETURN_VALUE
        """
    )
    graph = build_graph(made.function)
    starts = [block.start for block in graph.blocks]
    assert starts == [0, made.at["start"], made.at["end"], made.at["handler"]]
    assert graph.successors == ((1,), (2,), (), ())
    assert graph.predecessors[3] == ()
    assert [graph.handler_block(block) for block in range(4)] == [None, 3, None, None]
    assert graph.reachable == {0, 1, 2, 3}


def test_code_behind_a_return_is_not_reachable() -> None:
    graph = build_graph(listing("LOAD_CONST 1\nRETURN_VALUE\nLOAD_CONST 2\nRETURN_VALUE").function)
    assert graph.reachable == {0}


def test_jump_to_the_next_instruction_gives_one_successor() -> None:
    made = listing("LOAD_FAST c\nPOP_JUMP_IF_TRUE -> next\nnext:\nLOAD_CONST 1\nRETURN_VALUE")
    graph = build_graph(made.function)
    assert graph.successors[0] == (1,)
    assert graph.predecessors[1] == (0,)


def test_code_being_built_is_refused() -> None:
    assert decoded_index(3) == 3
    with pytest.raises(TypeError, match="decoded"):
        decoded_index(Label("somewhere"))


def test_walk_stops_where_it_is_told() -> None:
    targets = [[1, 2], [3], [3], [0]]
    assert walk(0, targets) == {0, 1, 2, 3}
    assert walk(0, targets, stop=3) == {0, 1, 2}
    assert walk(3, targets, stop=3) == frozenset()


@given(functions())
def test_graph_agrees_with_the_instructions(function: FunctionCode) -> None:
    graph = build_graph(function)
    count = len(function.instructions)
    assert [i for block in graph.blocks for i in range(block.start, block.end)] == [*range(count)]
    ways = {i: ordinary_ways(function, i) for i in range(count)}
    for block in graph.blocks:
        inside = range(block.start, block.end)
        # Nothing enters a block but at its first, or leaves it but at its last instruction.
        for index in inside[:-1]:
            assert ways[index] == [index + 1]
            assert not any(index + 1 in ways[other] for other in range(count) if other != index)
        leaving = {graph.block_of[index] for index in ways[block.end - 1]}
        assert set(graph.successors[block.index]) == leaving
        caught = {graph.block_of[h] for index in inside for h in handlers(function, index)}
        expected = graph.handler_block(block.index)
        assert caught == (set() if expected is None else {expected})
    everywhere = {i: ways[i] + handlers(function, i) for i in range(count)}
    assert graph.reachable == {graph.block_of[i] for i in reached(0, everywhere)}


def test_what_only_a_handler_leads_to_is_reachable() -> None:
    made = listing(
        """
            .try start end handler 0
        start:
            LOAD_GLOBAL g
            RETURN_VALUE
        end:
            NOP
            RETURN_CONST 0
        handler:
            POP_TOP
            JUMP -> behind
        other:
            RETURN_CONST 1
        behind:
            RETURN_CONST 2
        """
    )
    graph = build_graph(made.function)
    found = {graph.blocks[block].start for block in graph.reachable}
    assert found == {made.at[name] for name in ("start", "handler", "behind")}
