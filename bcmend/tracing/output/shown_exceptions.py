"""Output that shows exceptions which the traced code has raised.

Produces a record that is delivered with these exceptions as they were (``exception_flow``). Where
the trace does not know what eager execution would show, the site is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable

from bcmend.delivery import grad_fn_label, tracebacks
from bcmend.dynamo import compat, frames, snapshots, values
from bcmend.dynamo.models import exceptions, objects
from bcmend.dynamo.values import Value, constant, example_of
from bcmend.tracing.output import exception_flow
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite


def as_of_now(
    tx: compat.Tracer, site: LiveSite, action: Value, inputs: Value, *, shows_tracebacks: bool
) -> tuple[Value, Value]:
    """Return action and inputs of a record that is delivered with its exceptions as they are now.

    With ``shows_tracebacks`` the statement may show where exceptions were, and which one is being
    handled; else it shows no more than their text.
    """
    given = [each for each in _held_by(tx, inputs) if isinstance(each, compat.ExceptionVals)]
    handled = exceptions.handled_in(tx)[-1:] if shows_tracebacks else []
    if not exception_flow.has_raised(tx):
        return action, inputs
    rows = attempt(lambda: _shown(tx, [*handled, *given], with_tracebacks=shows_tracebacks))
    if isinstance(rows, Refusal):
        falsify(site.unmendable(rows.slug, rows.detail))
    if not rows:
        return action, inputs
    function = values.function_of(tx, tracebacks.call_handling)
    return function, compat.TupleVariable(
        [compat.TupleVariable(rows), constant(bool(handled)), action, inputs]
    )


def _shown(tx: compat.Tracer, errors: list[Value], *, with_tracebacks: bool) -> list[Value]:
    """Return what is shown of exceptions beside their texts, which have to be known."""
    _require_texts(tx, errors)
    return _rows(tx, errors) if with_tracebacks else []


def _held_by(tx: compat.Tracer, value: Value) -> Iterable[Value]:
    found: dict[Value, None] = {}
    snapshots.visit(
        lambda each: found.setdefault(each.unwrap()), [value], tx.output.side_effects, lazily=True
    )
    return found


def _has_history(value: Value) -> bool:
    if not isinstance(value, compat.TensorVariable):
        return False
    return grad_fn_label.name_of(example_of(value)) is not None


def _require_texts(tx: compat.Tracer, errors: Iterable[Value]) -> None:
    for error in errors:
        known = exception_flow.known_of(tx, error)
        if known is not None and not known.has_known_text:
            detail = "the text of an exception that no statement of the program has raised"
            raise Refusal("output-shape", detail)
        if known is not None and any(map(_has_history, _held_by(tx, error))):
            raise Refusal("output-shape", "an exception holds a tensor with a history")


def _rows(tx: compat.Tracer, errors: Iterable[Value]) -> list[Value]:
    """Return the rows of ``call_handling`` for exceptions and for those that they show too."""
    rows: dict[Value, Value] = {}
    waiting = list(errors)
    while waiting:
        error = waiting.pop(0)
        known = exception_flow.known_of(tx, error)
        if error in rows or known is None:  # one that was never raised shows nothing else
            continue
        if not known.is_exact:
            raise Refusal("output-shape", "an exception came through code that is not traced")
        context, cause, hides = (objects.attribute_of(tx, error, name) for name in _RELATIONS)
        route = tracebacks.Route(known.entries)
        frames.keep_with(tx, route)
        number = constant(tracebacks.ROUTES.add(route))
        rows[error] = compat.TupleVariable([error, number, context, cause, hides])
        shown = [cause] if not cause.is_constant_none() else [context]
        is_shown = cause is shown[0] or not hides.as_python_constant()
        waiting += [each for each in shown if is_shown and not each.is_constant_none()]
        _require_texts(tx, waiting)
    return list(rows.values())


_RELATIONS = ("__context__", "__cause__", "__suppress_context__")
