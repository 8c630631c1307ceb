"""``any`` and ``all`` over values of which some are known to the data alone.

Dynamo traces the two as loops over their argument, and stops at the first item that is a tensor. In
mended code, while a call is captured whole, the truths of the items are joined by tensor operations
and taken out as a symbolic truth (``bcmend.runtime.scalars``). Eager execution stops at the item
that decides, so that the items behind the first tensor may only be drawn in advance where drawing
them has no effect and cannot fail. That is tried first, beside the graph.

Extends Dynamo's model of the functions that it replaces by Python code (torch/_dynamo/polyfills).
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch._dynamo import exc
from torch._dynamo.variables import PolyfilledFunctionVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import iterators, lower, scalars, sinks
from bcmend.runtime.arms import Arm, ArmTrace, trace_arm
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.operations import hazards_of

__all__ = ["install"]

#: Of each function, the truth of an item that decides, and how truths are joined.
_SEARCHES: Final = {
    builtins.any: (True, torch.logical_or),
    builtins.all: (False, torch.logical_and),
}


def _answer(tx: Any, function: Any, iterable: VariableTracker) -> VariableTracker | None:
    """Return the answer as a truth that Dynamo knows, or ``None`` to leave the call to Dynamo."""
    sought, join = _SEARCHES[function]
    if not _can_be_drawn(tx, function, iterable, sought):
        return None
    truths: list[TensorVariable] = []
    for item in _items(tx, iterable):
        known = _known_truth(item)
        if known is sought:
            return constant(sought)
        if known is None:
            truths.append(lower.as_predicate(tx, item))
    joined, *others = truths
    for each in others:
        joined = _joined(tx, join, joined, each)
    return scalars.take(tx, joined)


def _can_be_drawn(tx: Any, function: Any, iterable: VariableTracker, sought: bool) -> bool:
    """Whether items depend on the data, and all can be drawn though the first may decide."""
    drawn: list[VariableTracker] = []

    def draw(tracer: Any) -> VariableTracker:
        for item in _items(tx, iterable):
            drawn.append(item)
            if _known_truth(item) is sought:
                break
        return constant(None)

    target = torch.ops.higher_order.cond
    arm = Arm(iterable, (TupleVariable([iterable]),), draw)
    trace = trace_arm(tx, target, arm, lambda: sinks.open_arm(tx))
    if not any(_depends_on_data(item) for item in drawn):
        return False
    if not all(_depends_on_data(item) or _known_truth(item) is not None for item in drawn):
        return False
    return isinstance(trace, ArmTrace) and _is_harmless(tx, trace)


def _is_harmless(tx: Any, trace: ArmTrace) -> bool:
    if trace.effects or trace.records:
        return False
    if not iterators.end_here(tx, list(trace.effects.consumed), []):
        return False
    hazards = hazards_of(trace.graph.nodes, tx.fake_mode, tx.output.nn_modules)
    return not (hazards.partial or hazards.random)


def _items(tx: Any, iterable: VariableTracker) -> Iterator[VariableTracker]:
    iterator = VariableTracker.build(tx, iter).call_function(tx, [iterable], {})
    while True:
        try:
            item = iterator.next_variable(tx)
        except (StopIteration, exc.ObservedUserStopIteration) as error:
            if isinstance(error, exc.ObservedUserStopIteration):
                exc.handle_observed_exception(tx)
            return
        yield item.realize()


def _depends_on_data(item: VariableTracker) -> bool:
    if isinstance(item, SymNodeVariable):
        return bool(free_unbacked_symbols(item.sym_num))
    return type(item) is TensorVariable and example_of(item).numel() == 1


def _known_truth(item: VariableTracker) -> bool | None:
    return bool(item.as_python_constant()) if item.is_python_constant() else None


def _joined(tx: Any, join: Any, one: TensorVariable, other: TensorVariable) -> TensorVariable:
    proxies = (one.as_proxy(), other.as_proxy())
    result = wrap_fx_proxy(tx, tx.output.create_proxy("call_function", join, proxies, {}))
    assert isinstance(result, TensorVariable)
    return result


_DYNAMOS_CALL: Final = PolyfilledFunctionVariable.call_function


def _call_function(
    variable: PolyfilledFunctionVariable,
    tx: Any,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    if variable.fn in _SEARCHES and len(args) == 1 and not kwargs and scalars.may_take(tx):
        answer = _answer(tx, variable.fn, args[0].realize())
        if answer is not None:
            return answer
    return _DYNAMOS_CALL(variable, tx, args, kwargs)


def install() -> None:
    """Let Dynamo ask here first."""
    PolyfilledFunctionVariable.call_function = _call_function  # type: ignore[assignment, method-assign]
