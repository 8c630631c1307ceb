"""What one kind of code is: a module, calls of it in several layouts, and the same by hand.

A layout is how many images, clips or texts a call has, and of which sizes. By hand, the numbers
that the module reads out of its arguments are read before the call, and handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module

Inputs = dict[str, Any]
Layouts = Sequence[Inputs]


class Tower(Module):
    """A module that reads numbers out of tensors.

    A subclass with ``by_hand`` has ``numbers`` too: from the arguments of a call, without
    gradients, those of ``by_hand``, which computes what ``forward`` computes. What does not fit is
    an exception of ``numbers`` then.
    """

    def numbers(self, **inputs: Any) -> Inputs:
        """Return the arguments of ``by_hand``, for those of a call."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of code.

    Attributes:
        name: that of its class, in small letters.
        make: makes the module, drawing its weights from torch's generator.
        layouts: makes the arguments of calls, at least five, always the same ones.
    """

    name: str
    make: Callable[[], Module]
    layouts: Callable[[], Layouts]

    def build(self, seed: int = 0) -> Module:
        """Make the module from a seed."""
        torch.manual_seed(seed)
        return self.make()

    @property
    def has_by_hand(self) -> bool:
        """Return whether numbers can be handed in."""
        return hasattr(self.make, "by_hand")


def kind(tower: type[Module], layouts: Callable[[], Layouts]) -> Kind:
    """Return the kind of a class, with the name of it: RowMeans is row-means."""
    letters = (f"-{each.lower()}" if each.isupper() else each for each in tower.__name__)
    return Kind("".join(letters).removeprefix("-"), tower, layouts)
