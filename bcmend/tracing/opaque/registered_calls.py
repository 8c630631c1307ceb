"""Calls that the user has registered as opaque: each is one operator of the graph.

The operator is that of ``operator``, which calls a function by its name. What it gives is known
from the function for fake tensors that was registered with it.
"""

from __future__ import annotations

from torch import Tensor

from bcmend.dynamo import compat, frames
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.tracing.opaque import numbered_calls, operator
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal


@answers_to("opaque")
def _opaque(call: ReplacedCall) -> Answer:
    """Have the graph call what is called."""
    tx, fake = call.tx, call.row.replacement
    if not callable(call.function) or not callable(fake):
        return PASS
    if tx.export or compat._is_any_autocast_enabled():
        raise unequal("the graph is exported, or autocast is on")
    if frames.is_in_a_block(tx):
        raise unequal("what it raises in the graph, a handler of the program does not get")
    given = [] if call.owner is None else [call.owner]
    name = operator.registered(call.function, fake)
    try:
        written = numbered_calls.call_of(name, [*given, *call.args], call.kwargs)
    except operator.NotWritten as reason:
        raise unequal(f"an argument is a {reason}") from None
    found = numbered_calls.results_of(tx, written)
    if not found:
        raise unequal("its results are not new tensors, of one form for all numbers")
    recorded = numbered_calls.is_recorded(found[0])
    items = numbered_calls.emitted(tx, written, is_recorded=recorded)
    if isinstance(found[0], list):
        return compat.ListVariable(items, mutation_type=compat.ValueMutationNew())
    result: Answer = items[0] if isinstance(found[0], Tensor) else compat.TupleVariable(items)
    return result
