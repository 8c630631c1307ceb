"""Items of lists, dictionaries and modules at places that the data determine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import SPLIT, pattern, patterns_among
from tests.equivalence import Call, call

Program = Callable[..., Any]


def _places() -> Sequence[Call]:
    """Calls with one vector and a place: of each item, from the end, of none."""
    return [call(torch.arange(1.0, 5.0), torch.tensor(each)) for each in (0, 1, 2, -1, -3, 3, -4)]


@pattern(_places, SPLIT)
def tensor_of_a_list() -> Program:
    def program(x: Tensor, at: Tensor) -> Tensor:
        return [x * 2, x - 1, x.sin()][int(at)] + 1

    return program


@pattern(_places, SPLIT)
def number_of_a_tuple_by_a_truth() -> Program:
    def program(x: Tensor, at: Tensor) -> Tensor:
        return x * (1.0, 2.0)[bool(at > 0)]

    return program


@pattern(_places, SPLIT)
def function_of_a_dictionary() -> Program:
    functions = {0: torch.sin, 1: torch.cos, -3: torch.tanh}

    def program(x: Tensor, at: Tensor) -> Tensor:
        return functions[at.item()](x) + 1

    return program


@pattern(_places, SPLIT)
def layer_of_a_module_list() -> nn.Module:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                [nn.Linear(4, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 4))]
            )

        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            return self.layers[int(at)](x) * 2

    return Experts()


PATTERNS = patterns_among(list(vars().values()))
