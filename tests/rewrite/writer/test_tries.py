"""The try ranges of code that is being written."""

from __future__ import annotations

from bcmend.analysis.facts import facts_of
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Instruction, Label, TryRange
from bcmend.rewrite.writer.stretch import Stretch
from bcmend.rewrite.writer.tries import with_tries
from tests.listing import listing

MADE = listing(
    """
        NOP
    start:
        NOP
        NOP
    end:
        RETURN_CONST 1
    handler:
        POP_TOP
        RETURN_CONST 2
    .try start end handler 0 lasti
    """
)
FACTS = facts_of(MADE.function)
HANDLER = FACTS.graph.block_of[MADE.at["handler"]]
NOP, POP = Instruction("NOP"), Instruction("POP_TOP")


def _stretch(*marks: tuple[int, int, int], items: list[Item], **changes: int) -> Stretch:
    stretch = Stretch(**changes)  # type: ignore[arg-type]
    stretch.add(items)
    stretch.marks.extend(marks)
    stretch.label(HANDLER)
    return stretch


def _covered(items: list[Item], entry: TryRange) -> list[Item]:
    """Return the instructions between the labels of a range."""
    assert isinstance(entry.start, Label) and isinstance(entry.end, Label)
    between = items[items.index(entry.start) : items.index(entry.end)]
    return [each for each in between if isinstance(each, Instruction)]


def test_a_range_covers_what_was_written_for_its_instructions() -> None:
    stretch = _stretch((0, 1, 0), (1, 3, 1), (3, 4, 3), items=[NOP, POP, POP, NOP])
    items, tries = with_tries(FACTS, stretch)
    (entry,) = tries
    assert _covered(items, entry) == [POP, POP]
    assert entry.handler is stretch.labels[HANDLER]
    assert (entry.depth, entry.push_lasti) == (0, True)
    assert [each for each in items if isinstance(each, Instruction)] == stretch.items


def test_neighbouring_runs_are_one_range() -> None:
    stretch = _stretch((0, 1, 1), (1, 2, 2), items=[POP, POP])
    items, (entry,) = with_tries(FACTS, stretch)
    assert _covered(items, entry) == [POP, POP]


def test_runs_apart_are_ranges_of_their_own() -> None:
    stretch = _stretch((0, 1, 1), (1, 2, 0), (2, 3, 2), items=[POP, NOP, POP])
    items, tries = with_tries(FACTS, stretch)
    assert [_covered(items, each) for each in tries] == [[POP], [POP]]


def test_labels_between_runs_do_not_part_them() -> None:
    """A range may end between a test and its jump; that block has a label."""
    jump = Instruction("JUMP", None, Label("there"))
    stretch = _stretch((0, 1, 1), (2, 3, 1), items=[POP, Label("block"), jump])
    items, (entry,) = with_tries(FACTS, stretch)
    assert _covered(items, entry) == [POP, jump]


def test_an_empty_run_is_no_range() -> None:
    assert with_tries(FACTS, _stretch((0, 0, 1), items=[NOP])) == ([NOP], [])


def test_a_range_around_the_stretch_is_left_out() -> None:
    stretch = _stretch((0, 1, 1), items=[POP])
    stretch.outer = frozenset([0])
    assert with_tries(FACTS, stretch) == ([POP], [])


def test_a_range_whose_handler_is_not_written_is_left_out() -> None:
    stretch = _stretch((0, 1, 1), items=[POP])
    stretch.labels.clear()
    assert with_tries(FACTS, stretch) == ([POP], [])


def test_operands_under_the_stretch_do_not_count() -> None:
    text = """
        LOAD_CONST 1
        LOAD_CONST 2
    start:
        POP_TOP
    end:
        RETURN_VALUE
    handler:
        POP_TOP
        RETURN_VALUE
    .try start end handler 1
    """
    made = listing(text)
    facts = facts_of(made.function)
    stretch = Stretch(base=1)
    stretch.add([POP])
    stretch.marks.append((0, 1, made.at["start"]))
    stretch.label(facts.graph.block_of[made.at["handler"]])
    _, (entry,) = with_tries(facts, stretch)
    assert entry.depth == 0


def test_no_range_begins_with_a_jump() -> None:
    jump = Instruction("JUMP", None, Label("there"))
    block = Label("block")
    stretch = _stretch((0, 2, 1), items=[block, jump])
    items, (entry,) = with_tries(FACTS, stretch)
    assert _covered(items, entry) == [NOP, jump]
    assert items.index(block) > items.index(NOP)


def test_a_jump_further_inside_a_range_gets_nothing_before_it() -> None:
    jump = Instruction("JUMP", None, Label("there"))
    stretch = _stretch((0, 2, 1), items=[POP, jump])
    items, (entry,) = with_tries(FACTS, stretch)
    assert _covered(items, entry) == [POP, jump]
