"""``locals()`` of mended code has the program's names; other dictionaries stay as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.names import BUFFER, PREFIX
from bcmend.tracing.handlers.frame_locals import _call_vars, _without_own_names
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace


def _dictionary(*names: str) -> Any:
    given: Any = {constant(name): constant(1) for name in names}
    return compat.ConstDictVariable(given, dict, mutation_type=compat.ValueMutationNew())


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
