"""Dominators against their definition: what remains reachable when a block is taken away."""

from __future__ import annotations

from hypothesis import given

from bcmend.cfg.dominance import (
    EXIT,
    always_raises,
    immediate_dominators,
    immediate_post_dominators,
)
from bcmend.cfg.graph import Graph, build_graph
from bcmend.codeobj.decode import FunctionCode
from tests.listing import listing
from tests.random_functions import functions, reached

GUARD = """
        LOAD_FAST bad
        POP_JUMP_IF_FALSE -> fine
        LOAD_GLOBAL error
        RAISE_VARARGS 1
    fine:
        LOAD_CONST 1
        RETURN_VALUE
"""


def test_one_block() -> None:
    returning = build_graph(listing("LOAD_CONST 1\nRETURN_VALUE").function)
    assert immediate_dominators(returning) == (None,)
    assert immediate_post_dominators(returning) == (EXIT,)
    raising = build_graph(listing("RAISE_VARARGS 0").function)
    assert immediate_post_dominators(raising) == (None,)
    assert always_raises(raising) == {0}


def test_a_guard_has_its_join_right_after() -> None:
    graph = build_graph(listing(GUARD).function)
    assert immediate_dominators(graph) == (None, 0, 0)
    assert immediate_post_dominators(graph) == (2, None, EXIT)
    assert always_raises(graph) == {1}


def test_diamond() -> None:
    text = """
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> other
            JUMP -> join
        other:
            NOP
        join:
            LOAD_CONST 1
            RETURN_VALUE
    """
    graph = build_graph(listing(text).function)
    assert immediate_dominators(graph) == (None, 0, 0, 0)
    assert immediate_post_dominators(graph) == (3, 3, 3, EXIT)


def test_what_follows_a_try_is_not_dominated_by_its_body() -> None:
    text = """
            .try body after handler 0
            NOP
        body:
            LOAD_GLOBAL g
            POP_TOP
        after:
            LOAD_CONST 1
            RETURN_VALUE
        handler:
            POP_TOP
            JUMP -> after
    """
    graph = build_graph(listing(text).function)
    assert immediate_dominators(graph) == (None, 0, 1, 1)
    # The handler does not stand between the body and what follows unless something raises.
    assert immediate_post_dominators(graph) == (1, 2, EXIT, 2)


def test_two_returns_meet_in_the_exit() -> None:
    text = """
            LOAD_FAST c
            POP_JUMP_IF_TRUE -> other
            LOAD_CONST 1
            RETURN_VALUE
        other:
            LOAD_CONST 2
            RETURN_VALUE
    """
    assert immediate_post_dominators(build_graph(listing(text).function)) == (EXIT, EXIT, EXIT)


def test_endless_loop_neither_returns_nor_raises() -> None:
    graph = build_graph(listing("top:\nNOP\nJUMP -> top").function)
    assert immediate_post_dominators(graph) == (None,)
    assert always_raises(graph) == frozenset()


def exceptional_ways(graph: Graph) -> dict[int, list[int]]:
    ways: dict[int, list[int]] = {}
    for edge in graph.edges:
        ways.setdefault(edge.source, []).append(edge.target)
    return ways


def chain(block: int, immediate: tuple[int | None, ...]) -> set[int]:
    """Return all that an immediate (post-)dominator leads to."""
    found, current = set(), immediate[block]
    while current is not None and current != EXIT:
        found.add(current)
        current = immediate[current]
    return found


@given(functions())
def test_dominators_by_definition(function: FunctionCode) -> None:
    graph = build_graph(function)
    immediate, ways = immediate_dominators(graph), exceptional_ways(graph)
    for block in range(len(graph.blocks)):
        expected = {
            other
            for other in graph.reachable
            if other != block and block not in reached(0, ways, without=other)
        }
        assert chain(block, immediate) == (expected if block in graph.reachable else set())


def ending(graph: Graph, op: str) -> set[int]:
    last = graph.function.instructions
    return {b.index for b in graph.blocks if last[b.end - 1].op == op}


@given(functions())
def test_post_dominators_by_definition(function: FunctionCode) -> None:
    graph = build_graph(function)
    immediate = immediate_post_dominators(graph)
    ways = {block: list(targets) for block, targets in enumerate(graph.successors)}
    returning = ending(graph, "RETURN_VALUE")
    for block in range(len(graph.blocks)):
        returns = bool(reached(block, ways) & returning)
        assert (immediate[block] is not None) == returns
        if returns:
            expected = {
                other
                for other in ways
                if other != block and not reached(block, ways, without=other) & returning
            }
            assert chain(block, immediate) == expected


@given(functions())
def test_always_raises_by_definition(function: FunctionCode) -> None:
    graph = build_graph(function)
    ways = {block: list(targets) for block, targets in enumerate(graph.successors)}
    returning, raising = ending(graph, "RETURN_VALUE"), ending(graph, "RAISE_VARARGS")
    expected = {
        block
        for block in ways
        if reached(block, ways) & raising and not reached(block, ways) & returning
    }
    assert always_raises(graph) == expected
