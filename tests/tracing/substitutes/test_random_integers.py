"""``tensor.random_`` draws in a graph what it draws in eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

DTYPES = [torch.int64, torch.int32, torch.uint8, torch.float32, torch.float64, torch.bool]
BOUNDS = [(2,), (1, 2), (0, 2**20), (7,), (-5, 5), (5, 2)]


def _calls() -> list[Call]:
    x = torch.linspace(0.5, 3, 6).view(2, 3)
    return [call(sign * x * scale) for scale in (1, 2) for sign in (1, -1)]


def _outcome(fill: Callable[[], Tensor]) -> Any:
    torch.manual_seed(3)
    try:
        found = fill().tolist()
    except RuntimeError as error:
        found = str(error)
    return found, torch.get_rng_state().tolist()


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_randint_fills_as_random_does(dtype: torch.dtype, bounds: tuple[int, ...]) -> None:
    for size in ((), (3,), (4, 5), (0,), (1000,)):
        one = _outcome(lambda size=size: torch.empty(size, dtype=dtype).random_(*bounds))
        other = _outcome(lambda size=size: torch.randint(*bounds, size, dtype=dtype))
        assert one == other


def _of_all_types(x: Tensor) -> Any:
    return [torch.empty(5, dtype=dtype).random_(1, 2) for dtype in DTYPES]


def _up_to_a_size(x: Tensor) -> Any:
    return torch.empty([], dtype=torch.int64).random_(1, x.shape[1]), torch.rand(2)


def _up_to_a_number(x: Tensor) -> Any:
    return torch.empty(6, dtype=torch.int64).random_(int(x.abs().sum())), torch.rand(2)


def _of_a_size_that_the_data_decide(x: Tensor) -> Any:
    return torch.empty(int(x.abs().sum()), dtype=torch.int64).random_(9, generator=None)


def _in_place(x: Tensor) -> Any:
    x[:1].random_(2, 9)
    y = x.clone()
    return y.random_(5) is y, y, x


def _of_one_that_others_have(x: Tensor) -> Any:
    def filled(tensor: Tensor) -> Tensor:
        return tensor.random_(1, 4)

    held = [torch.empty(2), torch.empty(3)]
    drawn = filled(held[0]), [each.random_(7) for each in held]
    return drawn, held, filled(torch.empty(4)), held[0] is drawn[0]


def _in_arms(x: Tensor) -> Any:
    y = torch.zeros(3)
    if x.sum() > 0:
        y.random_(2, 5)
    else:
        x = x + torch.empty(3, dtype=torch.uint8).random_(5)
    return y + x


def _without_a_number_between(x: Tensor) -> Any:
    return x + torch.empty(3).random_(5, 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "program",
    [
        _of_all_types,
        _up_to_a_size,
        _up_to_a_number,
        _of_a_size_that_the_data_decide,
        _in_place,
        _of_one_that_others_have,
        _in_arms,
        _without_a_number_between,
    ],
)
def test_what_eager_execution_draws(program: Callable[..., Any], backend: str) -> None:
    raises = program is _without_a_number_between
    graphs, recompiles = (None, None) if raises else (1, 0)
    assert_equivalent(
        lambda: program,
        _calls,
        backend=backend,
        fullgraph=not raises,
        graphs=graphs,
        recompiles=recompiles,
    )


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_place_where_styles_are_mixed(backend: str) -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            rows = x.unsqueeze(1).repeat(1, 4, 1)
            place = torch.empty([], dtype=torch.int64).random_(1, rows.shape[1])
            last = torch.full_like(place, rows.shape[1])
            place = torch.where(torch.rand([]) < 0.5, place, last)
            rows[:, place:] = torch.randn_like(x).unsqueeze(1).repeat(1, 4, 1)[:, place:]
            return rows

    # Inductor takes no such slice of a number that is computed in the graph.
    assert_equivalent(Mixed, _calls, backend=backend)


def _with_a_generator(x: Tensor) -> Tensor:
    return x + torch.empty(3).random_(5, generator=torch.Generator().manual_seed(1))


def _not_contiguous(x: Tensor) -> Tensor:
    return torch.zeros(3, 2).t().random_(9) + x


def _in_a_transform(x: Tensor) -> Tensor:
    def filled(row: Tensor) -> Tensor:
        return row.clone().random_(9) + row

    return torch.vmap(filled, randomness="different")(x)


class _Scaled(nn.Module):
    """A tensor with gradients is filled."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale).random_(5) + x * self.scale


@pytest.mark.parametrize(
    "make",
    [
        lambda: _with_a_generator,
        lambda: _not_contiguous,
        lambda: _in_a_transform,
        _Scaled,
    ],
)
def test_what_randint_does_not_fill_is_left_to_torch(make: Callable[[], Any]) -> None:
    training = make is _Scaled
    found = assert_equivalent(
        make, _calls, training=training, fullgraph=False, graphs=None, recompiles=None
    )
    assert found.report is not None
    lowered = [each.lowering for each in found.report.sites]
    assert "substitute" not in lowered
