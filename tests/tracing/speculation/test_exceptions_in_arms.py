"""What an arm changes of an exception from before it is put back, and the branch is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Failed(Exception):
    """An exception of the program."""


def _calls() -> list[Call]:
    rows = ([1.0, 2.0], [-1.0, -2.0], [3.0, 1.0], [-3.0, 0.5], [-1.0, 0.0], [2.0, 2.0])
    return [call(torch.tensor(row)) for row in rows]


def _set_by_both(kind: Any) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        error = kind("first")
        if x.sum() > 0:
            error.args = ("then",)
            x = x + 1
        else:
            error.args = ("else", 2)
            x = x - 1
        return x, error.args, str(error)

    return program


def _set_by_one(kind: Any) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        error = kind("first")
        if x.sum() > 0:
            error.args = ("then", 2)
            x = x + 1
        else:
            x = x - 1
        return x, error.args, repr(error)

    return program


def _handled(kind: Any) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        try:
            raise kind("first", 1)
        except kind as error:
            if x.sum() > 0:
                error.args = ("then",)
                x = x * 2
            else:
                x = x - 1
            return x, error.args, str(error)

    return program


def _given_a_note(kind: Any) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        error = kind("first")
        if x.sum() > 0:
            error.note = 3
            x = x + 1
        else:
            error.note = 4
            x = x - 1
        return x, error.note

    return program


def _caused(kind: Any) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        error, cause = kind("first"), KeyError("cause")
        if x.sum() > 0:
            error.__cause__ = cause
            x = x + 1
        else:
            x = x - 1
        return x, error.__cause__ is None

    return program


def _handled_in_a_generator(kind: Any) -> Callable[[Tensor], Any]:
    def parts(x: Tensor) -> Any:
        try:
            raise kind("first")
        except kind as error:
            yield x
            yield x * len(error.args)

    def program(x: Tensor) -> Any:
        made = parts(x)
        first = next(made)
        if x.sum() > 0:
            second = next(made)
        else:
            second = first - 1
        return first, second, list(made)

    return program


PROGRAMS = (
    *(_set_by_both, _set_by_one, _handled, _given_a_note, _caused),
    _handled_in_a_generator,
)


@pytest.mark.parametrize("kind", [ValueError, Failed])
@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_each_call_has_what_its_own_side_has_set(make: Any, kind: Any, backend: str) -> None:
    assert_equivalent(
        lambda: make(kind), _calls, backend=backend, fullgraph=False, graphs=None, recompiles=None
    )


def _reasons(make: Callable[[Any], Any], kind: Any) -> Sequence[str]:
    compared = assert_equivalent(
        lambda: make(kind), _calls, fullgraph=False, graphs=None, recompiles=None
    )
    return [site.detail for site in compared.report.sites if site.status == "refused"]


@pytest.mark.parametrize("make", [_set_by_both, _set_by_one])
def test_the_branch_is_refused_for_the_exception(make: Any) -> None:
    (reason,) = _reasons(make, Failed)
    assert "exception" in reason


def test_a_cause_is_a_change() -> None:
    (reason,) = _reasons(_caused, ValueError)
    assert reason == "an exception: ValueError"


def test_what_an_arm_only_reads_or_makes_is_no_change() -> None:
    def program(x: Tensor) -> Any:
        error = Failed("first", 1)
        if x.sum() > 0:
            other = Failed(*error.args)
            other.args = ("other",)
            x = x * len(error.args)
        else:
            x = x - 1
        return x, error.args

    assert_equivalent(lambda: program, _calls)
