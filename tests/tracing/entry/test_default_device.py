"""A default device, which is a mode of torch functions, counts in arms as it does outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import bcmend


@pytest.fixture(autouse=True)
def _default_device() -> Iterator[None]:
    torch._dynamo.reset()
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)
    bcmend.unpatch()
    torch._dynamo.reset()


def made_in_each_arm(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(3) if x.sum() > 1 else torch.arange(3) * 2


def made_in_one_arm(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(3)
    if x.sum() > 1:
        y = y + torch.ones(3)
    return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [made_in_each_arm, made_in_one_arm])
def test_tensors_made_in_arms_are_on_the_default_device(
    program: Callable[[torch.Tensor], torch.Tensor], backend: str
) -> None:
    x = torch.tensor([1.0, 2.0], device="cpu")
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    found, expected = compiled(x), program(x)
    assert (found.device, found.dtype) == (expected.device, expected.dtype)
