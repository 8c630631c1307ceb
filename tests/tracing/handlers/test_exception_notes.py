"""``error.add_note(...)``: the notes of eager execution, where the graph breaks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

LOGGER = logging.getLogger("tests.notes")


class _Positive(ValueError):
    pass


class _Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: object = None
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = _checked(x * self.scale, _Positive)
        except _Positive as error:
            error.add_note("held")
            self.last = list(error.__notes__)
            return x * 2
        return x


def _checked(x: Tensor, kind: type[Exception] = ValueError) -> Tensor:
    if x.sum() > 0:
        error = kind("positive")
        error.add_note("made")
        raise error
    return x + 1


def _returns(x: Tensor) -> Tensor:
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        x = x + 1
    except ValueError as error:
        error.add_note("a note")
        return x * 2
    return x


def _raises_again(x: Tensor) -> Tensor:
    try:
        return _checked(x)
    except ValueError as error:
        error.add_note(f"{x.max().item()} at most")
        if x[0] > 3:
            return x - 1
        raise


def _raises_from(x: Tensor) -> Tensor:
    try:
        return _checked(x, _Positive)
    except _Positive as error:
        error.add_note("seen")
        raise KeyError("key") from error


def _counts(x: Tensor) -> Tensor:
    for number in range(3):
        try:
            x = _checked(x - number)
        except ValueError as error:
            error.add_note(str(number))
            x = x + len(error.__notes__)
    return x


def _gives_back(x: Tensor) -> tuple[Tensor, object]:
    try:
        x = _checked(x)
    except ValueError as error:
        error.add_note("returned")
        return x, error
    return x, None


def _always(x: Tensor) -> tuple[Tensor, object]:
    try:
        raise ValueError("always")
    except ValueError as error:
        error.add_note("a note")
        error.add_note("another")
        kept = error
    if x.sum() > 0:
        x = x * 2
    return x, kept


def _shows(x: Tensor) -> Tensor:
    try:
        x = _checked(x)
    except ValueError as error:
        error.add_note("shown")
        LOGGER.exception("failed")
        LOGGER.warning("%s of %s", error, x.sum().item())
        x = x * 3
    return x


PROGRAMS = [_returns, _raises_again, _raises_from, _counts, _gives_back, _always, _shows]


def _inputs() -> Sequence[Call]:
    return [call(torch.tensor(each)) for each in ([1.0, 2.0], [-1.0, -3.0], [4.0, 1.0])]


def _before_the_branch(x: Tensor) -> tuple[Tensor, object]:
    error = ValueError("made before")
    if x.sum() > 0:
        error.add_note("positive")
        x = x + 1
    return x, error


def _after_it_was_shown(x: Tensor) -> Tensor:
    try:
        x = _checked(x)
    except ValueError as error:
        LOGGER.exception("failed")
        error.add_note("too late")
        x = x * 3
    return x


def _not_a_string(x: Tensor) -> Tensor:
    try:
        x = _checked(x)
    except ValueError as error:
        try:
            error.add_note(3)  # type: ignore[arg-type]
        except TypeError:
            x = x * 5
    return x


class _Own(ValueError):
    def add_note(self, note: str) -> None:
        super().add_note(note.upper())


def _by_a_method_of_its_own(x: Tensor) -> tuple[Tensor, list[str]]:
    try:
        raise _Own("own")
    except _Own as error:
        error.add_note("note")
        notes = error.__notes__
    return (x * 2 if x.sum() > 0 else x), notes


@pytest.mark.parametrize(
    "program",
    [
        *PROGRAMS,
        _Holder,
        _before_the_branch,
        _after_it_was_shown,
        _not_a_string,
        _by_a_method_of_its_own,
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_notes(program: Any, training: bool) -> None:
    assert_equivalent(
        program if program is _Holder else lambda: program,
        _inputs,
        fullgraph=False,
        graphs=None,
        recompiles=None,
        may_copy=True,
        training=training,
    )
