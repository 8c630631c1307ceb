"""What is traced in place of calls, as it is registered by the user or in the table."""

from __future__ import annotations

from bcmend.dynamo import compat, frames
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import objects, translators
from bcmend.dynamo.values import global_of
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal


@answers_to("call")
def _call(call: ReplacedCall) -> Answer:
    """Trace a call of the replacement; inside of that, the callable is what it was."""
    tx, replacement = call.tx, call.row.replacement
    code = getattr(replacement, "__code__", None)
    if code is not None and any(frame.f_code is code for frame in frames.being_traced(tx)):
        return PASS
    is_bound = getattr(call.function, "__self__", None) is not None  # registered as of one object
    given = [] if call.owner is None or is_bound else [call.owner]
    for each in call.row.parts:
        translators.have_inlined(tx, each, "Python in place of C")
    source = global_of(tx.output, replacement)
    function = compat.VariableTracker.build(tx, replacement, source).realize()
    if objects.is_skipped(function):
        raise unequal("Dynamo does not trace the replacement either")
    result: Answer = function.call_function(tx, [*given, *call.args], call.kwargs)
    return result
