"""A report says of each branch what it became and why; an operation is looked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.effects import hazards

X = torch.ones(4)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _by_adding(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return (x + 1) * 2
    return x - 1


def _by_multiplying(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return torch.outer(x, x) @ x
    return x - 1


def _by_indexing(x: Tensor) -> Tensor:
    index = x.long()
    if x.sum() > 0:
        return x[index]
    return x - 1


def _by_raising(x: Tensor) -> Tensor:
    def checked(value: Tensor) -> Tensor:
        raise ValueError("positive")

    if x.sum() > 4:
        y = checked(x)
    else:
        y = x - 1
    return y


@pytest.mark.parametrize(
    ("program", "policy", "lowering", "why"),
    [
        (_by_adding, bcmend.Policy(), "where", "3 cheap operators, nothing can fail"),
        (_by_adding, bcmend.Policy(branch="cond"), "cond", "Policy(branch='cond')"),
        (_by_multiplying, bcmend.Policy(), "cond", "mv is expensive"),
        (_by_multiplying, bcmend.Policy(branch="where"), "where", "Policy(branch='where')"),
        (_by_indexing, bcmend.Policy(), "cond", "index may fail on the data"),
        (_by_raising, bcmend.Policy(), "guard", "one side raises ValueError"),
    ],
)
def test_the_report_shows_the_choice_and_its_reason(
    program: Callable[[Tensor], Tensor], policy: bcmend.Policy, lowering: str, why: str
) -> None:
    torch.compile(bcmend.patch(program, policy=policy), backend="eager", fullgraph=True)(X)
    report = bcmend.report(program, policy=policy)
    (site,) = [each for each in report.sites if each.status == "mended"]
    assert (site.lowering, site.detail) == (lowering, why)
    assert f"{lowering}: {why}" in str(report)
    (shown,) = [each for each in report.to_dict()["sites"] if each["status"] == "mended"]
    assert (shown["lowering"], shown["detail"]) == (lowering, why)


def test_operations_of_nested_branches_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []
    original = hazards.operators_of

    def counted(node: Any, fake_mode: Any) -> Any:
        looked_at.append(node.target)
        return original(node, fake_mode)

    monkeypatch.setattr(hazards, "operators_of", counted)

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.amax() > 1:
                if x.amin() > 2:
                    return x.cosh()
                return x + 2
            return x + 3
        return x + 4

    torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)(X)
    assert looked_at.count("cosh") == 1
