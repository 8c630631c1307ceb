"""Output in exported code: left out, said once, and never an error."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend

X = torch.tensor([1.0, 2.0, 3.0])
_LOG = logging.getLogger(__name__)


class Talking(nn.Module):
    """Writes something on each side of a branch and around it."""

    def forward(self, x: Tensor) -> Tensor:
        print("given", x.shape, f"{x.mean().item():.2f}")
        if x.sum() > 0:
            _LOG.warning("positive %s", x)
            x = x * 2
        else:
            warnings.warn("negative", stacklevel=1)
            x = x - 1
        print("done")
        return x


class Checking(nn.Module):
    """Checks one side of a branch."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 100:
                raise ValueError("too large")
            x = x * 2
        return x


class Quiet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _exported(program: nn.Module) -> tuple[Any, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exported = torch.export.export(bcmend.patch(program), (X,), strict=True)
    return exported.module(), [each for each in caught if each.category is bcmend.OutputDropped]


def test_output_is_left_out_with_one_warning(capfd: pytest.CaptureFixture[str]) -> None:
    program = Talking()
    exported, (warning,) = _exported(program)
    keys = [site.name for site in bcmend.report(program).sites if site.kind == "output"]
    assert len(keys) == 4
    assert all(key in str(warning.message) for key in keys)
    capfd.readouterr()
    assert torch.equal(exported(X), X * 2)
    assert torch.equal(exported(-X), -X - 1)
    assert capfd.readouterr().out == ""


def test_there_is_no_warning_where_nothing_is_left_out() -> None:
    exported, caught = _exported(Quiet())
    assert caught == []
    assert torch.equal(exported(-X), -X - 1)


def test_a_check_in_an_arm_is_not_silently_left_out() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported):
        _exported(Checking())
