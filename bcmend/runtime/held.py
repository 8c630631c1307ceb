"""Who else has a value: what holds it, and whether the program has a name for it."""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime import frames

__all__ = ["has_a_name", "holds"]


def holds(values: Any, sought: VariableTracker) -> bool:
    """Whether a value is among ``values``, or in what they hold."""
    found: list[VariableTracker] = []

    def note(variable: VariableTracker) -> None:
        if variable is sought:
            found.append(variable)

    VariableTracker.visit(note, values)
    return bool(found)


def has_a_name(tx: Any, value: VariableTracker) -> bool:
    """Whether a variable or an attribute may name ``value``, or something that holds it."""
    stores = tx.output.side_effects.store_attr_mutations.values()
    named = [each for stored in stores for each in stored.values()]
    return holds([*named, *frames.named(tx)], value)
