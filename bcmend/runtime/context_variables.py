"""``ContextVar.get``, ``set`` and ``reset`` in the graph.

What a variable holds when the call begins is read where Dynamo reads everything else, with a guard
on it. What the call sets is known while it is traced; a record sets it when the graph has run, in
the order of all other effects, and another one resets it, with the token that the first one got. So
what is left set is there after the call, and what the call's output shows is what it showed.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from torch._dynamo.source import AttrSource, CallFunctionNoArgsSource
from torch._dynamo.variables import ListVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker

from bcmend.runtime import records, scalars, sinks
from bcmend.runtime.merge import constant
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sinks import Draft
from bcmend.runtime.substitution import Call, Refused, answers_to, require_always

__all__: list[str] = []


class _Token(VariableTracker):
    """What ``set`` returns: only good for ``reset``."""

    def __init__(self, variable: Any, before: Any, place: VariableTracker, **more: Any) -> None:
        super().__init__(**more)
        self.variable, self.before, self.place = variable, before, place
        self.is_used = False


def _held(tx: Any) -> dict[int, VariableTracker]:
    """Return what the call being traced has set, by the identity of the variable."""
    return kept(tx.output, "context_variables", dict)


def _variable(call: Call) -> Any:
    """Return the variable itself."""
    value = getattr(call.owner, "value", None)
    if type(value) is not ContextVar or call.owner is None or call.owner.source is None:
        raise Refused("the variable is made in the call")
    return value


@answers_to("context get")
def _get(call: Call) -> VariableTracker | None:
    variable = _variable(call)
    set_here = _held(call.tx).get(id(variable))
    if set_here is not None:
        return set_here
    if call.args or call.kwargs:
        raise Refused("a default is given, and nothing guards whether the variable has a value")
    try:
        value = variable.get()
    except LookupError:
        raise Refused("the variable has no value yet") from None
    assert call.owner is not None and call.owner.source is not None
    source = CallFunctionNoArgsSource(AttrSource(call.owner.source, "get"))
    held: VariableTracker = VariableTracker.build(call.tx, value, source).realize()
    return held


@answers_to("context set")
def _set(call: Call) -> VariableTracker | None:
    tx: Any = call.tx
    variable = _variable(call)
    if len(call.args) != 1 or call.kwargs:
        return None
    _require_a_place(tx)
    (value,) = call.args
    token = _Token(
        variable,
        _held(tx).get(id(variable)),
        ListVariable([], mutation_type=ValueMutationNew()),
    )
    _record(call, records.set_variable.__name__, [token.place, call.owner, value])
    _held(tx)[id(variable)] = value.realize()
    return token


@answers_to("context reset")
def _reset(call: Call) -> VariableTracker | None:
    tx: Any = call.tx
    variable = _variable(call)
    token = call.args[0].realize() if len(call.args) == 1 and not call.kwargs else None
    if not isinstance(token, _Token) or token.is_used or token.variable is not variable:
        raise Refused("the token is not one that the call has got from this variable")
    _require_a_place(tx)
    _record(call, records.reset_variable.__name__, [token.place, call.owner])
    token.is_used = True
    if token.before is None:
        del _held(tx)[id(variable)]
    else:
        _held(tx)[id(variable)] = token.before
    return constant(None)


def _require_a_place(tx: Any) -> None:
    if not sinks.is_open(tx) or not scalars.may_take(tx):
        raise Refused("the graph may break, or is exported")
    require_always(tx, "called")


def _record(call: Call, name: str, inputs: list[Any]) -> None:
    """Have a function of ``records`` called when the graph has run."""
    action = sinks.function_of_records(call.tx, name)
    sinks.append(call.tx, Draft(call.site, action, None, TupleVariable(inputs)))
