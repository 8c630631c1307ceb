"""Calls of primitives, assembled and run."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import pytest

from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item, assemble
from bcmend.bytecode.instructions import Label
from bcmend.names import NAMESPACE
from bcmend.rewrite.sites.plan import Site, SiteRefusal
from bcmend.rewrite.writer.primitive_calls import ask, write_condition_test, write_original_test
from bcmend.rewrite.writer.stretch import Stretch
from tests.listing import shape_of

SITE = Site("module.f:3:branch", "branch", 0, 3, 0, SiteRefusal("stack-shape"))


class _Primitives:
    def __init__(self, answer: bool = True) -> None:
        self.answer = answer
        self.calls: list[tuple[object, ...]] = []

    def primitive(self, *arguments: object) -> str:
        self.calls.append(arguments)
        return "answer"

    def data_dependent(self, *arguments: object) -> bool:
        self.calls.append(arguments)
        return self.answer


def _run(items: Sequence[Item], primitives: _Primitives, **arguments: object) -> Any:
    shape = shape_of(tuple(arguments))
    code = assemble(shape, [*emit.prologue(shape), *items], [])
    return FunctionType(code, {NAMESPACE: primitives})(*arguments.values())


def test_a_primitive_is_given_the_name_of_the_site_and_the_arguments() -> None:
    primitives = _Primitives()
    arguments = [emit.load_const(1), emit.load_local("x")]
    items = [*ask(SITE, "primitive", *arguments), *emit.return_value()]
    assert _run(items, primitives, x="two") == "answer"
    assert primitives.calls == [("module.f:3:branch", 1, "two")]


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("condition", [0, 5])
def test_the_condition_is_asked_about_and_comes_back_for_the_original_jump(
    answer: bool, condition: int
) -> None:
    stretch, original, is_true = Stretch(), Label("original"), Label("true")
    stretch.add(emit.load_local("x"))
    write_condition_test(stretch, SITE, original)
    stretch.add([*emit.load_const("mended"), *emit.return_value()])
    write_original_test(stretch, original)
    jump = emit.jump_if_true(is_true)[-1]  # the cast to a bool stands in front of it
    stretch.add([jump, *emit.load_const("false"), *emit.return_value()])
    stretch.add([is_true, *emit.load_const("true"), *emit.return_value()])
    primitives = _Primitives(answer)
    found = _run(stretch.items, primitives, x=condition)
    assert found == ("mended" if answer else "true" if condition else "false")
    assert primitives.calls == [("module.f:3:branch", condition)]
