"""A program that asks which object a merged tensor is gets the answer of eager execution."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call

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


def _lowering(program: Any) -> str:
    """Compile a patched program, compare it with the original, and say what the branch became."""
    (lowering,) = _lowerings(program)
    return lowering


def _lowerings(program: Any, scales: Sequence[int] = (1, -1)) -> list[str]:
    """Compile a patched program as well, and say what each of its branches became."""
    expected = [program(X * scale) for scale in scales]
    try:
        compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
        found = [compiled(X * scale) for scale in scales]
        sites = bcmend.report(program).sites
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
    assert all(map(torch.equal, found, expected))
    mended = [each for each in sites if each.kind == "branch" and each.status == "mended"]
    return [each.lowering or "" for each in mended]


@pytest.mark.parametrize("ask", [_is, _is_not, _id, _key, _member, _attribute, _leaf])
def test_what_differs_between_the_sides_is_asked_in_the_arms(ask: Any) -> None:
    found = ("split", "choice")
    if ask is _id and sys.version_info >= (3, 13):
        found = ("ahead",)  # each of the two calls is split there, and then it is not one graph
    assert _lowering(_shared_on_one_side(ask)).startswith(found)


@pytest.mark.parametrize("ask", [_is, _id, _member, _leaf])
def test_what_both_sides_agree_on_is_merged(ask: Any) -> None:
    assert _lowering(_apart(ask)) in ("where", "nothing to merge", "where with effects")


def _chained(x: Tensor) -> Any:
    y = x
    for bound in (0, 4):
        if x.sum() > bound:
            y = y * 2
    return y.clone() if y is x else y


def _chained_with_not(x: Tensor) -> Any:
    y = z = x * 1
    for bound in (0, 4):
        if x.sum() > bound:
            y = y + 1
    if y is not z:
        z = z * 10
    return y + z


def _of_one_branch(x: Tensor) -> Any:
    if x.sum() > 0:
        a = b = x * 2
    else:
        a, b = x * 3, x * 4
    return a - b if a is b else a + b


def _in_an_arm(x: Tensor) -> Any:
    y = x * 1
    z = y
    if x.sum() > 0:
        z = z * 2
    if x.max() > 1:
        y = y * 3 if z is y else z * 5
    return y


def _chosen_in_an_arm(x: Tensor) -> Any:
    y = x * 1
    z = y
    if x.max() > 1:
        if x.sum() > 4:
            z = z * 2
        else:
            z = y
        z = z if z is y else z * 7
    return y * 3 if z is y else z * 5


@pytest.mark.parametrize("program", [_chained, _chained_with_not, _of_one_branch, _in_an_arm])
def test_a_condition_is_computed_of_how_tensors_were_merged(program: Any) -> None:
    assert set(_lowerings(program, scales=(1, -1, 2))) <= {"where", "where with effects"}


def _changed_afterwards(x: Tensor) -> Any:
    return _chained(x).add_(1) + x


@pytest.mark.parametrize("program", [_chosen_in_an_arm, _changed_afterwards])
def test_what_is_asked_otherwise_is_asked_in_the_arms(program: Any) -> None:
    assert _lowerings(program, scales=(1, -1, 2))


def test_a_truth_that_no_branch_asks_for_is_asked_in_the_arms() -> None:
    def program(x: Tensor) -> Any:
        y = x
        if x.sum() > 0:
            y = y * 2
        same = y is x
        return x + (3 if same else 5)

    assert all(each.startswith(("split", "choice")) for each in _lowerings(program))


def test_a_branch_on_it_that_cannot_be_mended_is_in_the_arms() -> None:
    def program(x: Tensor) -> Any:
        y = x
        if x.sum() > 0:
            y = y * 2
        if y is x:
            return x.tolist()
        return y

    expected = [program(X * scale) for scale in (1, -1)]
    try:
        compiled = torch.compile(bcmend.patch(program), backend="eager")
        found = [compiled(X * scale) for scale in (1, -1)]
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


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


def _older_tuple(x: Tensor) -> Any:
    items = [0]
    old = (items, 0)
    chosen = old if x.sum() > 0 else (old[0], 0)
    return x, chosen is old, chosen is not old


def _tuple_of_an_arm(x: Tensor) -> Any:
    old = chosen = (x * 2, x)
    if x.sum() > 0:
        chosen = (x * 3, x)
    return chosen[0] + 1, chosen is old


def _tuples_of_two_arms(x: Tensor) -> Any:
    if x.sum() > 0:
        one = other = (x * 2, x)
    else:
        one, other = (x * 3, x), (x * 4, x)
    return one[0] + other[0], one is other


def _tuple_that_decides(x: Tensor) -> Any:
    old = chosen = (x * 2, x)
    if x.sum() > 0:
        chosen = (x * 3, x)
    return chosen[0] if chosen is old else x


def _tuple_within_another(x: Tensor) -> Any:
    old = (x * 2, 1)
    outer = (old, 2) if x.sum() > 0 else ((x * 2, 1), 2)
    return outer[0][0] + 1, outer[0] is old


class _Remembering(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Any = (torch.zeros(2), 0)

    def forward(self, x: Tensor) -> Any:
        before = self.last
        if x.sum() > 0:
            self.last = (x * 2, 1)
        return x + 1, self.last is before


@pytest.mark.parametrize(
    "make",
    [
        lambda: _older_tuple,
        lambda: _tuple_of_an_arm,
        lambda: _tuples_of_two_arms,
        lambda: _tuple_that_decides,
        lambda: _tuple_within_another,
        _Remembering,
    ],
    ids=["older", "of an arm", "of two arms", "decides", "within another", "attribute"],
)
def test_which_tuple_a_branch_has_chosen(make: Callable[[], Any]) -> None:
    calls = [call(each) for each in (X, -X, X * 2, -X * 3)]
    assert_equivalent(make, lambda: calls, fullgraph=False, graphs=None, recompiles=None)
