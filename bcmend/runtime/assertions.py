"""``torch._assert`` of a condition that only the data can tell, as a side exit.

Stock Dynamo puts the call into the graph, where it asks for the truth of a tensor and fails. Takes
a place in its table of handlers for torch's functions (torch/_dynamo/variables/torch.py).
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable, TorchInGraphFunctionVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import guards, lower, scalars
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.sites import LiveSite

__all__ = ["install"]

#: Stands for all of these calls; in no report, since no code was rewritten for it.
_SITE: Final = LiveSite("torch._assert", "guard", torch._assert.__code__)

_DYNAMOS: Final = TorchInGraphFunctionVariable._get_handlers()[torch._assert]


def _assert(called: Any, tx: Any, condition: VariableTracker, *message: Any, **named: Any) -> Any:
    known = condition.realize()
    if not (scalars.may_take(tx) and _is_data(known) and guards.can_exit(tx, _SITE)):
        return _DYNAMOS(called, tx, condition, *message, **named)
    predicate = guards.predicate_of(tx, _SITE, known)
    guards.make_side_exit(tx, _SITE, lower.negated(tx, predicate), is_only_way=False)
    return constant(None)


def _is_data(condition: VariableTracker) -> bool:
    """Whether only the data can tell the truth of a condition, which has one."""
    if isinstance(condition, SymNodeVariable):
        return bool(free_unbacked_symbols(condition.sym_num))
    return type(condition) is TensorVariable and example_of(condition).numel() == 1


def install() -> None:
    """Let Dynamo ask here first."""
    TorchInGraphFunctionVariable._get_handlers()[torch._assert] = _assert
