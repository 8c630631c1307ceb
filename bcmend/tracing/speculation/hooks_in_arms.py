"""Hooks of tensors that an arm registers or removes.

Dynamo registers them when the graph has run, or in the graph in which the tensor was made, and not
in that of the arm: whichever side is taken. So the trace of the arm ends where it does that.
"""

from __future__ import annotations

from typing import Final

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.refusal import Refusal

_PURPOSE: Final = "hooks that an arm registers or removes"
_REGISTERING: Final = ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")


def _registered(call: Call) -> Answer:
    if nesting_limits.is_in_an_arm(call.tx):
        raise Refusal("arm-hook", f"Tensor.{call.name}")
    return PASS


for _name in _REGISTERING:
    handlers.tensor_method(_name, place=2)(_registered)


@handlers.method(compat.RemovableHandleVariable, methods.CALL_METHOD, _PURPOSE)
def _call_of_handle(call: Call) -> Answer:
    name, *_ = call.args
    if name == "remove" and nesting_limits.is_in_an_arm(call.tx):
        raise Refusal("arm-hook", "RemovableHandle.remove")
    return PASS
