"""``with`` blocks that matter to nothing that is traced inside them.

The flags of cuDNN say how kernels of an accelerator run: to a block in which every tensor lies in
the memory of the CPU they make no difference. A lock keeps other threads from what the block reads
and writes: a block that only computes tensors has nothing to be kept from. Whether it is so is
known at its end; if not, the frame is traced again without.
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import Any, Final

import torch
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import ContextWrappingVariable, UserDefinedObjectVariable
from torch._dynamo.variables.base import AttributeMutationNew, ValueMutationNew, VariableTracker

from bcmend.runtime import scalars
from bcmend.runtime.merge import constant
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.substitution import (
    Call,
    Refused,
    answer_for,
    answers_to,
    require_always,
    withdraw,
)

__all__ = ["install"]

#: Locks that CPython has done without since 3.12: two threads may both compute the property.
_NEEDLESS: Final = frozenset([functools.cached_property.__get__.__code__])

_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))


def _require_whole(tx: Any) -> None:
    """Only a block that is left in the same trace is looked at to its end."""
    if not scalars.may_take(tx):
        raise Refused("the graph may break inside the block")


# The flags of cuDNN


class _Flags(ContextWrappingVariable):
    """``torch.backends.cudnn.flags(...)``."""

    def __init__(self, site: LiveSite, flags: dict[str, Any], **more: Any) -> None:
        super().__init__(target_values=(), initial_values=None, **more)
        self.site, self.flags = site, flags

    def enter(self, tx: Any) -> VariableTracker:
        entered = torch.backends.cudnn.flags(**self.flags)
        entered.__enter__()  # for what the traced code reads
        self.set_cleanup_hook(tx, lambda: _leave(entered))
        self.nodes = {id(node) for node in tx.output.graph.nodes}
        return constant(None)

    def exit(self, tx: Any, *args: VariableTracker) -> VariableTracker:
        self.cleanup_assert()
        inside = (node for node in tx.output.graph.nodes if id(node) not in self.nodes)
        if not all(_is_on_cpu(node.meta.get("example_value")) for node in inside):
            raise withdraw(self.site, "a tensor in the block is not in the memory of the CPU")
        return constant(None)

    def module_name(self) -> str:
        return "torch.backends.cudnn"

    def fn_name(self) -> str:
        return "flags"


def _leave(entered: Any) -> None:
    entered.__exit__(None, None, None)


def _is_on_cpu(example: Any) -> bool:
    if isinstance(example, (tuple, list)):
        return all(map(_is_on_cpu, example))
    return not isinstance(example, torch.Tensor) or example.device.type == "cpu"


@answers_to("cudnn flags")
def _cudnn_flags(call: Call) -> VariableTracker | None:
    _require_whole(call.tx)
    signature = inspect.signature(torch.backends.cudnn.flags)
    try:
        given = signature.bind(*call.args, **call.kwargs).arguments
    except TypeError:
        return None
    if not all(each.is_python_constant() for each in given.values()):
        raise Refused("a flag that is no constant")
    flags = {name: each.as_python_constant() for name, each in given.items()}
    return _Flags(call.site, flags)


# Locks

_MADE_HERE: Final = (AttributeMutationNew, ValueMutationNew)


class _Lock(ContextWrappingVariable):
    """A lock that is held for the length of a block."""

    def __init__(self, site: LiveSite, lock: VariableTracker, **more: Any) -> None:
        super().__init__(target_values=(), initial_values=None, **more)
        self.site, self.lock = site, lock

    def enter(self, tx: Any) -> VariableTracker:
        effects = tx.output.side_effects
        allowed = effects.check_allowed_side_effect
        self.changes: list[VariableTracker] = []

        def watched(item: VariableTracker) -> Any:
            if item.mutation_type is not None and not isinstance(item.mutation_type, _MADE_HERE):
                self.changes.append(item)
            return allowed(item)

        effects.check_allowed_side_effect = watched
        self.set_cleanup_hook(tx, lambda: _unwatch(effects))
        self.versions = _versions(tx.output)
        return constant(True)

    def exit(self, tx: Any, *args: VariableTracker) -> VariableTracker:
        self.cleanup_assert()
        if tx.f_code in _NEEDLESS:
            return constant(None)
        if self.changes or any(
            version != self.versions.get(key, version)
            for key, version in _versions(tx.output).items()
        ):
            raise withdraw(self.site, "the block changes something that other threads may see")
        return constant(None)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.lock)


def _unwatch(effects: Any) -> None:
    vars(effects).pop("check_allowed_side_effect", None)


def _versions(output: Any) -> dict[str, int]:
    """Return how often each tensor from outside the graph has been changed in place."""
    outside = ("placeholder", "get_attr")
    examples = {
        node.name: node.meta.get("example_value")
        for node in output.graph.nodes
        if node.op in outside
    }
    return {
        name: each._version for name, each in examples.items() if isinstance(each, torch.Tensor)
    }


@answers_to("lock")
def _lock(call: Call) -> VariableTracker | None:
    _require_whole(call.tx)
    require_always(call.tx, "held")
    assert call.owner is not None
    return _Lock(call.site, call.owner)


_DYNAMOS_WITH: Final = InstructionTranslatorBase.setup_or_before_with


def _before_with(self: Any, inst: Any) -> None:
    """Begin a ``with`` block; a lock stands for its ``__enter__``."""
    held = self.stack[-1].realize()
    if isinstance(held, UserDefinedObjectVariable) and type(held.value) in _LOCKS:
        answer = answer_for(self, "threading.Lock.__enter__", held)
        if answer is not None:
            self.stack[-1] = answer
    _DYNAMOS_WITH(self, inst)


def install() -> None:
    """Let Dynamo ask here first."""
    InstructionTranslatorBase.setup_or_before_with = _before_with  # type: ignore[method-assign]
