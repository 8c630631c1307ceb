"""The rows of facts against what the interpreter says of its own opcodes."""

from __future__ import annotations

import dis
import itertools

import pytest

from bcmend.bytecode import behavior
from bcmend.bytecode.decode import _CANONICAL_NAMES as CANONICAL_NAMES
from bcmend.bytecode.decode import _FUSED as FUSED
from bcmend.bytecode.decode import ENTERING
from bcmend.bytecode.instructions import UnknownOpcode
from bcmend.bytecode.opcodes import ROWS, row

#: Opcodes that no compiler puts into a code object, or that decoding removes.
WITHOUT_ROW = {
    "CACHE": "room for the interpreter's notes",
    "EXTENDED_ARG": "part of the next instruction's argument",
    "PRECALL": "first half of a call in 3.11",
    "INTERPRETER_EXIT": "only in the interpreter's own entry frame",
    "EXIT_INIT_CHECK": "only in the interpreter's own frame around __init__",
    "ENTER_EXECUTOR": "written by the optimizer into running code",
    "RESERVED": "has no meaning",
    "LOAD_SPECIAL": "read with those around it, as what enters a block",
}
#: dis.stack_effect of these is not what the instruction does.
OTHER_EFFECT = {
    "RETURN_GENERATOR": (
        behavior.NULL_BEFORE_CALLABLE,
        "what the first resumption pushes is counted from 3.13 on",
    ),
    "RETURN_VALUE": (behavior.JUMPS_ARE_MARKED, "3.14 counts what the caller gets"),
    "CALL": (behavior.CALL_HAS_PRECALL, "3.11 counts the arguments to PRECALL"),
}
TAKES_FLAGS = {"MAKE_FUNCTION", "CALL_FUNCTION_EX", "FORMAT_VALUE"}
#: Argument of the canonical form for a raw number.
SPELLED = {
    "flagged_name": lambda raw: (bool(raw & 1), "name"),
    "super": lambda raw: (bool(raw & 1), bool(raw & 2), "name"),
}


def canonical(raw_name: str) -> str:
    name = CANONICAL_NAMES.get(raw_name, raw_name)
    return name.replace("_FORWARD_IF_", "_IF_").replace("_BACKWARD_IF_", "_IF_")


def real_opcodes() -> list[str]:
    return [
        name
        for name, opcode in dis.opmap.items()
        if opcode < 256 and not name.startswith("INSTRUMENTED_") and name not in WITHOUT_ROW
    ]


@pytest.mark.parametrize("raw_name", [name for name in real_opcodes() if name not in FUSED])
def test_effect_is_the_interpreters(raw_name: str) -> None:
    facts = row(canonical(raw_name))
    differs, why = OTHER_EFFECT.get(raw_name, (False, ""))
    if differs:
        pytest.skip(why)
    # Flags are four bits; other numbers are tried beyond one byte too.
    raws = range(16) if raw_name in TAKES_FLAGS else (0, 1, 2, 3, 4, 7, 256, 515)
    raws = (2, 3) if raw_name == "BUILD_SLICE" else raws
    for raw, jump in itertools.product(raws, (False, True)):
        given = None if facts.argument == "none" else raw
        expected = dis.stack_effect(dis.opmap[raw_name], given, jump=jump)
        arg = SPELLED.get(facts.argument, lambda raw: raw)(raw)
        pops, pushes = facts.jump_effect if jump and facts.jump else facts.effect(arg)
        assert pushes - pops == expected, (raw, jump)


def test_precall_and_call_together_have_the_effect_of_call() -> None:
    if not behavior.CALL_HAS_PRECALL:
        pytest.skip("a call is one instruction")
    for count in range(5):
        together = sum(dis.stack_effect(dis.opmap[name], count) for name in ("PRECALL", "CALL"))
        pops, pushes = row("CALL").effect(count)
        assert pushes - pops == together


