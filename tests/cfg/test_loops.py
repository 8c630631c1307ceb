"""Natural loops, compared with their definition on random functions."""

from __future__ import annotations

from hypothesis import given

from bcmend.bytecode.instructions import FunctionCode
from bcmend.cfg.graph import Graph, build_graph
from bcmend.cfg.loops import loops_around
from tests.listing import listing
from tests.random_functions import functions, reached


def _ways(graph: Graph) -> dict[int, list[int]]:
    return {block.index: list(graph.leading_to[block.index]) for block in graph.blocks}


@given(functions())
def test_a_loop_is_what_goes_back_to_a_block_that_all_ways_into_it_pass(
    function: FunctionCode,
) -> None:
    graph = build_graph(function)
    ways = _ways(graph)
    everything = reached(0, ways)
    for block in everything:
        expected = {}
        for header in everything:
            behind = everything - reached(0, ways, without=header)
            ends = {each for each in behind if header in ways[each]}
            inside = {each for each in behind if ends & reached(each, ways, without=header)}
            if ends and block in inside | {header}:
                expected[header] = inside | {header}
        found = loops_around(graph, block)
        assert {each.header: set(each.blocks) for each in found} == expected
        assert [len(each.blocks) for each in found] == sorted(map(len, expected.values()))


def test_the_inner_one_of_two_comes_first() -> None:
    graph = build_graph(
        listing(
            """
            outer:
                NOP
            inner:
                LOAD_FAST a
                POP_JUMP_IF_TRUE -> inner
                LOAD_FAST b
                POP_JUMP_IF_TRUE -> outer
                RETURN_CONST 1
            """
        ).function
    )
    assert [each.header for each in loops_around(graph, 1)] == [1, 0]
    assert [each.blocks for each in loops_around(graph, 1)] == [{1}, {0, 1, 2}]
    assert loops_around(graph, 3) == []
