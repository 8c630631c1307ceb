"""Output that shows exceptions which the traced code has raised.

Reads what a record is made of and what the trace knows of the exceptions among that
(``raised``), and of the one that is being handled; produces a record that is delivered with these
as they were. Where the trace does not know what eager execution would show, the statement is left
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch._dynamo.source import AttrSource
from torch._dynamo.symbolic_convert import ExceptionVals
from torch._dynamo.variables import TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime import histories, raised, snapshots, tracebacks
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["as_of_now"]


class _NotKnown(Exception):
    """What an exception shows is not known while the call is traced."""


def as_of_now(
    tx: Any,
    site: LiveSite,
    action: VariableTracker,
    inputs: VariableTracker,
    *,
    shows_tracebacks: bool,
) -> tuple[VariableTracker, VariableTracker]:
    """Return action and inputs of a record that is delivered with its exceptions as they are now.

    Args:
        tx: the translator of the frame.
        site: the output statement.
        action, inputs: what the record is made of so far.
        shows_tracebacks: whether the statement may show where exceptions were, and which one is
            being handled; else it shows no more than their text.
    """
    if not raised.has_raised(tx):
        return action, inputs
    given = list(_exceptions_in(tx, inputs))
    handled = [tx.exn_vt_stack[-1]] if shows_tracebacks and len(tx.exn_vt_stack) else []
    try:
        _require_texts(tx, [*handled, *given])
        if not shows_tracebacks:
            return action, inputs
        rows = _rows(tx, [*handled, *given])
    except _NotKnown as reason:
        site.withdraw("output-shape", str(reason))
        raise SiteChanged(restart_reason="bcmend: an exception is not known") from None
    if not rows:
        return action, inputs
    source = AttrSource(tx.import_source(tracebacks.__name__), tracebacks.call_handling.__name__)
    function: VariableTracker = VariableTracker.build(tx, tracebacks.call_handling, source)
    return function, TupleVariable([TupleVariable(rows), constant(bool(handled)), action, inputs])


def _exceptions_in(tx: Any, inputs: VariableTracker) -> Iterator[VariableTracker]:
    return (each for each in _held_by(tx, inputs) if isinstance(each, ExceptionVals))


def _held_by(tx: Any, value: VariableTracker) -> Iterable[VariableTracker]:
    found: dict[VariableTracker, None] = {}
    snapshots.visit(lambda each: found.setdefault(each.unwrap()), [value], tx.output.side_effects)
    return found


def _has_history(value: VariableTracker) -> bool:
    return isinstance(value, TensorVariable) and histories.name_of(example_of(value)) is not None


def _require_texts(tx: Any, errors: Iterable[VariableTracker]) -> None:
    for error in errors:
        known = raised.known_of(tx, error)
        if known is not None and not known.has_known_text:
            raise _NotKnown("the text of an exception that no statement of the program has raised")
        if known is not None and any(map(_has_history, _held_by(tx, error))):
            raise _NotKnown("an exception holds a tensor with a history")


def _rows(tx: Any, errors: Iterable[VariableTracker]) -> list[VariableTracker]:
    """Return what ``call_handling`` is told of exceptions and of those that they show too."""
    rows: dict[VariableTracker, VariableTracker] = {}
    waiting = list(errors)
    while waiting:
        error = waiting.pop(0)
        known = raised.known_of(tx, error)
        if error in rows or known is None:  # one that was never raised shows nothing else
            continue
        if not known.is_exact:
            raise _NotKnown("an exception came through code that is not traced")
        context, cause, hides = (error.var_getattr(tx, name) for name in _RELATIONS)
        number = constant(tracebacks.number_of(known.entries))
        rows[error] = TupleVariable([error, number, context, cause, hides])
        shown = [cause] if not cause.is_constant_none() else [context]
        is_shown = cause is shown[0] or not hides.as_python_constant()
        waiting += [each for each in shown if is_shown and not each.is_constant_none()]
        _require_texts(tx, waiting)
    return list(rows.values())


_RELATIONS = ("__context__", "__cause__", "__suppress_context__")
