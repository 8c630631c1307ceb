"""Instructions that pass values into a region function and out of it: each is assembled and run."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item, assemble
from bcmend.bytecode.instructions import Instruction
from bcmend.names import NAMESPACE, OPERAND, RESULT
from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering
from bcmend.rewrite.writer.region_values import (
    copy_operands,
    insert_nulls,
    names_or_nulls,
    operand_names,
    pack_results,
    pop_all,
    push_all,
    tuple_of,
    unpack_results,
)
from tests.listing import shape_of


def _run(items: Sequence[Item], **arguments: object) -> Any:
    """Run instructions as the body of a function of the names of ``arguments``."""
    shape = shape_of(tuple(arguments))
    code = assemble(shape, [*emit.prologue(shape), *items], [])
    names = {NAMESPACE: SimpleNamespace(nothing=lambda: None)}
    return FunctionType(code, names)(*arguments.values())


def _push(*values: object) -> list[Item]:
    return [each for value in values for each in emit.load_const(value)]


def _return_tuple(count: int) -> list[Item]:
    return [*emit.build_tuple(count), *emit.return_value()]


def _branch(**changes: Any) -> BranchLowering:
    values: dict[str, Any] = {
        "jump": 0,
        "then_entry": 0,
        "else_entry": 0,
        "join": 1,
        "blocks": frozenset(),
        "base": 0,
        "operands": 0,
        "extra": 0,
        "retained_if": None,
        "inputs": (),
        "outputs": (),
        "cells": (),
        "first": (),
        "outer": frozenset(),
    }
    return BranchLowering(**{**values, **changes})


ZERO, ONE, TWO = (OPERAND.format(number) for number in range(3))


def test_operands_are_named_from_the_top_down() -> None:
    guard = GuardLowering(0, 0, frozenset(), 0, True, 1, 2, (), ())
    assert operand_names(guard) == [ZERO, ONE]
    assert operand_names(_branch(operands=3)) == [ZERO, ONE, TWO]
    assert operand_names(_branch()) == []


def test_nulls_have_no_name() -> None:
    assert names_or_nulls(_branch(operands=3, nulls=frozenset([1]))) == [ZERO, None, TWO]


def test_copied_operands_stay_on_the_stack() -> None:
    items = [*_push("low", "top"), *copy_operands(["a", "b"])]
    items += [*emit.load_local("a"), *emit.load_local("b"), *_return_tuple(4)]
    assert _run(items) == ("low", "top", "top", "low")


def test_a_tuple_of_locals() -> None:
    items = [*tuple_of(["y", "x"]), *emit.return_value()]
    assert _run(items, x=1, y=2) == (2, 1)
    assert _run([*tuple_of([]), *emit.return_value()]) == ()


def test_a_tuple_of_an_unbound_local_raises() -> None:
    items: list[Item] = [Instruction("DELETE_FAST", "x"), *tuple_of(["x"])]
    with pytest.raises(UnboundLocalError, match="x"):
        _run([*items, *emit.return_value()], x=1)


def test_pushed_variables_lie_in_their_order() -> None:
    assert _run([*push_all(["x", "y"]), *_return_tuple(2)], x=1, y=2) == (1, 2)


def test_popped_operands_go_to_their_variables() -> None:
    items = [*_push(1, 2, 3), *pop_all(["a", "b", "c"])]
    items += [*push_all(["c", "b", "a"]), *_return_tuple(3)]
    assert _run(items) == (3, 2, 1)


def test_nulls_are_pushed_and_dropped() -> None:
    items = [*push_all(["x", None, "y"]), *pop_all(["a", None, "b"])]
    items += [*push_all(["a", "b"]), *_return_tuple(2)]
    assert _run(items, x=1, y=2) == (1, 2)


def test_nulls_are_inserted_between_operands() -> None:
    lowering = _branch(operands=3, nulls=frozenset([1]))
    items = [*_push("low", "top"), *insert_nulls(lowering)]
    items += [*pop_all(["a", None, "b"]), *push_all(["a", "b"]), *_return_tuple(2)]
    assert _run(items) == ("low", "top")


def test_results_are_outputs_then_operands_from_the_top_down() -> None:
    items = [*_push("low", "top"), *pack_results(["y", "x"], 2)]
    assert _run(items, x=1, y=2) == (2, 1, "top", "low")
    assert _run(pack_results([], 0)) == ()


@pytest.mark.parametrize(
    ("given", "extra"), [(0, 0), (0, 2), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2), (3, 2), (1, 3)]
)
def test_results_replace_what_the_region_was_given(given: int, extra: int) -> None:
    """What an arm packs is what lies on the stack behind the unpacking, in the same order."""
    left = [f"left {number}" for number in range(extra)]
    packed = ("out", *reversed(left))
    lowering = _branch(operands=given, extra=extra, outputs=("x",))
    items = _push("under", *(f"given {number}" for number in range(given)), packed)
    items += [*emit.store_local(RESULT), *unpack_results(lowering, given)]
    items += [*emit.load_local("x"), *_return_tuple(extra + 2)]
    assert _run(items, x=None) == ("under", *left, "out")


def test_without_results_the_operands_are_dropped() -> None:
    lowering = _branch(operands=2)
    items = [*_push("under", 1, 2), *unpack_results(lowering, 2), *emit.return_value()]
    assert _run(items) == "under"


def test_operands_that_are_gone_already_are_not_dropped() -> None:
    lowering = _branch(operands=2, extra=1)
    items = [*_push("under", ("left",)), *emit.store_local(RESULT)]
    items += [*unpack_results(lowering, 0), *_return_tuple(2)]
    assert _run(items) == ("under", "left")
