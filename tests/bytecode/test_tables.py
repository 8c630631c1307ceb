"""Constants, names and slots of code that is being assembled."""

from __future__ import annotations

from typing import Any

import pytest
from bytecode import BinaryOp, Compare

from bcmend.bytecode.decode import ENUMERATIONS, decode_shape
from bcmend.bytecode.instructions import AssembleError, Instruction
from bcmend.bytecode.tables import Tables
from tests.listing import shape_of


def empty(**changes: Any) -> Tables:
    return Tables.of(shape_of(**changes), [])


def test_the_docstring_is_the_first_constant() -> None:
    assert empty(docstring="text").constant_values == ["text"]
    assert empty().constant_values == [None]


def test_equal_constants_are_stored_once_if_no_program_can_distinguish_them() -> None:
    tables = empty()
    first = tables.constant((1, "a", frozenset([2])))
    assert tables.constant((1, "a", frozenset([2]))) == first == 1
    assert tables.constant((1.0, "a", frozenset([2]))) == 2
    assert tables.constant((True, "a", frozenset([2]))) == 3
    assert len(tables.constant_values) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (1, True), (1, 1.0), (0j, -0j), (b"a", "a"), ((0.0,), (-0.0,)), ([], [])],
)
def test_constants_that_a_program_can_distinguish_stay_apart(one: object, other: object) -> None:
    tables = empty()
    assert tables.constant(one) != tables.constant(other)


def test_names_are_numbered_by_their_first_use() -> None:
    tables = empty()
    assert [tables.name(each) for each in ("b", "a", "b")] == [0, 1, 0]
    with pytest.raises(TypeError):
        tables.name(1)  # type: ignore[arg-type]


def test_locals_that_only_instructions_name_come_after_those_of_the_shape() -> None:
    instructions = [Instruction("STORE_FAST", "new"), Instruction("LOAD_FAST", "x")]
    tables = Tables.of(shape_of(("x",)), instructions)
    assert tables.locals == {"x": 0, "new": 1}


def test_cells_and_free_variables_have_slots_behind_the_locals() -> None:
    shape = shape_of(("x", "y"), cellvars=("y", "cell"), freevars=("free",))
    tables = Tables.of(shape, [Instruction("STORE_FAST", "local")])
    # A captured argument is a cell in its own slot.
    assert tables.cells == {"y": 1, "cell": 3, "free": 4}
    assert tables.locals == {"x": 0, "y": 1, "local": 2, "cell": 3, "free": 4}


def raw(op: str, arg: object) -> int:
    tables = Tables.of(shape_of(("x", "y"), freevars=("z",)), [])
    return tables.raw(Instruction(op, arg))


def test_raw_arguments() -> None:
    assert raw("POP_TOP", None) == 0
    assert raw("BUILD_TUPLE", 3) == 3
    assert raw("LOAD_FAST", "y") == 1
    assert raw("LOAD_DEREF", "z") == 2
    assert raw("LOAD_CONST", None) == 0 and raw("LOAD_CONST", 5) == 1
    assert raw("STORE_NAME", "first") == 0
    assert raw("LOAD_GLOBAL", (True, "first")) == 1 and raw("LOAD_GLOBAL", (False, "first")) == 0
    assert raw("LOAD_SUPER_ATTR", (True, True, "first")) == 3
    assert raw("BINARY_OP", BinaryOp.SUBTRACT) == BinaryOp.SUBTRACT.value
    number = raw("COMPARE_OP", Compare.LT)
    assert ENUMERATIONS["compare"][number] is Compare.LT


@pytest.mark.parametrize(
    ("op", "arg"),
    [
        ("LOAD_FAST", "absent"),
        ("LOAD_DEREF", "x"),
        ("BUILD_TUPLE", "three"),
        ("LOAD_GLOBAL", "name"),
        ("STORE_NAME", None),
        ("BINARY_OP", "+"),
    ],
)
def test_an_argument_of_another_kind_is_refused(op: str, arg: object) -> None:
    with pytest.raises(AssembleError, match=f"{op} cannot have the argument"):
        raw(op, arg)


def test_a_local_without_a_name_is_refused() -> None:
    with pytest.raises(AssembleError, match="STORE_FAST cannot have the argument 1"):
        Tables.of(shape_of(), [Instruction("STORE_FAST", 1)])


def test_the_tables_of_a_code_object_keep_their_places() -> None:
    def function(x):
        """Text."""
        return [x.real, x.imag, 1000]

    code = function.__code__
    tables = Tables.of_code(decode_shape(code), code)
    assert tables.constant_values == list(code.co_consts)
    assert tables.names == {"real": 0, "imag": 1}
    assert tables.name("other") == 2
    place = tables.constant("another")
    assert place == len(code.co_consts) and tables.constant_values[place] == "another"
    assert [tables.constant(each) for each in code.co_consts] == list(range(len(code.co_consts)))
