"""A small transformer whose layers could write or raise something, and do not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

import torch
from torch import Tensor, nn

LAYERS, WIDTH, HEADS = 4, 256, 4
BATCH, LENGTH = 4, 128
_HUGE = 1e9

_LOGGER = logging.getLogger("bench.disabled")
_LOGGER.setLevel(logging.ERROR)


class Quiet(Enum):
    """What a layer does beside computing, none of which shows."""

    DISABLED = "logs at a level that is disabled"
    NOT_TAKEN = "prints where the first number is huge"
    CHECKED = "raises where a number is not finite"
    CONDITION = "computes whether a number is not finite"
    SILENT = "nothing"


class Layer(nn.Module):
    """One layer of an encoder and a place to keep a condition."""

    condition: Tensor

    def __init__(self, inner: nn.TransformerEncoderLayer) -> None:
        super().__init__()
        self.inner = inner


class Disabled(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        _LOGGER.info("mean %.3f of %s", y.mean().item(), y)
        return y


class NotTaken(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        if y[0, 0, 0] > _HUGE:
            magnitude = y.abs()
            print("huge:", magnitude.max(), magnitude.mean().item(), torch.isnan(y).sum())
        return y


class Checked(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        if not torch.isfinite(y).all():
            raise ValueError(f"not finite: {y.mean().item()}")
        return y


class Condition(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        self.condition = torch.isfinite(y).all().logical_not()
        return y


class Silent(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return y


_LAYERS: dict[Quiet, Callable[[nn.TransformerEncoderLayer], Layer]] = {
    Quiet.DISABLED: Disabled,
    Quiet.NOT_TAKEN: NotTaken,
    Quiet.CHECKED: Checked,
    Quiet.CONDITION: Condition,
    Quiet.SILENT: Silent,
}


def transformers(*forms: Quiet) -> list[nn.Module]:
    """An encoder of `LAYERS` layers in eval mode for each of `forms`, with weights from seed 0.

    They share the weights: where in memory these lie makes a hundredth or two.
    """
    torch.manual_seed(0)
    inner = [
        nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True) for _ in range(LAYERS)
    ]
    return [nn.Sequential(*map(_LAYERS[form], inner)).eval() for form in forms]


def transformer_input() -> Tensor:
    """One input of it, float32 of shape (BATCH, LENGTH, WIDTH)."""
    return torch.linspace(-1.0, 1.0, BATCH * LENGTH * WIDTH).reshape(BATCH, LENGTH, WIDTH)
