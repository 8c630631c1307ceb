"""Raw instructions: forms of jumps, widths, bytes and exception tables."""

from __future__ import annotations

import dis
from types import FunctionType

import pytest

from bcmend.bytecode import behavior
from bcmend.bytecode.decode import table_rows
from bcmend.bytecode.instructions import AssembleError, Instruction, Label, Location, TryRange
from bcmend.bytecode.layout import Unit, exception_table, lay_out, lower, pack, raw_bytes, table_row
from bcmend.bytecode.tables import Tables
from tests.listing import shape_of

THERE = Label("there")
NOP = dis.opmap["NOP"]


def lowered(op: str, *, backward: bool) -> list[tuple[str, int | None]]:
    """Return the raw names and targets of a jump at index 1 to the index before or behind it."""
    instructions = [Instruction("NOP"), Instruction(op, None, THERE), Instruction("NOP")]
    tables = Tables.of(shape_of(), instructions)
    units = lower(instructions, {THERE: 0 if backward else 2}, tables)
    return [(dis.opname[unit.opcode], unit.target) for unit in units if unit.index == 1]


def test_jumps_have_a_direction() -> None:
    assert lowered("JUMP", backward=False) == [("JUMP_FORWARD", 2)]
    assert lowered("JUMP", backward=True) == [("JUMP_BACKWARD", 0)]
    assert lowered("JUMP_NO_INTERRUPT", backward=False) == [("JUMP_FORWARD", 2)]
    assert lowered("JUMP_NO_INTERRUPT", backward=True) == [("JUMP_BACKWARD_NO_INTERRUPT", 0)]
    assert lowered("FOR_ITER", backward=False) == [("FOR_ITER", 2)]


def test_conditional_jumps_that_carry_no_direction_are_inverted_to_go_backward() -> None:
    forward, backward = (lowered("POP_JUMP_IF_TRUE", backward=each) for each in (False, True))
    if behavior.JUMPS_CARRY_DIRECTION:
        assert forward == [("POP_JUMP_FORWARD_IF_TRUE", 2)]
        assert backward == [("POP_JUMP_BACKWARD_IF_TRUE", 0)]
    else:
        mark = [("NOT_TAKEN", None)] * behavior.JUMPS_ARE_MARKED
        assert forward == [("POP_JUMP_IF_TRUE", 2), *mark]
        assert backward == [("POP_JUMP_IF_FALSE", 2), *mark, ("JUMP_BACKWARD", 0)]


def test_a_loop_cannot_jump_backward() -> None:
    with pytest.raises(AssembleError, match="FOR_ITER cannot jump backward"):
        lowered("FOR_ITER", backward=True)


def test_a_label_that_is_not_placed_is_refused() -> None:
    instructions = [Instruction("JUMP", None, THERE)]
    with pytest.raises(AssembleError, match="not placed"):
        lower(instructions, {}, Tables.of(shape_of(), instructions))


def test_an_instruction_without_a_location_takes_the_one_before() -> None:
    here = Location(3, 3, 0, 4)
    instructions = [Instruction("NOP"), Instruction("NOP", location=here), Instruction("NOP")]
    units = lower(instructions, {}, Tables.of(shape_of(), instructions))
    assert [unit.location for unit in units] == [Location(), here, here]


def _far(distance: int) -> list[Unit]:
    jump = Unit(dis.opmap["JUMP_FORWARD"], 0, distance + 1, 0, Location(), 0, 1)
    return [jump, *(Unit(NOP, 0, None, n + 1, Location(), 0, 1) for n in range(distance))]


def test_a_jump_within_reach_of_one_byte_keeps_its_width() -> None:
    units = _far(255)
    assert lay_out(units, 256) == list(range(257))
    assert (units[0].width, units[0].argument) == (1, 255)


def test_a_far_jump_is_widened_and_what_follows_lies_further_back() -> None:
    units = _far(300)
    assert lay_out(units, 301) == [0, *range(2, 303)]
    assert (units[0].width, units[0].argument) == (2, 300)


def test_inline_caches_take_room() -> None:
    units = [
        Unit(NOP, 0, None, 0, Location(), 3, 1),
        Unit(NOP, 0, None, 1, Location(), 0, 2),
        Unit(NOP, 0, None, 2, Location(), 0, 1),
    ]
    assert lay_out(units, 3) == [0, 4, 6, 7]


def test_bytes_of_wide_arguments_and_caches() -> None:
    wide = dis.opmap["EXTENDED_ARG"]
    units = [
        Unit(NOP, 7, None, 0, Location(), 0, 1),
        Unit(NOP, 0x12345, None, 1, Location(), 2, 3),
    ]
    assert raw_bytes(units) == bytes([NOP, 7, wide, 1, wide, 0x23, NOP, 0x45, 0, 0, 0, 0])


def test_a_row_of_the_exception_table_is_in_code_units() -> None:
    starts = [0, 2, 5, 6, 9]
    assert table_row(TryRange(1, 3, 4, 2, True), starts) == (2, 4, 9, 5)
    assert table_row(TryRange(0, 1, 2, 1, False), starts) == (0, 2, 5, 2)


def test_numbers_of_the_exception_table_have_six_bits_a_byte() -> None:
    # 64 is written as 1, 0 and 4095 as 63, 63: all but the last byte have bit 64.
    table = exception_table([(1, 2, 5, 1), (64, 3, 4095, 0)])
    assert table == bytes([128 | 1, 2, 5, 1, 128 | 64 | 1, 0, 3, 64 | 63, 63, 0])
    assert list(table_rows(table)) == [(1, 2, 5, 1), (64, 3, 4095, 0)]


def test_packed_code_runs() -> None:
    shape = shape_of(("x",))
    instructions = [
        Instruction("RESUME", 0),
        Instruction("LOAD_FAST", "x"),
        Instruction("LOAD_CONST", 2.5),
        Instruction("BUILD_TUPLE", 2),
        Instruction("RETURN_VALUE"),
    ]
    tables = Tables.of(shape, instructions)
    units = lower(instructions, {}, tables)
    starts = lay_out(units, len(instructions))
    code = pack(shape, tables, units, starts, [], 2)
    assert code.co_varnames == ("x",) and code.co_consts == (None, 2.5) and code.co_stacksize == 2
    assert FunctionType(code, {})("a") == ("a", 2.5)
