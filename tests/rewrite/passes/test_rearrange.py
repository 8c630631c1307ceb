"""Instructions that are moved, replaced, left out or inserted."""

from __future__ import annotations

import pytest

from bcmend.bytecode.instructions import Instruction, Label, Location, TryRange
from bcmend.rewrite.passes.rearrange import moved, rewritten, with_others, without_unreachable
from tests.listing import listing


def test_a_range_follows_its_instructions() -> None:
    entry = TryRange(1, 3, 7, 1, True)
    found = list(moved([entry], [0, 1, 2, 3], [9]))
    assert found == [TryRange(1, 3, 9, 1, True)]


def test_a_range_divides_where_its_instructions_are_moved_apart() -> None:
    entry = TryRange(1, 3, 7, 0, False)
    found = list(moved([entry], [1, 0, 2, 1, 3, 2], [9]))
    assert [each.bounds for each in found] == [(0, 1), (2, 4), (5, 6)]
    assert {each.handler for each in found} == {9}


def test_a_range_whose_instructions_are_left_out_is_gone() -> None:
    entries = [TryRange(1, 3, 7, 0, False), TryRange(0, 1, 8, 0, False)]
    found = list(moved(entries, [0, 3], [9, 4]))
    assert found == [TryRange(0, 1, 4, 0, False)]


def test_what_replaces_an_instruction_has_its_place_in_the_source() -> None:
    made = listing("LOAD_CONST 1\nPOP_TOP\nRETURN_CONST 2").function
    place = Location(3, 3, 1, 2)
    instructions = (made.instructions[0], Instruction("POP_TOP", offset=4, location=place))
    function = type(made)(made.shape, (*instructions, made.instructions[2]), ())
    changed = with_others(function, {1: Instruction("STORE_FAST", "x")})
    assert changed.instructions[1] == Instruction("STORE_FAST", "x", None, 4, place)
    assert changed.instructions[0] is function.instructions[0]
    assert changed.shape is function.shape


def test_unreachable_instructions_are_left_out() -> None:
    made = listing(
        """
            LOAD_CONST 1
            JUMP -> end
        start:
            NOP
            JUMP -> end
        middle:
            NOP
        end:
            RETURN_VALUE
        handler:
            POP_TOP
            RETURN_CONST 2
        .try start middle handler 0
        """
    )
    found = without_unreachable(made.function)
    assert [each.op for each in found.instructions] == ["LOAD_CONST", "JUMP", "RETURN_VALUE"]
    assert found.instructions[1].target == 2
    assert found.tries == ()


def test_a_range_over_reachable_instructions_stays() -> None:
    made = listing(
        """
            JUMP -> start
            NOP
        start:
            LOAD_CONST 1
        end:
            RETURN_VALUE
        handler:
            POP_TOP
            RETURN_CONST 2
        .try start end handler 0
        """
    )
    found = without_unreachable(made.function)
    assert len(found.instructions) == 5 and found.instructions[0].target == 1
    assert found.tries == (TryRange(1, 2, 3, 0, False),)


def test_labels_and_old_indices_become_new_indices() -> None:
    made = listing(
        """
        start:
            LOAD_FAST a
            POP_JUMP_IF_TRUE -> other
        end:
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
    load, jump, *_ = made.function.instructions
    there = Label("there")
    replaced = {
        0: [Instruction("NOP"), load, Instruction("POP_JUMP_IF_NONE", None, there), load],
        1: [jump, there],
    }
    found = rewritten(made.function, lambda index, each: replaced.get(index, [each]))
    ops = [each.op for each in found.instructions]
    assert ops[:6] == [
        "NOP",
        "LOAD_FAST",
        "POP_JUMP_IF_NONE",
        "LOAD_FAST",
        "POP_JUMP_IF_TRUE",
        "RETURN_CONST",
    ]
    assert found.instructions[2].target == 5  # where the label stands
    assert found.instructions[4].target == 6  # what was instruction 3
    assert found.tries == (TryRange(0, 5, 7, 0, False),)


def test_a_range_up_to_the_end_stays_one() -> None:
    made = listing(
        """
            JUMP -> start
        handler:
            POP_TOP
            RETURN_CONST 2
        start:
            RETURN_CONST 1
        """
    ).function
    function = type(made)(made.shape, made.instructions, (TryRange(3, 4, 1, 0, False),))
    found = rewritten(function, lambda index, each: [each] if index else [each, Instruction("NOP")])
    assert found.tries == (TryRange(4, 5, 2, 0, False),)
    assert found.instructions[0].target == 4


def test_a_jump_to_an_instruction_goes_to_what_stands_before_it_now() -> None:
    function = listing("JUMP -> end\nend:\nRETURN_CONST 1").function
    found = rewritten(function, lambda index, each: [Instruction("NOP"), each])
    assert [each.op for each in found.instructions] == ["NOP", "JUMP", "NOP", "RETURN_CONST"]
    assert found.instructions[1].target == 2


def test_a_label_of_another_function_is_no_target() -> None:
    function = listing("RETURN_CONST 1").function
    stray = Instruction("JUMP", None, Label("elsewhere"))
    with pytest.raises(KeyError, match="elsewhere"):
        rewritten(function, lambda index, each: [stray, each])


def test_an_instruction_can_be_left_out() -> None:
    function = listing("JUMP -> there\nthere:\nNOP\nRETURN_CONST 1").function
    found = rewritten(function, lambda index, each: [] if each.op == "NOP" else [each])
    assert [each.op for each in found.instructions] == ["JUMP", "RETURN_CONST"]
    assert found.instructions[0].target == 1
