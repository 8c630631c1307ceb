"""Methods of members of enumerations: what eager execution gives, in one graph."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.handlers import enum_members
from tests.equivalence import assert_equivalent, call, fresh


class _Mode(enum.StrEnum):
    MEAN = "Mean"
    SUM = "sum_of"


class _Own(str, enum.Enum):  # noqa: UP042
    MEAN = "Mean"

    def lower(self) -> str:
        return "own " + self.name

    def __str__(self) -> str:
        return "shown"


class _Number(enum.IntEnum):
    SIX = 6


class _Plain(enum.Enum):
    MEAN = "Mean"

    def lower(self) -> str:
        return self.value


def _texts(x: Tensor, mode: _Mode) -> tuple[Tensor, list[Any]]:
    found = [mode.strip(), mode.lower(), mode.startswith(_Mode.MEAN), mode.endswith("of")]
    return x + 1 if x.sum() > 0 else x - 1, [*found, mode.split("_"), mode.replace("M", "m")]


def _decides(x: Tensor, mode: _Mode) -> Tensor:
    if mode.lower().strip() == "mean":
        return x.mean()
    return x.sum()


def _numbers(x: Tensor, mode: _Mode) -> tuple[Tensor, int]:
    return x * len(mode.upper()), _Number.SIX.bit_length()


def _own_methods(x: Tensor, mode: _Mode) -> tuple[Tensor, list[str]]:
    del mode
    found = [_Own.MEAN.lower(), _Own.MEAN.upper(), _Own.MEAN.strip(), _Plain.MEAN.lower()]
    return x + 1 if x.sum() > 0 else x - 1, found


@pytest.mark.parametrize("program", [_texts, _decides, _numbers, _own_methods])
def test_a_method_of_a_member_is_called_in_the_graph(program: Callable[..., Any]) -> None:
    assert_equivalent(
        lambda: fresh(program),
        lambda: [call(torch.tensor([sign, 1.0]), mode) for mode in _Mode for sign in (3.0, -3.0)],
        fullgraph=True,
        graphs=None,
        recompiles=None,
    )


def _method_kept(x: Tensor, mode: _Mode) -> tuple[Tensor, Any]:
    method = mode.lower
    return (x + 1 if x.sum() > 0 else x - 1), method


def _method_kept_beside_a_call(x: Tensor, mode: _Mode) -> tuple[Tensor, Any]:
    double = _doubled
    return (x + 1 if x.sum() > 0 else x - 1), [mode.lower, double(x)]


def _doubled(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize("program", [_method_kept, _method_kept_beside_a_call])
def test_a_method_that_is_not_called_belongs_to_the_member(program: Callable[..., Any]) -> None:
    inputs = [call(torch.ones(2), _Mode.MEAN)]
    assert_equivalent(lambda: fresh(program), lambda: inputs, fullgraph=False, graphs=None)
    _, found = torch.compile(bcmend.patch(fresh(program)), backend="eager")(*inputs[0].arguments)
    method = found[0] if isinstance(found, list) else found
    assert method.__self__ is _Mode.MEAN


@pytest.mark.parametrize(
    ("member", "kind", "name", "expected"),
    [
        (_Mode.MEAN, str, "lower", True),
        (_Mode.MEAN, str, "name", False),
        (_Mode.MEAN, str, "__len__", False),
        (_Own.MEAN, str, "lower", False),
        (_Own.MEAN, str, "upper", True),
        (_Number.SIX, int, "bit_length", True),
        (_Number.SIX, int, "real", False),
    ],
)
def test_only_what_the_class_has_of_its_base_is_answered(
    member: enum.Enum, kind: type, name: str, expected: bool
) -> None:
    assert enum_members._is_inherited(member, kind, name) is expected


@pytest.mark.parametrize("find", [lambda: _Plain("Mean"), lambda: _Plain["MEAN"]])
def test_a_member_is_found_by_value_and_by_name(find: Callable[[], _Plain]) -> None:
    def program(x: Tensor) -> tuple[Tensor, _Plain]:
        found = find()
        if x.sum() > 0:
            x = x * 2
        return (x + 1 if found is _Plain.MEAN else x - 1), found

    x = torch.ones(2)
    mended = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    for each in (x, -x):
        torch.testing.assert_close(mended(each)[0], program(each)[0])
        assert mended(each)[1] is _Plain.MEAN
