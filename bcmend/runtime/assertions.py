"""``torch._assert`` and ``torch._check*`` of a condition that only the data can tell.

Stock Dynamo puts ``torch._assert`` into the graph, where it asks for the truth of a tensor and
fails; here it becomes a side exit. ``torch._check*`` are put there too, and say something of the
sizes that follow; but not with a message that reads what is no constant. Here the message is left
out, since the call is made again in plain Python when such a check fails. Both take their places in
Dynamo's table of handlers for torch's functions (torch/_dynamo/variables/torch.py).
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._dynamo import exc
from torch._dynamo.variables import TensorVariable, TorchInGraphFunctionVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import failing_graphs, guards, lower, repeats, scalars, sites
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

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


#: Graph breaks of Dynamo at the message of a check.
_MESSAGES: Final = frozenset(
    ["Can't extract message from torch._check*()", "Can't convert torch._check*() message closure"]
)
#: Each function and the position of its message.
_CHECKS: Final = {
    torch._check: 1,
    torch._check_index: 1,
    torch._check_value: 1,
    torch._check_type: 1,
    torch._check_not_implemented: 1,
    torch._check_tensor_all: 1,
    torch._check_with: 2,
    torch._check_tensor_all_with: 2,
}
_OF_CHECKS: Final = LiveSite("torch._check", "guard", torch._check.__code__)


def _checked(dynamos: Any, position: int) -> Any:
    """Return a handler that does without a message where Dynamo's cannot take it."""

    def check(called: Any, tx: Any, *given: VariableTracker, **named: VariableTracker) -> Any:
        try:
            return dynamos(called, tx, *given, **named)
        except exc.Unsupported as error:
            if error.gb_type not in _MESSAGES or not scalars.may_take(tx):
                raise
            if not guards.can_exit(tx, _OF_CHECKS):
                raise
        named.pop("message", None)
        _require_repeatable(tx)
        return dynamos(called, tx, *given[:position], **named)

    return check


def _require_repeatable(tx: Any) -> None:
    """Have the frame traced with the messages if a call that fails cannot be made again."""
    repeats.note(tx)
    output = tx.output

    def examine(module: Any) -> None:
        if not failing_graphs.can_be_put_back(output):
            sites.leave_without_exit(_OF_CHECKS)
            raise SiteChanged(restart_reason="bcmend: a failed check cannot be made again")

    output.register_finalizer_fns.append(examine)


def install() -> None:
    """Let Dynamo ask here first."""
    handlers = TorchInGraphFunctionVariable._get_handlers()
    handlers[torch._assert] = _assert
    for function, position in _CHECKS.items():
        if function in handlers:
            handlers[function] = _checked(handlers[function], position)
