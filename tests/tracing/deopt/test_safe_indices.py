"""Operations that would fail behind a check that has failed, as on a device whose kernels assert.

The CPU takes the part of such a device: its operators raise where a kernel would end the context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import bcmend
from bcmend.tracing.deopt import safe_indices

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

TABLE = torch.arange(12.0).reshape(4, 3)


class Failures:
    """A back end that runs graphs as they are, and counts those that raise."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            try:
                return graph.forward(*arguments)
            except Exception:
                self.count += 1
                raise

        return run


def _compiled(function: Callable[..., Any]) -> tuple[Callable[..., Any], Failures]:
    failures = Failures()
    return torch.compile(bcmend.patch(function), backend=failures, fullgraph=True), failures


def _rows(places: Tensor) -> Tensor:
    if places.max() >= 4:
        raise ValueError(f"{places.max().item()} is no row")
    return TABLE[places] * 2


def _embedded(places: Tensor) -> Tensor:
    if (places < 0).any() or (places > 3).any():
        raise IndexError("no such word")
    return functional.embedding(places, TABLE)


def _gathered(places: Tensor) -> Tensor:
    if places.max() >= 4:
        raise ValueError("no such row")
    return TABLE.gather(0, places[:, None].expand(-1, 3)) + TABLE.index_select(0, places).sum()


def _loss(places: Tensor) -> Tensor:
    if places.max() >= 3:
        raise ValueError("no such class")
    return functional.cross_entropy(TABLE[: places.numel()], places)


def _stored(places: Tensor) -> Tensor:
    if places.max() >= 4:
        raise ValueError("no such row")
    made = torch.zeros(4, dtype=torch.int64)
    made[places] = 7
    return made.index_add(0, places, torch.ones_like(places))


def _in_an_arm(places: Tensor) -> Tensor:
    if places.max() >= 4:
        raise ValueError("no such row")
    if places.sum() > 2:
        return TABLE[places] + 1
    return TABLE[places].cumsum(0)


def _behind_two_checks(places: Tensor) -> Tensor:
    if places.max() >= 4:
        raise ValueError("no such row")
    first = TABLE[places]
    if first.sum() > 20:
        raise ValueError("too much")
    return TABLE[first.argmax(dim=1) + places.min()]


EACH = (_rows, _embedded, _gathered, _loss, _stored, _in_an_arm, _behind_two_checks)


@pytest.fixture
def _kernels_assert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_indices, "asserts_on", lambda device: True)


def _outcome(function: Callable[..., Any], places: Tensor) -> Any:
    try:
        return function(places)
    except (ValueError, IndexError) as error:
        return type(error), str(error)


@pytest.mark.usefixtures("_kernels_assert")
@pytest.mark.parametrize("function", EACH)
def test_no_graph_fails_behind_a_check(function: Callable[..., Any]) -> None:
    compiled, failures = _compiled(function)
    for places in ([0, 1, 2], [0, 0, 1], [1, 9, 2], [2, 1, 0], [7, 7, 7]):
        given = torch.tensor(places)
        found, expected = _outcome(compiled, given), _outcome(function, given)
        if isinstance(expected, Tensor):
            assert torch.equal(found, expected)
        else:
            assert found == expected
    assert failures.count == 0


@pytest.mark.parametrize("function", [_rows, _embedded, _loss])
def test_on_the_cpu_graphs_are_as_they_were(function: Callable[..., Any]) -> None:
    compiled, failures = _compiled(function)
    compiled(torch.tensor([0, 1, 2]))
    with pytest.raises((ValueError, IndexError)):
        compiled(torch.tensor([1, 9, 2]))
    assert failures.count == 1


@pytest.mark.usefixtures("_kernels_assert")
def test_what_fails_in_front_of_a_check_fails() -> None:
    def program(places: Tensor) -> Tensor:
        rows = TABLE[places]
        if rows.sum() < 0:
            raise ValueError("negative")
        return rows

    compiled, _ = _compiled(program)
    with pytest.raises(IndexError):
        compiled(torch.tensor([9]))


@pytest.mark.usefixtures("_kernels_assert")
@pytest.mark.parametrize(
    "operator",
    [
        lambda x: functional.binary_cross_entropy(x, torch.ones(2)),
        torch.bernoulli,
        torch.poisson,
        lambda x: torch.multinomial(x, 1),
    ],
    ids=["binary_cross_entropy", "bernoulli", "poisson", "multinomial"],
)
def test_probabilities_behind_a_check(operator: Callable[[Tensor], Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        if x.min() < 0:
            raise ValueError("no probability")
        return operator(x)

    compiled, failures = _compiled(program)
    good = torch.tensor([0.5, 0.25])
    torch.manual_seed(0)
    expected = program(good)
    torch.manual_seed(0)
    assert torch.equal(compiled(good), expected)
    with pytest.raises(ValueError, match="no probability"):
        compiled(torch.tensor([0.5, -3.0]))
    assert failures.count == 0
