"""Live and bound locals, against a search through the instructions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from bcmend.analysis.liveness import (
    Event,
    bound_before,
    live_after,
    live_before,
    live_into,
    liveness,
    solve_live,
)
from bcmend.bytecode import behavior
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode
from bcmend.cfg.graph import build_graph
from tests.listing import listing
from tests.random_functions import NAMES, functions, handlers, ordinary_ways, reached


def test_diamond() -> None:
    made = listing(
        """
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> other
            LOAD_FAST a
            STORE_FAST x
            JUMP -> join
        other:
            LOAD_FAST b
            STORE_FAST x
            LOAD_CONST 1
            STORE_FAST only
        join:
            LOAD_FAST x
            RETURN_VALUE
        """,
        ("a", "b", "c"),
    )
    graph = build_graph(made.function)
    found = liveness(graph)
    assert found.live_in == ({"a", "b", "c"}, {"a"}, {"b"}, {"x"})
    assert found.live_out == ({"a", "b"}, {"x"}, {"x"}, frozenset())
    assert found.bound_in[3] == {"a", "b", "c", "x"}
    assert found.maybe_bound_in[3] == {"a", "b", "c", "x", "only"}


def test_a_stretch_needs_nothing_that_only_a_handler_around_it_reads() -> None:
    def function(condition: Any, used: Any) -> Any:
        try:
            if condition:
                shift = used
            else:
                shift = 1
        except ValueError:
            pass
        return shift

    graph = build_graph(decode(function.__code__))
    found = liveness(graph)
    instructions = graph.function.instructions
    stores = [i for i, each in enumerate(instructions) if each.op.startswith("STORE_FAST")]
    blocks = [graph.block_of[index] for index in stores]
    assert all("shift" in found.live_in[block] for block in blocks)  # if the arm raised first
    wanted = frozenset(["shift"])
    needs = [live_into(graph, found, each, frozenset([each]), wanted) for each in blocks]
    assert needs == [{"used"}, frozenset()]
    empty = live_into(graph, found, blocks[0], frozenset(), wanted)
    assert empty == wanted


def test_moments_inside_a_block() -> None:
    text = "LOAD_CONST 1\nSTORE_FAST x\nLOAD_FAST x\nDELETE_FAST x\nLOAD_FAST a\nRETURN_VALUE"
    graph = build_graph(listing(text, ("a",)).function)
    found = liveness(graph)
    assert [live_before(graph, found, i) for i in range(6)] == [
        {"a"},
        {"a"},
        {"a", "x"},
        {"a", "x"},
        {"a"},
        frozenset(),
    ]
    assert [live_after(graph, found, i) for i in (2, 3, 5)] == [{"a", "x"}, {"a"}, frozenset()]
    assert [bound_before(graph, found, i) for i in (1, 2, 4)] == [{"a"}, {"a", "x"}, {"a"}]
    assert [bound_before(graph, found, i, any) for i in (1, 2, 4)] == [{"a"}, {"a", "x"}, {"a"}]


def test_store_in_a_try_kills_nothing_for_the_handler() -> None:
    made = listing(
        """
            .try start end handler 0
        start:
            LOAD_GLOBAL g
            STORE_FAST x
            LOAD_GLOBAL h
            POP_TOP
        end:
            RETURN_CONST 1
        handler:
            POP_TOP
            LOAD_FAST x
            RETURN_VALUE
        """,
        ("x",),
    )
    graph = build_graph(made.function)
    found = liveness(graph)
    assert found.live_in[0] == {"x"}
    assert live_before(graph, found, 3) == {"x"}
    assert found.live_out[0] == frozenset()


def test_binding_in_a_try_is_not_certain_in_the_handler() -> None:
    made = listing(
        """
            .try start end handler 0
        start:
            LOAD_GLOBAL g
            STORE_FAST x
            LOAD_GLOBAL h
            POP_TOP
        end:
            RETURN_CONST 1
        handler:
            POP_TOP
            RETURN_CONST 2
        """
    )
    graph = build_graph(made.function)
    found, handler = liveness(graph), graph.block_of[made.at["handler"]]
    assert found.bound_in[handler] == frozenset()
    assert found.maybe_bound_in[handler] == {"x"}


def test_deletion_in_a_try_may_have_happened_in_the_handler() -> None:
    made = listing(
        """
            .try start end handler 0
        start:
            DELETE_FAST x
            LOAD_GLOBAL h
            POP_TOP
        end:
            RETURN_CONST 1
        handler:
            POP_TOP
            RETURN_CONST 2
        """,
        ("x",),
    )
    graph = build_graph(made.function)
    found, handler = liveness(graph), graph.block_of[made.at["handler"]]
    assert found.bound_in[handler] == frozenset()
    assert found.maybe_bound_in[handler] == {"x"}


def test_loop_carried_local_is_live_around_the_loop() -> None:
    made = listing(
        """
        head:
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> done
            LOAD_FAST total
            STORE_FAST total
            JUMP -> head
        done:
            RETURN_CONST 1
        """,
        ("c", "total"),
    )
    found = liveness(build_graph(made.function))
    assert found.live_in == ({"c", "total"}, {"c", "total"}, frozenset())


def test_cells_are_not_tracked() -> None:
    made = listing(
        "MAKE_CELL a\nLOAD_DEREF a\nSTORE_FAST b\nLOAD_FAST b\nRETURN_VALUE", ("a",), ("a",)
    )
    graph = build_graph(made.function)
    found = liveness(graph)
    assert found.live_in == found.bound_in == (frozenset(),)
    assert bound_before(graph, found, 3) == {"b"}


#: What an inlined comprehension does to a local: saved, used for the items, stored back.
COMPREHENSION = """
        LOAD_FAST_AND_CLEAR x
        LOAD_CONST 1
        STORE_FAST x
        LOAD_FAST x
        POP_TOP
    back:
        STORE_FAST x
        NOP
    after:
        {then}
