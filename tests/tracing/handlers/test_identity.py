"""A program that asks which object a merged tensor is gets the answer of eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend

X = torch.tensor([1.0, 2.0])


def _is(a: Tensor, b: Tensor) -> object:
    return a is b


def _is_not(a: Tensor, b: Tensor) -> object:
    return a is not b


def _id(a: Tensor, b: Tensor) -> object:
    return id(a) == id(b)


def _key(a: Tensor, b: Tensor) -> object:
    return {a: 1}.get(b, 0)


def _member(a: Tensor, b: Tensor) -> object:
    return len({a, b})


def _attribute(a: Tensor, b: Tensor) -> object:
    a.mark = True  # type: ignore[attr-defined]
    return hasattr(b, "mark")


def _leaf(a: Tensor, b: Tensor) -> object:
    a.requires_grad_()
    return b.requires_grad


def _shared_on_one_side(ask: Callable[[Tensor, Tensor], object]) -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 4
        return x + int(ask(a, b))  # type: ignore[call-overload]

    return program


def _apart(ask: Callable[[Tensor, Tensor], object]) -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a, b = x * 2, x * 5
        else:
            a, b = x * 3, x * 4
        return x + int(ask(a, b))  # type: ignore[call-overload]

    return program


def _lowering(program: Any) -> str | None:
    """Compile a patched program, compare it with the original, and say what the branch became."""
    expected = [program(X * scale) for scale in (1, -1)]
    try:
        compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
        found = [compiled(X * scale) for scale in (1, -1)]
        sites = bcmend.report(program).sites
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
    assert all(map(torch.equal, found, expected))
    (branch,) = (each for each in sites if each.kind == "branch" and each.status == "mended")
    return branch.lowering


@pytest.mark.parametrize("ask", [_is, _is_not, _id, _key, _member, _attribute, _leaf])
def test_what_differs_between_the_sides_is_asked_in_the_arms(ask: Any) -> None:
    lowering = _lowering(_shared_on_one_side(ask))
    assert lowering is not None and lowering.startswith(("split", "choice"))


@pytest.mark.parametrize("ask", [_is, _id, _member, _leaf])
def test_what_both_sides_agree_on_is_merged(ask: Any) -> None:
    assert _lowering(_apart(ask)) in ("where", "nothing to merge", "where with effects")


@pytest.mark.parametrize("dropout", [torch.nn.functional.dropout, torch.dropout])
@pytest.mark.parametrize(("chance", "training"), [(0.5, False), (0.0, True)])
def test_dropout_that_drops_nothing_is_its_argument(
    dropout: Any, chance: float, training: bool
) -> None:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = dropout(a, chance, training)
        else:
            a = x * 3
            b = a * 1
        b.add_(1)
        return a + b * 10

    assert _lowering(program) == "split by where"
