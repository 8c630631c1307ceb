"""Indices that cannot be out of range by how they were made."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bcmend.tracing.effects.hazards import hazards_of

ROWS = torch.randn(2, 5, 3)
NUMBERS = torch.tensor([1, 0])
MATRIX = torch.eye(2, 3)


def _partial(function: Callable[..., object], *arguments: Tensor) -> str:
    """Trace ``function`` and return what of it may fail on the data."""
    found: list[str] = []

    def back_end(module: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        examples = [node.meta.get("example_value") for node in module.graph.nodes]
        mode = next(each.fake_mode for each in examples if isinstance(each, Tensor))
        found.append(hazards_of(module.graph.nodes, mode).partial)
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=back_end, fullgraph=True)(*arguments)
    (partial,) = found
    return partial


def _stored(x: Tensor) -> Tensor:
    x = x.clone()
    x[torch.arange(x.size(0)).unsqueeze(-1), x.sum(-1).topk(2, sorted=False)[1], :] = 1.0
    return x


KNOWN = [
    lambda x: x[:, torch.randint(0, x.size(1), (3,))],
    lambda x: x[:, torch.randint(5, (3,))],
    lambda x: x[torch.randperm(2)[:1]],
    lambda x: x[torch.arange(2)[:, None], torch.arange(5)[None].expand(2, -1)],
    lambda x: x[torch.arange(1, 2).to(x.device).contiguous()],
    lambda x: x[torch.arange(2).unsqueeze(-1), x.sum(-1).topk(3)[1]],
    lambda x: x[x.sum((1, 2)).argsort()],
    lambda x: x[x.sum((1, 2)).sort(descending=True).indices],
    lambda x: x[:, x.sum(-1).max(1)[1]],
    lambda x: x[:, x.sum(-1).argmin(1)],
    lambda x: x.flatten()[x.argmax().view(1)],
    _stored,
]


@pytest.mark.parametrize("function", KNOWN)
def test_places_of_a_dimension(function: Callable[..., object]) -> None:
    assert _partial(function, ROWS) == ""


def _changed(x: Tensor, numbers: Tensor) -> Tensor:
    places = torch.arange(2)
    places.sub_(1)
    return x[places]


def _changed_by_a_view(x: Tensor, numbers: Tensor) -> Tensor:
    places = torch.arange(2)
    places[:1] = numbers[:1]
    return x[places]


UNKNOWN = [
    lambda x, numbers: x[numbers],
    lambda x, numbers: x[numbers.sort()[0]],
    lambda x, numbers: x[numbers.topk(2)[0]],
    lambda x, numbers: x[torch.msort(numbers)],
    lambda x, numbers: x[torch.max(numbers, numbers - 1)],
    lambda x, numbers: x[torch.broadcast_tensors(torch.arange(2), numbers)[1]],
    lambda x, numbers: x[torch.stack([torch.arange(2), numbers])],
    lambda x, numbers: x[torch.arange(2) - 1],
    lambda x, numbers: x[torch.arange(-2, 0)],
    lambda x, numbers: x[torch.arange(0, 2, 2)],
    lambda x, numbers: x[torch.arange(2).view(torch.int32)],
    lambda x, numbers: x.transpose(0, 1)[torch.arange(2), numbers],
    lambda x, numbers: x[:, x.sum(1).argmax(1)].sum() + x[x.sum((1, 2)) > 0].sum(),
    _changed,
    _changed_by_a_view,
]


@pytest.mark.parametrize("function", UNKNOWN)
def test_numbers_that_may_be_anything(function: Callable[..., object]) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert _partial(function, ROWS, NUMBERS) != ""


def test_places_of_a_longer_dimension() -> None:
    assert _partial(lambda x, y: x[y.argmax(1)], ROWS, MATRIX) != ""
    assert _partial(lambda x, y: x[y.argmax(0)], ROWS, MATRIX) == ""
