"""Code that asks for the state of torch: whether it is compiled, default device, threads.

Some models take another path then. Where that path raises, or breaks the graph, what eager
execution takes may be captured: the code is traced again, and told that it is not compiled.

Dynamo guards the default device, but does not answer what it is. Where modes are on its stack,
nothing is answered here either. It guards the number of threads as well, and traces no call that
sets it.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import effect_tables
from bcmend.dynamo.values import Value, constant
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


@answers_to("threads")
def _number_of_threads(call: ReplacedCall) -> Answer:
    """Answer ``torch.get_num_threads()``."""
    return PASS if call.args or call.kwargs else constant(torch.get_num_threads())
