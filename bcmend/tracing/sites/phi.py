"""The protocol of values that differ by the arm of a branch that was taken.

A phi is materialised where one tensor, number or container serves for both sides; then it is an
ordinary model of Dynamo's. What is no such thing derives from ``Phi``: a lazy phi, of which both
sides are stored until something reads it; one that is stored to an attribute, where a record puts
the side taken when the graph has run; and a container whose changes are journaled, and made then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bcmend.dynamo.values import Value
from bcmend.tracing.sites.site_table import LiveSite

#: The merged tensors of a branch.
Merged: TypeAlias = Sequence[Value]
#: Makes a value of the merged tensors of a branch.
Build: TypeAlias = Callable[[Merged], Value]
#: Returns a side of a phi as it is now.
Keep: TypeAlias = Callable[[Value], Value]


class Phi:
    """A value that no single model of Dynamo's stands for. Derive it before that model's class."""

    def adopt_into(self, merger: Any, then_side: bool | None) -> Build:
        """Plan to bring the value from an arm into the trace around it.

        ``merger`` is that of the branch; ``then_side`` says for which arm, ``None`` for either.
        """
        raise NotImplementedError

    def as_recorded(self, reader: LiveSite, keep: Keep) -> Value:
        """Return the value for a record of ``reader``; ``keep`` gives each side as it is now."""
        raise NotImplementedError
