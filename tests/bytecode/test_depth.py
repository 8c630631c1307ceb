"""The greatest operand depth, and control flow that has none."""

from __future__ import annotations

import pytest

from bcmend.bytecode.depth import check_depths
from bcmend.bytecode.instructions import AssembleError, Instruction, Label, TryRange

END = Label("end")
LOAD = Instruction("LOAD_CONST", 1)
POP = Instruction("POP_TOP")
RETURN = Instruction("RETURN_VALUE")
FINISH = Instruction("RETURN_CONST", None)


def pair(count: int) -> Instruction:
    return Instruction("BUILD_TUPLE", count)


def test_the_greatest_depth_of_straight_code() -> None:
    assert check_depths([LOAD, LOAD, LOAD, pair(3), LOAD, pair(2), RETURN], {}, []) == 3


def test_code_without_operands_has_depth_one() -> None:
    assert check_depths([FINISH], {}, []) == 1


def test_both_arms_of_a_branch_count() -> None:
    jump = Instruction("POP_JUMP_IF_FALSE", None, END)
    deep = [LOAD, jump, LOAD, LOAD, pair(2), RETURN, FINISH]
    assert check_depths(deep, {END: 6}, []) == 2
    other = [LOAD, jump, FINISH, LOAD, LOAD, LOAD, pair(3), RETURN]
    assert check_depths(other, {END: 3}, []) == 3


def test_a_loop_comes_back_with_the_depth_that_it_began_with() -> None:
    code = [LOAD, LOAD, POP, Instruction("JUMP", None, END)]
    assert check_depths(code, {END: 1}, []) == 2
    growing = [LOAD, LOAD, Instruction("JUMP", None, END)]
    with pytest.raises(AssembleError, match="has 1 operands or 2"):
        check_depths(growing, {END: 1}, [])


@pytest.mark.parametrize(("lasti", "deepest"), [(False, 2), (True, 3)])
def test_a_handler_starts_with_its_depth_and_the_exception(lasti: bool, deepest: int) -> None:
    handler = [POP] * deepest
    code = [LOAD, Instruction("NOP"), RETURN, *handler, FINISH]
    assert check_depths(code, {}, [TryRange(1, 2, 3, 1, lasti)]) == deepest


def test_a_handler_cannot_have_more_operands_than_its_range() -> None:
    code = [Instruction("NOP"), FINISH, POP, POP, FINISH]
    with pytest.raises(AssembleError, match="needs 1 operands, has 0"):
        check_depths(code, {}, [TryRange(0, 1, 2, 1, False)])


def test_unreachable_code_is_not_looked_at() -> None:
    assert check_depths([FINISH, POP, POP, FINISH], {}, []) == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ([], "no instructions"),
        ([POP, FINISH], "needs 1 operands, has 0"),
        ([LOAD, pair(2), RETURN], "needs 2 operands, has 1"),
        ([LOAD, Instruction("SWAP", 2), RETURN], "needs 2 operands, has 1"),
        ([LOAD, Instruction("COPY", 2), RETURN], "needs 2 operands, has 1"),
        ([LOAD], "LOAD_CONST falls off the end"),
    ],
)
def test_unsound_code_is_refused(code: list[Instruction], message: str) -> None:
    with pytest.raises(AssembleError, match=message):
        check_depths(code, {}, [])


def test_two_paths_with_different_depths_are_refused() -> None:
    code = [LOAD, Instruction("POP_JUMP_IF_FALSE", None, END), LOAD, FINISH]
    with pytest.raises(AssembleError, match=r"RETURN_CONST at 3 has . operands or ."):
        check_depths(code, {END: 3}, [])
