"""Functions that compute arrays on the host, called inside the graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported, UserError

import bcmend
from tests.equivalence import assert_equivalent, call

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def chosen(lengths: Tensor, size: int, scale: float = 1.0) -> Any:
    """Return an array of one shape, with numbers at places that are drawn as lengths allow."""
    array = numpy.zeros((2, size))
    for row, length in enumerate(lengths.tolist()):
        places = numpy.random.choice(numpy.arange(length), max(1, length // 2), replace=False)
        array[row, places] = scale
    return array


def drawn(count: Tensor) -> Any:
    """Return as many numbers as the data say."""
    number = max(count.item(), 1)
    return numpy.random.choice(numpy.arange(number), number, replace=False) * 1.0


def changed(lengths: Tensor) -> Any:
    """Change an argument, which a copy would not show."""
    array = numpy.array(lengths.tolist())
    view = lengths.numpy()
    view[0] = 7
    return array


def _lengths() -> list[Any]:
    x = torch.arange(16.0).reshape(2, 8)
    return [call(x.clone(), torch.tensor(each)) for each in ([8, 6], [1, 8], [5, 5])]


def _equal(program: Any, inputs: Any = _lengths, **options: Any) -> None:
    for backend in ("eager", "aot_eager"):
        options.update(backend=backend, fullgraph=True)
        assert_equivalent(lambda: copy.deepcopy(program), inputs, **options)


def test_an_array_of_one_shape() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.from_numpy(chosen(lengths, 8)).float()
        return x * mask + numpy.random.rand() * torch.rand(8)

    with pytest.raises(AssertionError):  # the number behind it cannot be drawn before the graph
        _equal(program)

    def other(x: Tensor, lengths: Tensor) -> Tensor:
        x = x * numpy.random.rand()
        mask = torch.from_numpy(chosen(lengths * 1, 8)).float()
        twice = torch.tensor(chosen(lengths, size=8, scale=2.0), dtype=torch.float32)
        return x * mask + twice + torch.rand(8)

    _equal(other)
    _equal(other, training=True)


def test_the_numbers_are_drawn_afresh_at_each_call() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        return x + torch.from_numpy(chosen(lengths, 8))

    compiled = torch.compile(bcmend.patch(program), backend="aot_eager", fullgraph=True)
    x, lengths = torch.zeros(2, 8), torch.tensor([8, 8])
    results = []
    for seed in (1, 2, 1):
        numpy.random.seed(seed)
        results.append(compiled(x, lengths))
    assert torch.equal(results[0], results[2])
    assert not torch.equal(results[0], results[1])


def test_a_shape_that_depends_on_data() -> None:
    def program(x: Tensor, count: Tensor) -> Tensor:
        return x.sum() + torch.from_numpy(drawn(count)).sum() + torch.rand(1)

    counts = [call(torch.ones(3), torch.tensor(count)) for count in (3, 3, 5, 0)]
    _equal(program, lambda: counts)


def test_sizes_that_vary_from_call_to_call() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        return x * torch.from_numpy(chosen(lengths, x.shape[1])).float()

    def sizes() -> list[Any]:
        return [call(torch.ones(2, size), torch.tensor([size, 2])) for size in (8, 5, 8, 6)]

    _equal(program, sizes, graphs=3, recompiles=2)


def test_a_function_that_fails() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        print("before")
        try:
            array = chosen(lengths, 8)
        except ValueError:
            return x - 1
        return x * torch.from_numpy(array)

    x = torch.ones(2, 8)
    _equal(program, lambda: [call(x, torch.tensor(each)) for each in ([4, 4], [0, 4], [3, 9])])


def test_a_function_that_changes_its_argument() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        return x * torch.from_numpy(changed(lengths)).sum() + lengths.sum()

    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    with pytest.raises((Unsupported, UserError)):
        compiled(torch.ones(2), torch.tensor([1, 2]))


class Dropped(nn.Module):
    """Calls the function under a condition of the data."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * torch.from_numpy(chosen(lengths, 8)).float()
        return x


def test_a_call_under_a_condition_stays() -> None:
    model = bcmend.patch(Dropped())
    with pytest.raises((Unsupported, UserError)):
        torch.compile(model, backend="eager", fullgraph=True)(
            torch.ones(2, 8), torch.tensor([8, 4])
        )
    assert "no-equal-substitute" in {site.refusal for site in bcmend.report(model).refused}


def test_code_that_is_not_patched_is_left_alone() -> None:
    def mended(x: Tensor, lengths: Tensor) -> Tensor:
        return x + torch.from_numpy(chosen(lengths, 8))

    def plain(x: Tensor, lengths: Tensor) -> Tensor:
        return x + torch.from_numpy(chosen(lengths, 8))

    given = torch.ones(2, 8), torch.tensor([8, 4])
    torch.compile(bcmend.patch(mended), backend="eager", fullgraph=True)(*given)
    with pytest.raises((Unsupported, UserError)):
        torch.compile(plain, backend="eager", fullgraph=True)(*given)
