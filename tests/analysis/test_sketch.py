"""The sketch misses no condition that the full analysis takes for a tensor."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from bcmend.analysis.conditions import may_be_tensor
from bcmend.analysis.facts import facts_of
from bcmend.analysis.sketch import (
    Sketch,
    Unclear,
    may_branch_on_tensor,
    may_loop_over_indices,
    may_loop_over_number,
)
from bcmend.bytecode.decode import decode

MODULES = ("argparse", "contextlib", "dataclasses", "inspect", "logging", "tarfile", "typing")


def functions_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from functions_in(constant)


def functions_of(module: str) -> list[CodeType]:
    path = importlib.import_module(module).__file__
    assert path is not None
    return list(functions_in(compile(Path(path).read_text("utf-8"), path, "exec")))


@pytest.mark.parametrize("module", MODULES)
def test_whatever_the_sketch_answers_the_full_analysis_answers_too(module: str) -> None:
    clear = 0
    for code in functions_of(module):
        try:
            facts = facts_of(decode(code))
        except ValueError:
            continue
        sketch = Sketch(code)
        assert [each.op for each in sketch.instructions] == [
            "LOAD_FAST" if each.op == "LOAD_CLOSURE" and sketched.op == "LOAD_FAST" else each.op
            for each, sketched in zip(facts.instructions, sketch.instructions, strict=True)
        ]
        for jump in sketch.truth_jumps():
            if facts.stacks[jump] is None:
                continue
            try:
                answer = may_be_tensor(sketch, jump)
            except Unclear:
                continue
            clear += 1
            assert answer == may_be_tensor(facts, jump), (code.co_qualname, jump)
    assert clear > 20


def judges_a_sum(x: Any) -> int:
    if x.sum() > 0:
        return 1
    return 2


def judges_one_of_two(x: Any, flag: bool) -> int:
    if x.any() if flag else x.all():
        return 1
    return 2


def judges_what_is_stored(x: Any) -> int:
    found = x.any()
    if found:
        return 1
    return 2


def claims_a_call(x: Any) -> None:
    assert x.is_valid_here(), "not"


@pytest.mark.parametrize(
    "function", [judges_a_sum, judges_one_of_two, judges_what_is_stored, claims_a_call]
)
def test_a_function_that_may_test_a_tensor_is_looked_at(function: Callable[..., Any]) -> None:
    assert may_branch_on_tensor(function.__code__)


def judges_types(x: Any, flag: bool = False) -> int:
    if x is None or not isinstance(x, (int, str)) or len(x.shape) != 3:
        return 1
    if (flag and x.training) or x.kind == "linear":
        return 2
    return 3


def judges_nothing(x: Any) -> Any:
    return [each.sum() > 0 for each in x]


@pytest.mark.parametrize("function", [judges_types, judges_nothing])
def test_a_function_that_tests_no_tensor_is_not(function: Callable[..., Any]) -> None:
    assert not may_branch_on_tensor(function.__code__)


def _up_to_a_number(x: Any) -> None:
    for _ in range(int(x)):
        pass


def _up_to_an_argument(n: int) -> None:
    for _ in range(n):
        pass


def _takes_a_number(x: Any) -> int:
    return int(x)


def test_a_loop_up_to_a_number_has_names_of_both() -> None:
    assert may_loop_over_number(_up_to_a_number.__code__)
    assert not may_loop_over_number(_up_to_an_argument.__code__)
    assert not may_loop_over_number(_takes_a_number.__code__)


def _over_indices(mask: Any) -> list[Any]:
    return [index + 1 for index in mask.nonzero()]


def _finds(mask: Any) -> Any:
    return mask.nonzero()


def test_a_loop_over_indices_may_be_in_other_code_than_the_call_that_finds_them() -> None:
    loop, finds = _up_to_an_argument.__code__, _finds.__code__
    assert may_loop_over_indices([_over_indices.__code__])
    assert may_loop_over_indices([loop, finds])
    assert not may_loop_over_indices([loop])
    assert not may_loop_over_indices([finds])
    assert not may_loop_over_indices([])


def _stores(x: Any, y: Any) -> Any:
    z = x
    z = y
    return lambda: z


def test_stores_and_arguments_of_a_sketch() -> None:
    sketch = Sketch(_stores.__code__)
    facts = facts_of(decode(_stores.__code__))
    assert sketch.stores == facts.stores and list(sketch.stores) == ["z"]
    assert tuple(sketch.argument_names) == ("x", "y")


def _chosen(x: Any, y: Any) -> Any:
    z = [x, y if x else 0]
    return max(z, [x], y, key=len)  # too long to be copied into both arms


def test_an_operand_is_found_on_straight_code_alone() -> None:
    sketch = Sketch(_chosen.__code__)
    ops = [each.op for each in sketch.instructions]
    (jump,) = sketch.truth_jumps()
    (maker,) = sketch.operand(jump, -1)
    assert ops[maker] in ("LOAD_FAST", "TO_BOOL")
    with pytest.raises(Unclear):
        sketch.operand(ops.index("BUILD_LIST"), -1)


def test_nothing_made_the_operands_before_the_first_instruction() -> None:
    with pytest.raises(Unclear):
        Sketch(_finds.__code__).operand(0, -1)
