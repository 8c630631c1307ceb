"""Models of any number of layers, each layer a class with a function of its own.

The source of every layer is made here and compiled anew for each model, so that no two models share
a code object: patching one says nothing about, and prepares nothing for, the next.
"""

from __future__ import annotations

import sys
from enum import Enum
from itertools import count
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import Module, Sequential

WIDTH = 16


class Form(Enum):
    """How a layer says that its output depends on the value of a tensor."""

    BRANCH = """\
        if y.sum() > {number}:
            y = y * 2.0 + {number}.0
        else:
            y = y - {number}.0
"""
    BY_HAND = """\
        y = torch.where(y.sum() > {number}, y * 2.0 + {number}.0, y - {number}.0)
"""


_LAYER = """\
class Layer{number}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear({width}, {width})

    def forward(self, x):
        y = self.linear(x)
{choice}        return torch.relu(y)
"""

_serial_numbers = count()


def generated_model(layers: int, form: Form = Form.BRANCH) -> Module:
    """A sequence of `layers` freshly generated layers in eval mode, with weights from seed 0."""
    torch.manual_seed(0)
    serial = next(_serial_numbers)
    made: list[Module] = []
    for number in range(layers):
        choice = form.value.format(number=number)
        source = _LAYER.format(number=number, width=WIDTH, choice=choice)
        module = module_of(f"bench_model_{serial}_layer_{number}", source)
        made.append(vars(module)[f"Layer{number}"]())
    return Sequential(*made).eval()


def module_of(name: str, source: str, **names: object) -> ModuleType:
    """Return a new module of that source, in which `torch` and `names` are known."""
    module = ModuleType(name)
    # Dynamo imports the modules of the functions that it inlines, so each has to be known.
    sys.modules[name] = module
    vars(module).update(names, torch=torch)
    exec(compile(source, f"<{name}>", "exec"), vars(module))
    return module


def generated_input() -> Tensor:
    """One input of a generated model, float32 of shape (1, WIDTH)."""
    return torch.linspace(-1.0, 1.0, WIDTH).reshape(1, WIDTH)
