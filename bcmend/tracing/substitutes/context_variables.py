"""``ContextVar.get``, ``set`` and ``reset`` in the graph.

What a variable holds when the call begins is read where Dynamo reads everything else, with a guard
on it. What the call sets is known while it is traced; a record sets it when the graph has run, in
the order of all other effects, and another one resets it, with the token that the first one got. So
what remains set is there after the call, and what its output shows is as in eager execution.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from bcmend.delivery import records
from bcmend.dynamo import compat, values
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import containers, objects
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.substitutes.dispatch import Call, answers_to, require_its_place, unequal


class _Token(compat.VariableTracker):
    """What ``set`` returns: only good for ``reset``."""

    def __init__(self, variable: Any, before: Any, place: Value, **more: Any) -> None:
        super().__init__(**more)
        self.variable, self.before, self.place = variable, before, place
        self.is_used = False


#: What the call being traced has set, by the identity of the variable.
_SET: Final[Slot[dict[int, Value]]] = Slot(dict, rolls_back=True)


def _variable(call: Call) -> Any:
    """Return the variable itself."""
    value = objects.object_held(call.owner)
    if type(value) is not ContextVar or call.owner.source is None:
        raise unequal("the variable is made in the call")
    return value


@answers_to("context get")
def _get(call: Call) -> Answer:
    variable = _variable(call)
    set_here = _SET.of(call.tx.output).get(id(variable))
    if set_here is not None:
        return set_here
    if call.args or call.kwargs:
        raise unequal("a default is given, and nothing guards whether the variable has a value")
    try:
        value = variable.get()
    except LookupError:
        raise unequal("the variable has no value yet") from None
    source = compat.CallFunctionNoArgsSource(compat.AttrSource(call.owner.source, "get"))
    found: Answer = compat.VariableTracker.build(call.tx, value, source).realize()
    return found


@answers_to("context set")
def _set(call: Call) -> Answer:
    variable, known = _variable(call), _SET.of(call.tx.output)
    if len(call.args) != 1 or call.kwargs:
        return PASS
    require_its_place(call.tx)
    (value,) = call.args
    place = containers.new_list([])
    _record(call, records.set_variable, [place, call.owner, value])
    token = _Token(variable, known.get(id(variable)), place)
    known[id(variable)] = value.realize()
    return token


@answers_to("context reset")
def _reset(call: Call) -> Answer:
    variable, known = _variable(call), _SET.of(call.tx.output)
    token = call.args[0].realize() if len(call.args) == 1 and not call.kwargs else None
    if not isinstance(token, _Token) or token.is_used or token.variable is not variable:
        raise unequal("the token is not one that the call has got from this variable")
    require_its_place(call.tx)
    _record(call, records.reset_variable, [token.place, call.owner])
    token.is_used = True
    if token.before is None:
        del known[id(variable)]
    else:
        known[id(variable)] = token.before
    return constant(None)


def _record(call: Call, function: Callable[..., None], inputs: list[Any]) -> None:
    """Have a function of ``records`` called when the graph has run."""
    action = values.function_of(call.tx, function)
    given = compat.TupleVariable(inputs)
    record_builder.append(call.tx, Draft(call.site, action, None, given, Kind.STORE))
