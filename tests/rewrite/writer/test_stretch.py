"""Code that is being written: items, labels and marks."""

from __future__ import annotations

from bcmend.bytecode.instructions import Instruction, Label, Location
from bcmend.rewrite.writer.stretch import Stretch

NOP = Instruction("NOP")


def test_items_are_appended_in_order() -> None:
    stretch, other = Stretch(), Instruction("POP_TOP")
    stretch.add([NOP])
    stretch.add(iter([other, NOP]))
    assert stretch.items == [NOP, other, NOP]


def test_a_block_has_one_label() -> None:
    stretch = Stretch()
    assert stretch.label(3) is stretch.label(3)
    assert stretch.label(3) is not stretch.label(4)
    assert set(stretch.labels) == {3, 4}


def test_stretches_share_nothing() -> None:
    one, other = Stretch(), Stretch()
    one.add([NOP])
    one.label(1)
    one.mark(0, 0)
    assert other.items == [] and other.labels == {} and other.marks == []


def test_a_mark_covers_what_was_written_from_a_start_on() -> None:
    stretch = Stretch()
    stretch.add([NOP] * 3)
    stretch.mark(0, 7)
    stretch.add([NOP] * 2)
    stretch.mark(3, 8)
    assert stretch.marks == [(0, 3, 7), (3, 5, 8)]


def test_items_that_have_a_mark_keep_it() -> None:
    stretch = Stretch()
    stretch.add([NOP] * 3)
    stretch.mark(0, 7)
    stretch.add([NOP])
    stretch.mark(0, 8)
    assert stretch.marks == [(0, 3, 7), (3, 4, 8)]


def test_items_before_the_start_get_no_mark() -> None:
    stretch = Stretch()
    stretch.add([NOP] * 3)
    stretch.mark(2, 7)
    assert stretch.marks == [(2, 3, 7)]


def test_nothing_new_is_not_marked() -> None:
    stretch = Stretch()
    stretch.mark(0, 7)
    assert stretch.marks == []
    stretch.add([NOP])
    stretch.mark(0, 7)
    stretch.mark(0, 8)
    assert stretch.marks == [(0, 1, 7)]


def test_items_without_a_location_get_one() -> None:
    here, elsewhere = Location(7, 7, 2, 3), Location(3, 3, 0, 1)
    placed, label = Instruction("NOP", location=elsewhere), Label("some")
    stretch = Stretch()
    stretch.add([NOP, NOP, label, placed, NOP])
    stretch.locate(1, here)
    located = Instruction("NOP", location=here)
    assert stretch.items == [NOP, located, label, placed, located]
    stretch.locate(0, None)
    assert stretch.items == [NOP, located, label, placed, located]
