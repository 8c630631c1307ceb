"""Texts of exceptions that a call raises and reads itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

import bcmend
from tests.equivalence import Call, assert_equivalent, call


class _Joined(ValueError):
    def __str__(self) -> str:
        return "joined:" + "|".join(map(str, self.args))


class _Coded(Exception):
    def __init__(self, code: int, why: str) -> None:
        self.code = code
        super().__init__(why)

    def __str__(self) -> str:
        return f"[{self.code}] {super().__str__()}"


def _inputs() -> Sequence[Call]:
    return [call(torch.tensor([1.0, 2.0])), call(torch.tensor([-1.0, -2.0]))]


def _own(x: Tensor) -> Tensor:
    try:
        raise _Joined("a", 2)
    except _Joined as error:
        text = str(error)
    return x + 1 if text == "joined:a|2" else x * 2


def _of_its_base(x: Tensor) -> Tensor:
    try:
        raise _Coded(3, "why")
    except _Coded as error:
        text = str(error)
    return x + 1 if text == "[3] why" else x * 2


def _of_a_key(x: Tensor) -> Tensor:
    known: dict[str, int] = {}
    try:
        known["missing"]
    except KeyError as error:
        text = str(error)
    return x + 1 if text == "'missing'" else x * 2


@pytest.mark.parametrize("program", [_own, _of_its_base, _of_a_key])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_texts_are_those_of_the_class(program: object, fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _inputs, fullgraph=fullgraph)


def _of_a_file(x: Tensor) -> Tensor:
    try:
        raise OSError(2, "no such file")
    except OSError as error:
        text = str(error)
    return x + 1 if text == "[Errno 2] no such file" else x * 2


def test_text_that_is_made_in_another_way() -> None:
    assert_equivalent(lambda: _of_a_file, _inputs, fullgraph=False, graphs=None, recompiles=None)
    with bcmend.patched(_of_a_file), pytest.raises(Unsupported):
        torch.compile(_of_a_file, backend="eager", fullgraph=True)(torch.ones(2))


def _of_the_class(x: Tensor) -> Tensor:
    return x + len(str(_Joined)) + len(str(ValueError))


def test_text_of_a_class_of_exceptions() -> None:
    assert_equivalent(lambda: _of_the_class, _inputs, fullgraph=False, graphs=None, recompiles=None)
