"""Arguments of output that may fail when they are made at the end of the call.

Reads what a statement leaves for later (``rewrite.trials``) and the values that it will be made of.
It is made once when the graph has run, before any of its effects on Python objects are replayed; if
that fails the frame is left by a side exit, and the original code raises what eager execution
raises, where it does, or hands it to a handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch._dynamo.variables import (
    ConstantVariable,
    ConstDictVariable,
    ListVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.lists import RangeVariable, SizeVariable, SliceVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from bcmend.runtime import guards, inline, sinks
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["add"]

_PLAIN: Final = (ConstantVariable, TensorVariable, SymNodeVariable)
_SEQUENCES: Final = (ListVariable, TupleVariable, SizeVariable, RangeVariable, SliceVariable)


def add(
    tx: Any,
    site: LiveSite,
    trial: VariableTracker,
    facts: VariableTracker,
    inputs: VariableTracker,
) -> None:
    """Have the arguments of a statement tried, if they may fail.

    Args:
        tx: the translator of the frame.
        site: the statement.
        trial: a function of ``inputs`` that makes the arguments.
        facts: the positions of those that it uses, and when it can fail: see
            ``rewrite.plan.Trial``.
        inputs: a tuple.

    Raises:
        SiteChanged: they may fail where a handler waits, and cannot be tried.
    """
    used, chance = facts.as_python_constant()
    assert isinstance(inputs, TupleVariable)
    values = [inputs.items[position].realize() for position in used]
    if not all(map(_is_plain, values)) or inline.is_wanted(tx, site, raises=False):
        return
    if all(map(_CANNOT_FAIL.get(chance, _never), values)):
        return
    if not guards.can_exit(tx, site):
        if guards.handled_by_a_caller(tx):
            site.withdraw("handler-in-caller", "an argument may fail")
            raise SiteChanged(restart_reason="bcmend: an argument may fail")
        return
    kept = [
        sinks.snapshot(tx, site, value) if position in used else constant(None)
        for position, value in enumerate(inputs.items)
    ]
    draft = sinks.Draft(site, trial, None, TupleVariable(kept), is_exit=True, is_trial=True)
    sinks.append(tx, draft)


def _is_plain(value: VariableTracker) -> bool:
    """Whether nothing but Python's and torch's own code runs where a text is made of ``value``."""
    value = value.realize()
    if type(value) in _SEQUENCES:
        return all(map(_is_plain, value.items))  # type: ignore[attr-defined]
    if type(value) is ConstDictVariable:
        return all(map(_is_plain, value.items.values()))
    return type(value) in _PLAIN


def _is_usual(value: VariableTracker) -> bool:
    """Whether a tensor has something to be added up, or a mean."""
    if not isinstance(value, TensorVariable):
        return _is_number(value)
    example = example_of(value)
    return example.is_floating_point() and example.numel() != 0


def _is_number(value: VariableTracker) -> bool:
    if isinstance(value, TensorVariable):
        return example_of(value).dim() == 0
    return isinstance(value, (SymNodeVariable, ConstantVariable))


def _never(value: VariableTracker) -> bool:
    return False


_CANNOT_FAIL: Final[dict[int, Callable[[VariableTracker], bool]]] = {1: _is_usual, 2: _is_number}
