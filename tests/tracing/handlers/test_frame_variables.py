"""``locals()`` has the names of the program; deleted arguments are deleted behind a break."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.names import BUFFER, PREFIX
from bcmend.tracing.handlers.frame_variables import (
    _call_vars,
    _step_graph_break,
    _without_own_names,
)
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace


def _dictionary(*names: str) -> Any:
    given: Any = {constant(name): constant(1) for name in names}
    return compat.ConstDictVariable(given, mutation_type=compat.ValueMutationNew())


def test_own_names_are_left_out() -> None:
    def body_of(tx: Any, x: Any) -> tuple[list[Any], list[Any], list[Any]]:
        found = _dictionary("x", BUFFER, "y", f"{PREFIX}more")
        given = _dictionary(BUFFER)
        of_an_object = _call_vars(lambda self, tx, *args: given, constant(0), tx, constant(1))
        of_the_frame = _call_vars(lambda self, tx, *args: found, constant(0), tx)
        names = [
            [key.vt.as_python_constant() for key in each.items]
            for each in (of_the_frame, of_an_object, _without_own_names(_dictionary("x")))
        ]
        return names[0], names[1], names[2]

    assert during_trace(body_of, torch.ones(2)) == (["x", "y"], [BUFFER], ["x"])


def _program() -> Any:
    def program(x: Tensor) -> Any:
        size = x.shape[0]
        if size > 100:
            print("large")
        return x * 2, sorted(locals()), sorted(vars())

    return program


def test_a_compiled_program_finds_its_names() -> None:
    assert_equivalent(_program, lambda: [call(torch.ones(3))])


def _plain(one: Any, other: Any) -> Any:
    return one, other


def _with_cell(one: Any, other: Any) -> Callable[[], Any]:
    return lambda: other


def _opnames(function: Any, known: list[str], parent: Any = None) -> list[tuple[str, Any]]:
    """Return what the instructions are that are added, when the locals ``known`` are left."""
    target = compat.create_instruction("NOP")
    frame = SimpleNamespace(
        symbolic_locals=dict.fromkeys(known),
        f_code=function.__code__,
        parent=parent,
        instructions=[target],
    )
    went_on: list[Any] = []
    _step_graph_break(lambda self, going_on: went_on.append(going_on), frame, target)
    added = frame.instructions[1:]
    assert went_on == [added[0] if added else target]
    assert not added or added[-1].target is target
    return [(each.opname, each.argval) for each in added[:-1]]


@pytest.mark.parametrize(
    ("function", "known", "deleted"),
    [
        (_plain, ["one", "other"], []),
        (_plain, ["one"], ["other"]),
        (_plain, [], ["one", "other"]),
        (_with_cell, ["one"], []),  # Dynamo knows cells in another way
    ],
)
def test_what_is_missing_is_deleted(function: Any, known: list[str], deleted: list[str]) -> None:
    assert _opnames(function, known) == [("DELETE_FAST", name) for name in deleted]


def test_a_frame_inside_another_is_unchanged() -> None:
    assert _opnames(_plain, [], parent=object()) == []
