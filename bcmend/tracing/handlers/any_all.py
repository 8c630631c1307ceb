"""``any`` and ``all`` over values of which some are data-dependent.

Dynamo traces the two (torch/_dynamo/polyfills) as loops over their argument, and breaks the graph
at the first item that is a tensor. Here the truths of the items are joined by tensor operations and
taken out as a symbolic truth. Eager execution stops at the item that decides; so the items behind
the first tensor may be computed only if that has no effect and cannot fail, which is tried first in
a graph beside the one being traced.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from functools import partial, reduce
from typing import Any, Final

import torch

from bcmend.dynamo import compat, fx_graph, handlers, slots
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, constant, fake_mode_of
from bcmend.tracing.effects.hazards import hazards_of
from bcmend.tracing.numbers import predicates, scalars
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Kind
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arms import Arm, ArmTrace, trace_arm

#: Of each function, the truth of an item that decides, and how truths are joined.
_SEARCHES: Final = {
    builtins.any: (True, torch.logical_or),
    builtins.all: (False, torch.logical_and),
}


@handlers.method(
    compat.PolyfilledFunctionVariable, methods.CALL_FUNCTION, "`any` and `all` over tensors"
)
def _call_function(call: Call) -> Answer:
    """Answer ``any(...)`` and ``all(...)``."""
    function, (args, kwargs) = call.owner.fn, call.args
    is_search = function in _SEARCHES and len(args) == 1 and not kwargs
    if not is_search or not capture_mode.in_mended_code(call.tx):
        return PASS
    return _answer(call.tx, *_SEARCHES[function], args[0].realize())


def _answer(tx: compat.Tracer, sought: bool, join: Any, iterable: Value) -> Answer:
    if not _can_be_evaluated(tx, iterable, sought):
        return PASS
    truths = []
    for item in _items(tx, iterable):
        known = _known_truth(item)
        if known is sought:
            return constant(sought)
        if known is None:
            truths.append(predicates.as_predicate(tx, item))
    return scalars.take(tx, reduce(partial(fx_graph.function, tx, join), truths)) or PASS


def _can_be_evaluated(tx: compat.Tracer, iterable: Value, sought: bool) -> bool:
    """Return whether items are data-dependent, and all can be computed though the first decides."""
    found: list[Value] = []

    def evaluate(tracer: Any) -> Value:
        for item in _items(tx, iterable):
            found.append(item)
            if _known_truth(item) is sought:
                break
        return constant(None)

    target = torch.ops.higher_order.cond
    arm = Arm(iterable, (compat.TupleVariable([iterable]),), evaluate)
    put_slots_back = slots.remember(tx.output)
    trace = trace_arm(tx, target, arm, lambda: record_builder.open_arm(tx))
    put_slots_back()  # what is evaluated for good is traced once more
    unknown = [item for item in found if not predicates.is_data_dependent(item)]
    return (
        len(unknown) < len(found)
        and all(_known_truth(item) is not None for item in unknown)
        and isinstance(trace, ArmTrace)
        and _is_harmless(tx, trace)
    )


def _is_harmless(tx: compat.Tracer, trace: ArmTrace) -> bool:
    if trace.effects or any(each.kind is not Kind.CANARY for each in trace.records):
        return False
    if not iterators.end_here(tx, list(trace.effects.consumed), []):
        return False
    hazards = hazards_of(trace.graph.nodes, fake_mode_of(tx), tx.output.nn_modules)
    return not (hazards.partial or hazards.random)


def _items(tx: compat.Tracer, iterable: Value) -> Iterator[Value]:
    iterator = compat.VariableTracker.build(tx, iter).call_function(tx, [iterable], {})
    while True:
        try:
            item = iterator.next_variable(tx)
        except StopIteration:
            return
        except compat.ObservedUserStopIteration:
            compat.handle_observed_exception(tx)
            return
        yield item.realize()


def _known_truth(item: Value) -> bool | None:
    return bool(item.as_python_constant()) if item.is_python_constant() else None