def test_every_opcode_has_a_row_or_a_reason() -> None:
    missing = [name for name in real_opcodes() if name not in FUSED and canonical(name) not in ROWS]
    assert missing == []


def test_fused_opcodes_are_made_of_opcodes_with_rows() -> None:
    for name, parts in FUSED.items():
        if name in dis.opmap:
            effects = [row(part).effect("name") for part in parts]
            total = sum(pushes - pops for pops, pushes in effects)
            assert total == dis.stack_effect(dis.opmap[name], 0)


def test_what_enters_a_block_has_the_effect_of_all_that_it_is_made_of() -> None:
    if "LOAD_SPECIAL" not in dis.opmap:
        pytest.skip("one opcode enters a block")
    for name, parts in ENTERING.items():
        depth, depths = 1, []
        for part, argument in parts:
            depth += dis.stack_effect(dis.opmap[part], argument)
            depths.append(depth)
        pops, pushes = row(name).effect(None)
        assert (pops, pushes) == (1, depth)
        assert max(depths) == pushes + row(name).room


def test_jumps_are_the_interpreters_jumps() -> None:
    jumping = {*dis.hasjrel, *dis.hasjabs}
    for name in real_opcodes():
        if name not in FUSED and name != "END_ASYNC_FOR":  # 3.14 says there where the loop begins
            assert (dis.opmap[name] in jumping) == (row(canonical(name)).jump is not None), name


def test_arguments_are_the_interpreters() -> None:
    tables = {
        "const": dis.hasconst,
        "local": dis.haslocal,
        "cell": dis.hasfree,
        "compare": dis.hascompare,
    }
    named = {"name", "flagged_name", "super"}
    for name in real_opcodes():
        if name in FUSED or canonical(name) == "LOAD_CLOSURE":
            continue
        if name == "LOAD_SMALL_INT":
            continue  # is of no table
        if name == "LOAD_DEREF" and dis.opmap[name] not in dis.hasfree:
            continue  # 3.14 counts it among those of locals, whose slots cells share
        argument = row(canonical(name)).argument
        for kind, opcodes in tables.items():
            assert (dis.opmap[name] in opcodes) == (argument == kind), name
        assert (dis.opmap[name] in dis.hasname) == (argument in named), name


def test_unknown_opcode_is_refused_by_name() -> None:
    with pytest.raises(UnknownOpcode, match="LOAD_MOON"):
        row("LOAD_MOON")
    assert issubclass(UnknownOpcode, ValueError)


@pytest.mark.parametrize(
    ("name", "tests_truth", "pops_condition", "falls_through"),
    [
        ("POP_JUMP_IF_TRUE", True, True, True),
        ("POP_JUMP_IF_NONE", False, True, True),
        ("JUMP_IF_FALSE_OR_POP", True, False, True),
        ("JUMP", False, False, False),
        ("FOR_ITER", False, False, True),
        ("RETURN_VALUE", False, False, False),
        ("RAISE_VARARGS", False, False, False),
        ("LOAD_CONST", False, False, True),
    ],
)
def test_derived_facts(
    name: str, tests_truth: bool, pops_condition: bool, falls_through: bool
) -> None:
    facts = row(name)
    assert facts.tests_truth is tests_truth
    assert facts.pops_condition is pops_condition
    assert facts.falls_through is falls_through


def test_which_variables_are_touched() -> None:
    touched = {
        name: (row(name).reads, row(name).writes, row(name).deletes)
        for name in ("LOAD_FAST", "STORE_DEREF", "DELETE_GLOBAL", "LOAD_FAST_AND_CLEAR", "NOP")
    }
    assert touched == {
        "LOAD_FAST": ("local", None, None),
        "STORE_DEREF": (None, "cell", None),
        "DELETE_GLOBAL": (None, None, "global"),
        "LOAD_FAST_AND_CLEAR": ("local", None, "local"),
        "NOP": (None, None, None),
    }
