"""What a case is: two forms of one module, calls of both, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import Module

from corpus.towers.kind import Kind, Layouts


@dataclass(frozen=True, slots=True)
class Size:
    """How large modules and calls are.

    Attributes:
        width: features of a row; a multiple of 16.
        layers: layers of a model.
        rows: tokens, atoms or frames of a sample, about.
    """

    width: int
    layers: int
    rows: int


SMALL: Final = Size(width=16, layers=2, rows=12)
#: So large that a call takes some milliseconds on one CPU core.
LARGE: Final = Size(width=128, layers=3, rows=96)
#: Has numbers out of tensors stay in the graph, and tensors whose sizes the data decide.
_NUMBERS: Final = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


@dataclass(frozen=True, slots=True)
class Case:
    """A pair of modules.

    Attributes:
        name: in small letters.
        source: project and pull request or issue that has the form.
        before: makes the form that breaks the graph.
        fixed: makes the form without the break; it has the same parameters.
        layouts: makes the arguments of calls, at least five, with other data.
        settings: those of ``torch._dynamo.config`` that the fixed form needs.
        same: makes the form that computes all that the old one does, without a break; None where
            the fix does so.
        tolerance: by how much the two forms may differ, which compute in another order.
    """

    name: str
    source: str
    before: Callable[[Size], Module]
    fixed: Callable[[Size], Module]
    layouts: Callable[[Size], Layouts]
    settings: Mapping[str, bool] = field(default_factory=dict)
    same: Callable[[Size], Module] | None = None
    tolerance: float = 1e-5

    @property
    def forms(self) -> tuple[str, ...]:
        """Return the forms that it has: "before", "fixed" and perhaps "same"."""
        return ("before", "fixed") if self.same is None else ("before", "fixed", "same")

    def settings_of(self, form: str) -> Mapping[str, bool]:
        """Return the settings of ``torch._dynamo.config`` with which a form is compiled."""
        return {"before": {}, "fixed": self.settings, "same": _NUMBERS}[form]

    def kind(self, form: str, size: Size = SMALL) -> Kind:
        """Return a form as what is measured."""
        return Kind(self.name, partial(getattr(self, form), size), partial(self.layouts, size))


def drawn(seed: int, *shape: int) -> Tensor:
    """Return normal numbers that are always the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
