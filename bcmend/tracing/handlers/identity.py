"""Questions of which object a tensor is, and calls that act on the object, not on its values.

Dynamo answers them by what stands for a tensor in the trace. That is right for merged tensors where
both sides agree; elsewhere the merged tensor is given up, and the frame is traced again
(``tracing/effects/sharing``). A container that is asked for an item looks for the object first.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import example_of
from bcmend.tracing.effects import sharing
from bcmend.tracing.sites import nesting_limits

_PURPOSE: Final = "which object a merged tensor is"


def _require_known(tx: compat.Tracer, one: Any, other: Any) -> None:
    if all(each.is_realized() for each in (one, other)):
        one, other = one.realize(), other.realize()
        if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
            sharing.require_known(tx, example_of(one), example_of(other))


@handlers.method(compat.BuiltinVariable, methods.COMPARE_WITH_TENSOR, _PURPOSE)
def _compared(call: Call) -> Answer:
    """Look at ``one is other`` and ``one is not other``."""
    if call.owner.fn in (operator.is_, operator.is_not):
        _require_known(call.tx, *call.args)
    return PASS


@handlers.method(compat.BaseListVariable, methods.CONTAINS, _PURPOSE)
def _contained(call: Call) -> Answer:
    """Look at ``item in container``."""
    (item,) = call.args
    for each in call.owner.items:
        _require_known(call.tx, each, item)
    return PASS


@handlers.method(compat.TensorVariable, methods.HASH, _PURPOSE)
def _hashed(call: Call) -> Answer:
    """Look at the key of a dictionary, and the member of a set."""
    sharing.require_alone(call.tx, example_of(call.owner))
    return PASS


@handlers.method(compat.BuiltinVariable, methods.CALL_ID, _PURPOSE)
def _identified(call: Call) -> Answer:
    """Look at ``id(tensor)``."""
    for each in call.args:
        if isinstance(value := each.realize(), compat.TensorVariable):
            sharing.require_alone(call.tx, example_of(value))
    return PASS


@handlers.method(compat.SetAttrBuiltinVariable, methods.CALL_SETATTR, _PURPOSE, place=1)
def _stored_to(call: Call) -> Answer:
    """Look at ``tensor.name = value``."""
    owner = call.args[0].realize()
    if isinstance(owner, compat.TensorVariable):
        sharing.require_alone(call.tx, example_of(owner))
    return PASS


@handlers.tensor_method("detach_", place=9)
def _detached(call: Call) -> Answer:
    """Look at ``tensor.detach_()``, unless no side has gradients."""
    return _acts_on_the_object(call) if example_of(call.owner).requires_grad else PASS


def _acts_on_the_object(call: Call) -> Answer:
    sharing.require_alone(call.tx, example_of(call.owner))
    return PASS


def _acts_on_the_history(call: Call) -> Answer:
    sharing.require_unread(call.tx, example_of(call.owner))
    return PASS


for _name in ("requires_grad_", "set_", "untyped_storage", "is_set_to", "share_memory_"):
    handlers.tensor_method(_name, place=9)(_acts_on_the_object)
for _name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad"):
    handlers.tensor_method(_name, place=9)(_acts_on_the_history)


def _dropped_out(call: Call) -> Answer:
    """Answer ``dropout`` that drops nothing: it returns its argument, and no copy as fakes do."""
    if not nesting_limits.is_in_an_arm(call.tx):
        return PASS
    names = ("input", "p", "train" if call.function is torch.dropout else "training", "inplace")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    tensor = given.pop("input", None)
    flags = {name: value.realize() for name, value in given.items()}
    if not all(flag.is_python_constant() for flag in flags.values()) or not flags.keys() <= set(
        names
    ):
        return PASS
    known = {name: flag.as_python_constant() for name, flag in flags.items()}
    chance, is_training = known.get("p", 0.5), known.get(names[2], True)
    if type(tensor) is not compat.TensorVariable or not 0 <= chance <= 1:
        return PASS
    return PASS if is_training and chance else tensor


for _function in (torch.dropout, torch.nn.functional.dropout):
    handlers.function(_function, "dropout that drops nothing")(_dropped_out)