"""


@pytest.mark.parametrize("bound", [True, False])
def test_saved_local_is_as_bound_as_before(bound: bool) -> None:
    made = listing(COMPREHENSION.format(then="RETURN_CONST 1"), ("x",) if bound else ())
    graph = build_graph(made.function)
    found = liveness(graph)
    expected = {"x"} if bound else frozenset()
    assert bound_before(graph, found, made.at["after"]) == expected
    assert bound_before(graph, found, made.at["after"], any) == expected
    assert bound_before(graph, found, 1) == bound_before(graph, found, 1, any) == frozenset()
    assert bound_before(graph, found, 3) == {"x"}


def test_saved_local_is_live_only_if_it_is_used_afterwards() -> None:
    unused = build_graph(listing(COMPREHENSION.format(then="RETURN_CONST 1"), ("x",)).function)
    assert live_before(unused, liveness(unused), 0) == frozenset()
    text = COMPREHENSION.format(then="LOAD_FAST x\nRETURN_VALUE")
    used = build_graph(listing(text, ("x",)).function)
    assert live_before(used, liveness(used), 0) == {"x"}
    assert live_before(used, liveness(used), 1) == frozenset()


def test_saving_across_blocks() -> None:
    made = listing(
        """
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> comprehension
            LOAD_CONST 1
            STORE_FAST x
        comprehension:
            LOAD_FAST_AND_CLEAR x
            LOAD_FAST c
            POP_JUMP_IF_TRUE -> back
            NOP
        back:
            STORE_FAST x
            NOP
        after:
            LOAD_FAST x
            RETURN_VALUE
        """,
        ("c",),
    )
    graph = build_graph(made.function)
    found = liveness(graph)
    assert "x" not in bound_before(graph, found, made.at["after"])
    assert "x" in bound_before(graph, found, made.at["after"], any)
    assert live_before(graph, found, made.at["comprehension"]) == {"c", "x"}
    assert found.live_in[graph.block_of[made.at["back"]]] == frozenset()


def test_store_of_something_that_may_be_saved_or_not() -> None:
    made = listing(
        """
            LOAD_FAST c
            POP_JUMP_IF_FALSE -> other
            LOAD_FAST_AND_CLEAR x
            JUMP -> back
        other:
            LOAD_CONST 1
        back:
            STORE_FAST x
            NOP
        after:
            RETURN_CONST 1
        """,
        ("c",),
    )
    graph = build_graph(made.function)
    found = liveness(graph)
    # Bound on the one way, not on the other.
    assert bound_before(graph, found, made.at["after"]) == {"c"}
    assert bound_before(graph, found, made.at["after"], any) == {"c", "x"}


def test_compiled_comprehension_that_shadows() -> None:
    def shadowing(items, x):
        made = [x for x in items]  # noqa: C416
        return made, x

    def fresh(items):
        return [y for y in items]  # noqa: C416

    def live_at_entry(function: Any) -> frozenset[str]:
        return liveness(build_graph(decode(function.__code__))).live_in[0]

    assert live_at_entry(shadowing) == {"items", "x"}
    assert live_at_entry(fresh) == {"items"}


@pytest.mark.skipif(not behavior.COMPREHENSIONS_ARE_INLINED, reason="it has a frame of its own")
def test_local_shadowed_by_a_compiled_comprehension_stays_unbound() -> None:
    def shadowing(items, flag):
        if flag:
            x = 1
        made = [x for x in items]  # noqa: C416
        return made, x

    graph = build_graph(decode(shadowing.__code__))
    found = liveness(graph)
    (checked,) = (i for i, e in enumerate(graph.function.instructions) if e.op == "LOAD_FAST_CHECK")
    assert "x" not in bound_before(graph, found, checked)
    assert "x" in bound_before(graph, found, checked, any)


# --- random functions, one variable and one instruction at a time --------------------------------


def touches(function: FunctionCode, index: int, op: str, name: str) -> bool:
    instruction = function.instructions[index]
    return instruction.op == op and instruction.arg == name


def states(function: FunctionCode, name: str) -> dict[int, set[bool]]:
    """Return, by search, whether ``name`` can be bound or unbound before each instruction."""
    seen: set[tuple[int, bool]] = set()
    pending = [(0, name == "a")]
    while pending:
        index, bound = pending.pop()
        if (index, bound) in seen:
            continue
        seen.add((index, bound))
        pending.extend((handler, bound) for handler in handlers(function, index))
        after = bound
        if touches(function, index, "DELETE_FAST", name):
            after = False
        elif any(touches(function, index, op, name) for op in ("LOAD_FAST", "STORE_FAST")):
            after = True
        pending.extend((way, after) for way in ordinary_ways(function, index))
    found: dict[int, set[bool]] = {}
    for index, bound in seen:
        found.setdefault(index, set()).add(bound)
    return found


@given(functions())
def test_boundness_is_what_a_search_finds(function: FunctionCode) -> None:
    graph = build_graph(function)
    found = liveness(graph)
    for name in NAMES:
        for index, bound in states(function, name).items():
            assert (name in bound_before(graph, found, index)) == (bound == {True})
            assert (name in bound_before(graph, found, index, any)) == (True in bound)


def live_by_search(function: FunctionCode, name: str, start: int) -> bool:
    """Say whether some way from ``start`` reads or deletes ``name`` before it is stored."""
    ways: dict[int, list[int]] = {}
    for index in range(len(function.instructions)):
        ordinary = ordinary_ways(function, index)
        stops = touches(function, index, "STORE_FAST", name)
        ways[index] = handlers(function, index) + ([] if stops else ordinary)
    return any(
        touches(function, index, op, name)
        for index in reached(start, ways)
        for op in ("LOAD_FAST", "DELETE_FAST")
    )


@given(functions())
def test_liveness_is_what_a_search_finds(function: FunctionCode) -> None:
    graph = build_graph(function)
    found = liveness(graph)
    for index in range(len(function.instructions)):
        expected = {name for name in NAMES if live_by_search(function, name, index)}
        assert live_before(graph, found, index) == expected
        block = graph.block_of[index]
        if graph.blocks[block].start == index:
            assert found.live_in[block] == expected


# --- the solver, on nodes of other kinds ---------------------------------------------------------


def solved(
    successors: dict[str, str], events: dict[str, list[Event]], handlers: dict[str, str]
) -> dict[str, frozenset[str | int]]:
    return solve_live(
        successors,
        successors.__getitem__,
        handlers.get,
        lambda node: events.get(node, []),
        frozenset(["wanted"]),
    )


READS, WRITES = Event(0, "read", "x"), Event(0, "write", "x")


def test_what_is_read_is_live_up_to_where_it_is_written() -> None:
    found = solved({"p": "q", "q": "r", "r": ""}, {"p": [WRITES], "r": [READS]}, {})
    assert found == {"p": frozenset(), "q": {"x"}, "r": {"x"}}


def test_what_is_read_in_a_loop_is_live_all_around_it() -> None:
    found = solved({"p": "q", "q": "r", "r": "p"}, {"q": [READS]}, {})
    assert found == {each: {"x"} for each in "pqr"}


def test_nodes_outside_want_what_is_wanted_and_their_handlers_nothing() -> None:
    assert solved({"p": "!"}, {}, {}) == {"p": {"wanted"}}
    assert solved({"p": ""}, {}, {"p": "!"}) == {"p": frozenset()}


def test_a_handler_inside_sees_a_variable_from_before_its_store() -> None:
    found = solved({"p": "", "h": ""}, {"p": [WRITES], "h": [READS]}, {"p": "h"})
    assert found["p"] == {"x"}


@given(functions())
def test_liveness_behind_an_instruction_is_what_a_search_finds(function: FunctionCode) -> None:
    graph = build_graph(function)
    found = liveness(graph)
    for index in range(len(function.instructions)):
        ways = ordinary_ways(function, index)
        expected = {name for name in NAMES for way in ways if live_by_search(function, name, way)}
        behind = live_after(graph, found, index)
        assert behind >= expected
        assert behind == expected or handlers(function, index)
