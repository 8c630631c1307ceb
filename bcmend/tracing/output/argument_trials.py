"""Trials of output arguments that may fail when they are made at the end of the call.

They are made once when the graph has run, before its effects on Python objects are replayed. If
that fails, the frame is left by a side exit, and the original code raises what eager raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bcmend.dynamo import compat
from bcmend.dynamo.values import Value, constant, example_of
from bcmend.rewrite.sites.plan import Fails
from bcmend.tracing.output import deferred_exceptions, record_builder
from bcmend.tracing.output.record_builder import Kind
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites.site_table import LiveSite

_PLAIN: Final = (compat.ConstantVariable, compat.TensorVariable, compat.SymNodeVariable)
_SEQUENCES: Final = (
    compat.ListVariable,
    compat.TupleVariable,
    compat.SizeVariable,
    compat.RangeVariable,
    compat.SliceVariable,
)


def try_arguments(
    tx: compat.Tracer, site: LiveSite, trial: Value, facts: Value, inputs: Value
) -> None:
    """Have the arguments of a statement tried, if they may fail.

    ``trial`` is a function of ``inputs`` that makes them; ``facts`` are the positions of the inputs
    that it uses, and when it can fail (``rewrite.sites.plan.Trial``).
    """
    used, fails = facts.as_python_constant()
    assert isinstance(inputs, compat.TupleVariable)
    values = [inputs.items[position].realize() for position in used]
    if not all(map(_is_plain, values)):
        return
    cannot_fail = _CANNOT_FAIL.get(fails)
    if all(cannot_fail is not None and cannot_fail(value) for value in values):
        return
    if not deferred_exceptions.can_exit(tx, site):
        if deferred_exceptions.handled_by_a_caller(tx) or deferred_exceptions.handled_between_calls(
            tx
        ):
            falsify(site.unmendable("handler-in-caller", "an argument may fail"))
        return
    stored = [
        record_builder.snapshot(tx, site, value) if position in used else constant(None)
        for position, value in enumerate(inputs.items)
    ]
    given = compat.TupleVariable(stored)
    draft = record_builder.Draft(site, trial, None, given, Kind.TRIAL)
    record_builder.append(tx, draft)


def _is_plain(value: Value) -> bool:
    """Return whether only Python's and torch's own code runs where ``value`` is formatted."""
    value = value.realize()
    if type(value) in _SEQUENCES:
        return all(map(_is_plain, value.items))  # type: ignore[attr-defined]
    if type(value) is compat.ConstDictVariable:
        return all(map(_is_plain, value.items.values()))
    return type(value) in _PLAIN


def _is_usual(value: Value) -> bool:
    """Return whether a value is a number or a tensor that has a mean."""
    if not isinstance(value, compat.TensorVariable):
        return _is_number(value)
    example = example_of(value)
    return example.is_floating_point() and example.numel() != 0


def _is_number(value: Value) -> bool:
    if isinstance(value, compat.TensorVariable):
        return example_of(value).dim() == 0
    return isinstance(value, (compat.SymNodeVariable, compat.ConstantVariable))


#: For which values the arguments of a trial cannot fail.
_CANNOT_FAIL: Final[dict[int, Callable[[Value], bool]]] = {
    Fails.UNLESS_USUAL: _is_usual,
    Fails.UNLESS_NUMBERS: _is_number,
}
