"""What one model of the corpus is: a name, a builder and the figures that belong to it.

A leaf: the builders of each family produce `ModelCase` values, the registry lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Module

Inputs = dict[str, Tensor]
Build = Callable[[], tuple[Module, Inputs]]


@dataclass(frozen=True, slots=True)
class ModelCase:
    """One model of the corpus.

    `build` makes the module and one call's keyword arguments, drawing weights and inputs from
    torch's global generator: the same seed gives the same model. `stock_breaks` is what
    torch 2.13 with transformers 4.52.4 gives unpatched; `required_breaks` is the largest number
    that the mended model may have.
    """

    name: str
    build: Build
    stock_breaks: int
    required_breaks: int
