"""Copies of instructions in a stretch."""

from __future__ import annotations

from types import CodeType

from bcmend.analysis.facts import facts_of
from bcmend.bytecode.instructions import FunctionCode, Instruction, Label, Location
from bcmend.rewrite.sites.plan import CodeRange
from bcmend.rewrite.writer.instruction_copies import Copier
from bcmend.rewrite.writer.stretch import Stretch
from tests.listing import listing

MADE = listing(
    """
        LOAD_FAST a
        POP_JUMP_IF_FALSE -> other
        LOAD_CONST 1
        JUMP -> join
    other:
        LOAD_CONST 2
    join:
        RETURN_VALUE
    """,
    ("a",),
)
FACTS = facts_of(MADE.function)
BLOCK_OF = FACTS.graph.block_of


def test_a_jump_goes_to_the_label_of_its_block() -> None:
    stretch = Stretch()
    copied = Copier(FACTS, {}).copied(stretch, 1)
    assert copied.op == "POP_JUMP_IF_FALSE"
    assert copied.target is stretch.labels[BLOCK_OF[MADE.at["other"]]]


def test_a_jump_goes_to_the_label_of_its_instruction_where_there_is_one() -> None:
    stretch, place = Stretch(), Label("there")
    stretch.places[MADE.at["join"]] = place
    assert Copier(FACTS, {}).copied(stretch, 3).target is place
    assert stretch.labels == {}


def test_offset_and_location_stay() -> None:
    place = Location(3, 3, 0, 1)
    jump = Instruction("JUMP", None, 1, 8, place)
    shape = MADE.function.shape
    facts = facts_of(FunctionCode(shape, (jump, Instruction("RETURN_CONST", 1)), ()))
    stretch = Stretch()
    copied = Copier(facts, {}).copied(stretch, 0)
    assert (copied.offset, copied.location) == (8, place)


def test_other_instructions_are_the_same_objects() -> None:
    assert Copier(FACTS, {}).copied(Stretch(), 0) is FACTS.instructions[0]


def test_nested_code_is_replaced_by_its_mended_form() -> None:
    code: CodeType = (lambda: 1).__code__
    other: CodeType = (lambda: 2).__code__
    load = Instruction("LOAD_CONST", code)
    function = FunctionCode(MADE.function.shape, (load, Instruction("RETURN_VALUE")), ())
    facts = facts_of(function)
    assert Copier(facts, {code: other}).copied(Stretch(), 0).arg is other
    assert Copier(facts, {other: code}).copied(Stretch(), 0).arg is code


def test_jumps_of_a_part_stay_inside_of_it() -> None:
    stretch = Stretch()
    items = Copier(FACTS, {}).part(stretch, CodeRange(0, MADE.at["join"]))
    labels = [each for each in items if isinstance(each, Label)]
    code = [each for each in items if isinstance(each, Instruction)]
    assert [each.op for each in code] == [each.op for each in FACTS.instructions[: MADE.at["join"]]]
    other, join = labels
    assert code[1].target is other and code[3].target is join
    assert items.index(other) == items.index(code[4]) - 1 and items[-1] is join
    assert not set(labels) & set(stretch.labels.values())


def test_two_copies_of_a_part_have_labels_of_their_own() -> None:
    copier, stretch = Copier(FACTS, {}), Stretch()
    part = CodeRange(0, MADE.at["join"])
    one, other = (
        {each for each in copier.part(stretch, part) if isinstance(each, Label)} for _ in range(2)
    )
    assert len(one) == 2 and one.isdisjoint(other)


def test_a_load_leaves_the_null_of_its_call_out() -> None:
    load = Instruction("LOAD_GLOBAL", (True, "logger"))
    attribute = Instruction("LOAD_ATTR", "info")
    shape = MADE.function.shape
    code = (load, attribute, Instruction("RETURN_VALUE"))
    copier = Copier(facts_of(FunctionCode(shape, code, ())), {})
    found = copier.load(Stretch(), CodeRange(0, 2))
    assert found == [Instruction("LOAD_GLOBAL", (False, "logger")), attribute]


def test_a_load_that_a_call_is_part_of_keeps_its_null() -> None:
    load = Instruction("LOAD_GLOBAL", (True, "find"))
    code = (load, Instruction("CALL", 0), Instruction("RETURN_VALUE"))
    copier = Copier(facts_of(FunctionCode(MADE.function.shape, code, ())), {})
    assert copier.load(Stretch(), CodeRange(0, 2)) == list(code[:2])


def test_places_begin_a_block_or_get_a_label_of_their_own() -> None:
    copier, stretch = Copier(FACTS, {}), Stretch()
    join = MADE.at["join"]
    assert copier.place(stretch, join) is stretch.labels[BLOCK_OF[join]]
    inside = copier.place(stretch, 1)
    assert copier.place(stretch, 1) is inside and stretch.places == {1: inside}


def test_targets_inside_a_statement_get_labels() -> None:
    copier, stretch = Copier(FACTS, {}), Stretch()
    copier.mark_targets(stretch, CodeRange(0, 3))
    assert set(stretch.places) == {MADE.at["other"]}
    before = dict(stretch.places)
    copier.mark_targets(stretch, CodeRange(0, 5))
    assert set(stretch.places) == {MADE.at["other"], MADE.at["join"]}
    assert stretch.places[MADE.at["other"]] is before[MADE.at["other"]]
