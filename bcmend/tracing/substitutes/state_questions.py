"""Code that asks for the state of torch: whether it is compiled, and the default device.

Some models take another path then. Where that path raises, or breaks the graph, what eager
execution takes may be captured: the code is traced again, and told that it is not compiled.

Dynamo guards the default device, but does not answer what it is. Where modes are on its stack,
nothing is answered here either.

The signature of a method of an object that the call has made (``Module.__setattr__`` asks for that
of ``register_buffer``) is that of its function, which Dynamo takes apart without knowing where it
is from.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import effect_tables, objects
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant, global_of, object_behind
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import body_states
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to

_PURPOSE: Final = "whether code is being compiled"


def _whether_compiled(
    before: Any, called: Any, tx: compat.Tracer, *given: Any, **named: Any
) -> Value | None:
    policy = frames.mark_over(tx)
    chosen = "compiled" if policy is None or tx.export else policy.compiling
    if chosen == "auto":
        state = body_states.state_of(tx.output.root_tx.f_code)
        state.asks_whether_compiled = True
        is_told = state.is_body and not state.holds(Claim.COMPILED_PATH)
    else:
        is_told = chosen == "eager"
    if is_told:
        return constant(False)
    found: Value | None = None if before is None else before(called, tx, *given, **named)
    return found


for _question in (torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling):
    hooks.row(_question, _PURPOSE)(_whether_compiled)


@hooks.row(torch.get_default_device, "the default device")
def _default_device(
    before: Any, called: Any, tx: compat.Tracer, *given: Any, **named: Any
) -> Value | None:
    if not given and not named and not effect_tables.has_function_modes(tx):
        return constant(torch.get_default_device())
    found: Value | None = None if before is None else before(called, tx, *given, **named)
    return found


_SIGNATURES: Final[Slot[dict[FunctionType, inspect.Signature]]] = Slot(dict, rolls_back=False)


@answers_to("signature")
def _signature(call: ReplacedCall) -> Answer:
    """Answer ``inspect.signature(f)`` of a method of what the call has made."""
    if len(call.args) != 1 or call.kwargs:
        return PASS
    asked = call.args[0].realize()
    is_method = objects.owner_of_method(asked) is not None and asked.source is None
    function = object_behind(asked, "fn") if is_method else None
    if type(function) is not FunctionType:
        return PASS
    known = _SIGNATURES.of(call.tx.output)
    if function not in known:
        known[function] = inspect.signature(function.__get__(object()))
    found = known[function]
    answer: Answer = Value.build(call.tx, found, global_of(call.tx.output, found))
    return answer
