"""What is cut out of a trace to be computed in front of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Patches(nn.Module):
    """Pads what a mask leaves of patches; the mask is as large as what weights have made."""

    def __init__(self, mask: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.mask = mask

    def forward(self, x: Tensor, taken: Tensor) -> Tensor:
        embedded = self.linear(x)
        is_free = self.mask(embedded[:, 0])
        is_free[taken] = False
        found = embedded[is_free]
        ones = torch.tensor([1] * len(found))
        return torch.cat([found.sum(0), ones])


def _calls() -> list[Call]:
    return [call(torch.randn(6, 4), torch.tensor(each)) for each in ([0, 1], [2, 2], [5, 4, 3])]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "mask",
    [
        lambda like: torch.full_like(like, True).bool(),
        lambda like: torch.ones_like(like, dtype=torch.bool),
        lambda like: ~torch.zeros_like(like).bool(),
    ],
)
def test_of_a_tensor_whose_sizes_alone_are_read(
    mask: Callable[[Tensor], Tensor], training: bool
) -> None:
    assert_equivalent(
        lambda: Patches(mask), _calls, training=training, graphs=None, recompiles=None
    )


def test_sizes_of_two_tensors_that_the_same_numbers_decide() -> None:
    def run(x: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        is_free = torch.ones(6, dtype=torch.bool)
        is_free[taken] = False
        first = x[is_free]
        second = x[is_free.clone()] if len(taken) else x
        other = x.flip(0)[is_free]
        return first * 2, torch.cat([other[:, 0], torch.tensor([1.0] * len(other))]) + second.sum()

    assert_equivalent(lambda: run, _calls, graphs=None, recompiles=None)


def test_the_same_numbers_decide_sizes_in_turns_of_a_loop() -> None:
    def run(x: Tensor, taken: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        def free() -> Tensor:
            is_free = torch.ones(6, dtype=torch.bool)
            is_free[taken] = False
            return is_free

        halves = [x[free()] for _ in range(2)]
        others = [(x + 1)[free()] for _ in range(2)]
        return halves, [torch.tensor([1] * len(each)) for each in others]

    assert_equivalent(lambda: run, _calls, graphs=None, recompiles=None)
