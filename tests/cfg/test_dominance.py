"""Post-dominators against their definition: what remains reachable without a block."""

from __future__ import annotations

from hypothesis import given

from bcmend.bytecode.instructions import FunctionCode
from bcmend.cfg.dominance import (
    EXIT,
    always_raises,
    immediate_post_dominators,
)
from bcmend.cfg.graph import Graph, build_graph
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
    assert immediate_post_dominators(returning) == (EXIT,)
    raising = build_graph(listing("RAISE_VARARGS 0").function)
    assert immediate_post_dominators(raising) == (None,)
    assert always_raises(raising) == {0}


def test_a_guard_has_its_join_right_after() -> None:
    graph = build_graph(listing(GUARD).function)
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
    assert immediate_post_dominators(graph) == (3, 3, 3, EXIT)


def test_a_handler_does_not_post_dominate_the_body_of_its_try() -> None:
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


def chain(block: int, immediate: tuple[int | None, ...]) -> set[int]:
    """Return all that an immediate post-dominator leads to."""
    found, current = set(), immediate[block]
    while current is not None and current != EXIT:
        found.add(current)
        current = immediate[current]
    return found


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


def test_a_generator_may_end_wherever_it_yields_if_it_never_returns() -> None:
    text = """
        top:
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> top
            LOAD_CONST 1
            YIELD_VALUE 0
            POP_TOP
            JUMP -> top
    """
    graph = build_graph(listing(text, ("c",)).function)
    assert immediate_post_dominators(graph)[:2] == (1, EXIT)


def test_a_yield_is_no_end_where_a_return_can_be_reached() -> None:
    text = "LOAD_CONST 1\nYIELD_VALUE 0\nPOP_TOP\nRETURN_CONST 1"
    assert immediate_post_dominators(build_graph(listing(text).function)) == (1, EXIT)
