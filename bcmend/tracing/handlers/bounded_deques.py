"""Deques from before the call that hold a limited number of items.

Dynamo has no length of a deque that it is given, and code that it writes for the new contents puts
them into the deque itself, which drops items at its left end. That is right for what is appended at
the right end alone. The model of such a deque gets its length here, so that its contents are right
at any moment; written back, they are no more than the deque holds.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods

UNTIL: Final = {
    "test_a_copy_of_a_limited_queue_has_no_limit": "2.15",
}
_PURPOSE: Final = "the length that a deque from before the call is limited to"


def _track(inner: Any, self: compat.SideEffects, item: Any, variable: Any, **named: Any) -> Any:
    """Track an object; a deque that is limited has its limit in the model, under a guard."""
    if isinstance(item, deque) and isinstance(variable, compat.DequeVariable):
        _limit(item, variable)
    return inner(self, item, variable, **named)


for _name in (methods.TRACK_OBJECT, methods.TRACK_MUTABLE):
    hooks.around(compat.SideEffects, _name, _PURPOSE, gate=None)(_track)


def _limit(item: deque[Any], variable: Any) -> None:
    containers.limit(variable, item)
    if variable.source is not None:
        source = compat.AttrSource(variable.source, "maxlen")
        compat.install_guard(source.make_guard(compat.GuardBuilder.CONSTANT_MATCH))


@hooks.around(compat.SideEffects, methods.WRITE_BACK, _PURPOSE, gate=None)
def _write_back(inner: Any, self: compat.SideEffects, *arguments: Any, **named: Any) -> Any:
    """Write the code for new contents; Dynamo has none for deques of a known limit."""
    for each in self.id_to_variable.values():
        is_older = isinstance(each.mutation_type, compat.ValueMutationExisting)
        if is_older and isinstance(each, compat.DequeVariable) and containers.is_limited(each):
            containers.limit(each, deque())
    return inner(self, *arguments, **named)


@handlers.method(compat.DequeVariable, methods.CALL_METHOD, "copies of deques have their limit")
def _copied(call: Call) -> Answer:
    """Answer ``queue.copy()``; the copy of Dynamo's model is of any length."""
    if call.args[:1] not in (("copy",), ("__copy__",)) or call.args[1] or call.args[2]:
        return PASS
    return containers.new_deque_like(call.owner, list(call.owner.items))
