"""Code that asks whether it is being compiled.

Some models take another path then. Where that path raises, or breaks the graph, what eager
execution takes may be captured: the code is traced again, and told that it is not compiled.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.values import Value, constant
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import body_states

_PURPOSE: Final = "whether code is being compiled"


def _answer(before: Any, called: Any, tx: compat.Tracer, *given: Any, **named: Any) -> Value | None:
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
    hooks.row(_question, _PURPOSE)(_answer)
