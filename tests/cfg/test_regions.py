"""Arms and joins of branches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.graph import Graph, build_graph
from bcmend.cfg.regions import Branch, branches
from tests.listing import listing
from tests.random_functions import functions, reached


def graph_of(text: str) -> Graph:
    return build_graph(listing(text).function)


def test_if_else() -> None:
    graph = graph_of(
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
        """
    )
    assert branches(graph) == (Branch(1, 2, 1, 3, frozenset({2}), frozenset({1}), False, False),)


def test_if_without_else_has_an_empty_arm() -> None:
    graph = graph_of(
        "LOAD_FAST c\nPOP_JUMP_IF_FALSE -> join\nNOP\njoin:\nLOAD_CONST 1\nRETURN_VALUE"
    )
    assert branches(graph) == (Branch(1, 2, 1, 2, frozenset(), frozenset({1}), False, False),)


def test_guard_raises_in_one_arm() -> None:
    graph = graph_of(
        "LOAD_FAST c\nPOP_JUMP_IF_FALSE -> fine\nRAISE_VARARGS 0\nfine:\nLOAD_CONST 1\nRETURN_VALUE"
    )
    assert branches(graph) == (Branch(1, 2, 1, 2, frozenset(), frozenset({1}), False, True),)


def test_early_return_joins_in_the_exit() -> None:
    graph = graph_of(
        "LOAD_FAST c\nPOP_JUMP_IF_TRUE -> other\nRETURN_CONST 1\nother:\nNOP\nRETURN_CONST 2"
    )
    assert branches(graph) == (Branch(1, 2, 1, EXIT, frozenset({2}), frozenset({1}), False, False),)


def test_both_arms_raise() -> None:
    graph = graph_of(
        "LOAD_FAST c\nPOP_JUMP_IF_TRUE -> other\nRAISE_VARARGS 0\nother:\nRAISE_VARARGS 0"
    )
    (branch,) = branches(graph)
    assert (branch.join, branch.taken_raises, branch.fallthrough_raises) == (EXIT, True, True)


def test_short_circuit_arms_overlap() -> None:
    graph = graph_of(
        """
            LOAD_FAST a
            POP_JUMP_IF_FALSE -> other
            LOAD_FAST b
            POP_JUMP_IF_FALSE -> other
            NOP
            JUMP -> join
        other:
            NOP
        join:
            RETURN_CONST 1
        """
    )
    first, second = branches(graph)
    assert first.taken_blocks == {3}
    assert first.fallthrough_blocks == {1, 2, 3}
    assert second == Branch(3, 3, 2, 4, frozenset({3}), frozenset({2}), False, False)


def test_or_pop_is_a_branch_and_none_is_not() -> None:
    graph = graph_of(
        """
            LOAD_FAST a
            JUMP_IF_TRUE_OR_POP -> end
            LOAD_FAST b
        end:
            POP_JUMP_IF_NONE -> last
            NOP
        last:
            RETURN_CONST 1
        """
    )
    assert [branch.jump for branch in branches(graph)] == [1]


def test_unreachable_branch_is_left_out() -> None:
    text = "RETURN_CONST 1\nLOAD_FAST a\nPOP_JUMP_IF_TRUE -> end\nend:\nRETURN_CONST 2"
    assert branches(graph_of(text)) == ()


def test_branch_that_continues_a_loop_joins_in_its_header() -> None:
    graph = graph_of(
        """
            LOAD_FAST items
            GET_ITER
        head:
            FOR_ITER -> done
            POP_TOP
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> rest
            JUMP -> head
        rest:
            NOP
            JUMP -> head
        done:
            RETURN_CONST 1
        """
    )
    (branch,) = branches(graph)
    assert branch.join == graph.block_of[2]
    assert (branch.taken_blocks, branch.fallthrough_blocks) == ({4}, {3})


def compiled_forms() -> list[tuple[Any, int]]:
    def if_else(a):
        b = 1 if a else 2
        return b

    def chained(a):
        return 1 if 0 < a < 3 else 2

    def guarded(a):
        if not a:
            raise ValueError(a)
        return a

    def straight(a):
        return a

    return [(if_else, 1), (chained, 2), (guarded, 1), (straight, 0)]


@pytest.mark.parametrize(("function", "count"), compiled_forms())
def test_compiled_forms(function: Any, count: int) -> None:
    found = branches(build_graph(decode(function.__code__)))
    assert len(found) == count


@given(functions())
def test_branches_of_random_functions(function: FunctionCode) -> None:
    graph = build_graph(function)
    ways = {block: list(targets) for block, targets in enumerate(graph.successors)}
    for branch in branches(graph):
        for entry, blocks in (
            (branch.taken, branch.taken_blocks),
            (branch.fallthrough, branch.fallthrough_blocks),
        ):
            assert blocks == reached(entry, ways, without=branch.join)
