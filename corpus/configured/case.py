"""What one model of a list is: a class of transformers, a small configuration and one call.

A leaf. Classes are named, not imported, so that a list can be read without the version of
transformers that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import transformers
from torch import Tensor
from torch.nn import Module

Inputs = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """One model, which is to be one graph.

    ``name``: its class. ``options``: what makes its configuration, of the class ``configuration``;
    a mapping in them is a configuration inside that one. ``inputs``: makes the arguments of one
    call, drawing from torch's generator. ``waits``: for each mode ("eval", "train") in which it is
    no single graph yet, why.
    """

    name: str
    configuration: str
    options: Mapping[str, Any]
    inputs: Callable[[], Inputs]
    waits: Mapping[str, str]

    def build(self) -> Module:
        """Make the module, drawing its weights from torch's generator."""
        configuration = getattr(transformers, self.configuration)(**self.options)
        model: Module = getattr(transformers, self.name)(configuration)
        return model


def case(
    name: str,
    configuration: str,
    options: Mapping[str, Any],
    inputs: Callable[[], Inputs],
    **waits: str,
) -> Case:
    """Return one model; a keyword says of a mode why it is no single graph yet."""
    return Case(name, configuration, options, inputs, waits)
