"""``with`` blocks that have no effect on what is traced inside them, and those of objects.

The flags of cuDNN matter to no operation on tensors in the memory of the CPU. Whether that is so is
known at the end of the block; if not, the frame is traced again without the substitution. The lock
of ``functools.cached_property`` is one that CPython itself does without since 3.12. An object that
was there before the call, such as a timer of a module, is entered by its methods, as one is that
the call makes.
"""

from __future__ import annotations

import functools
import inspect
import threading
from types import FunctionType
from typing import Any, Final, cast

import torch

from bcmend.bytecode.names_used import origin_of
from bcmend.dynamo import compat, hooks
from bcmend.dynamo.handlers import PASS, Answer, break_graph
from bcmend.dynamo.models import methods, objects, translators
from bcmend.dynamo.values import Value, constant, global_of
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes import dispatch
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal, withdraw

#: Where code stands with a lock that CPython has done without since 3.12: two threads may both
#: compute it. That code may be mended by the time it is looked at here.
_NEEDLESS: Final = frozenset([origin_of(functools.cached_property.__get__.__code__)])

_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
_MAY_BREAK: Final = "the graph may break inside the block"  # which is judged at its end


# The flags of cuDNN


class _Flags(compat.ContextWrappingVariable):
    """``torch.backends.cudnn.flags(...)``."""

    def __init__(self, site: LiveSite, flags: dict[str, Any], **more: Any) -> None:
        super().__init__(target_values=(), initial_values=None, **more)
        self.site, self.flags = site, flags

    def enter(self, tx: compat.Tracer) -> Value:
        entered = torch.backends.cudnn.flags(**self.flags)
        entered.__enter__()  # for what the traced code reads
        self.set_cleanup_hook(tx, lambda: entered.__exit__(None, None, None))
        self.nodes = {id(node) for node in tx.output.graph.nodes}
        return constant(None)

    def exit(self, tx: compat.Tracer, *args: Value) -> Value:
        self.cleanup_assert()
        inside = (node for node in tx.output.graph.nodes if id(node) not in self.nodes)
        if not all(_is_on_cpu(node.meta.get("example_value")) for node in inside):
            withdraw(self.site, "a tensor in the block is not in the memory of the CPU")
        return constant(None)

    def module_name(self) -> str:
        return "torch.backends.cudnn"

    def fn_name(self) -> str:
        return "flags"


def _is_on_cpu(example: Any) -> bool:
    if isinstance(example, (tuple, list)):
        return all(map(_is_on_cpu, example))
    return not isinstance(example, torch.Tensor) or example.device.type == "cpu"


@answers_to("cudnn flags")
def _cudnn_flags(call: ReplacedCall) -> Answer:
    dispatch.require_one_graph(call.tx, _MAY_BREAK)
    signature = inspect.signature(torch.backends.cudnn.flags)
    try:
        given = signature.bind(*call.args, **call.kwargs).arguments
    except TypeError:
        return PASS
    if not all(each.is_python_constant() for each in given.values()):
        raise unequal("a flag that is no constant")
    return _Flags(call.site, {name: each.as_python_constant() for name, each in given.items()})


# Modes of autograd


@answers_to("grad mode")
def _grad_mode(call: ReplacedCall) -> Answer:
    """Make a mode like the one that a decorator of torch holds, as its ``clone`` does."""
    if call.args or call.kwargs or type(objects.object_held(call.owner)) is not _GRAD_MODE:
        return PASS
    mode = objects.attribute_of(call.tx, call.owner, "mode").realize()
    maker = Value.build(call.tx, _GRAD_MODE, global_of(call.tx.output, _GRAD_MODE)).realize()
    return cast(Answer, maker.call_function(call.tx, [mode], {}))


_GRAD_MODE: Final = torch.set_grad_enabled


# Objects


class _Held(compat.GenericContextWrappingVariable):
    """An object that was there before the call, for the length of a block."""

    def __init__(self, held: Any, **more: Any) -> None:
        super().__init__(held.value, **more)
        self.held = held

    def enter(self, tx: compat.Tracer) -> Value:
        try:
            return cast(Value, self.held.call_method(tx, "__enter__", [], {}))
        except compat.ObservedException:  # Dynamo takes the block for one that was entered
            break_graph("a block that cannot be entered", "__enter__", "It raises an exception.")

    def exit(self, tx: compat.Tracer, *args: Value) -> Value:
        found: Value = self.held.call_method(tx, "__exit__", [*args], {})
        translators.leave_context(tx)
        return found


def _is_entered_by_methods(held: Value) -> bool:
    """Return whether a model is that of an object whose class enters a block in Python."""
    if type(held) is not compat.UserDefinedObjectVariable:
        return False
    methods_of = (inspect.getattr_static(type(held.value), each, None) for each in _METHODS)
    return all(isinstance(each, FunctionType) for each in methods_of)


_METHODS: Final = ("__enter__", "__exit__")


# Locks


class _Lock(compat.ContextWrappingVariable):
    """A lock that nobody needs, held for the length of a block."""

    def __init__(self, lock: Value, **more: Any) -> None:
        super().__init__(target_values=(), initial_values=None, **more)
        self.lock = lock

    def enter(self, tx: compat.Tracer) -> Value:
        return constant(True)

    def exit(self, tx: compat.Tracer, *args: Value) -> Value:
        return constant(None)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.lock)


@answers_to("lock")
def _lock(call: ReplacedCall) -> Answer:
    if origin_of(call.tx.f_code) not in _NEEDLESS:
        raise unequal("the lock keeps other threads from what the block does")
    dispatch.require_one_graph(call.tx, _MAY_BREAK)
    return _Lock(call.owner)


@hooks.around(
    compat.InstructionTranslatorBase, methods.LOOK_UP_SPECIAL, "`with lock:`", gate=hooks.first
)
@hooks.around(
    compat.InstructionTranslatorBase, methods.ENTER_WITH, "`with lock:`", gate=hooks.first
)
def _before_with(inner: Any, self: Any, inst: Any) -> None:
    """Begin a ``with`` block; a lock stands for its ``__enter__``.

    From Python 3.14 on the manager is there twice when ``__exit__`` is looked up.
    """
    top = self.stack[-1]
    held, standing = top.realize(), None
    if isinstance(held, compat.UserDefinedObjectVariable) and type(held.value) in _LOCKS:
        answer = dispatch.answer_for(self, "threading.Lock.__enter__", held)
        if answer is not PASS:
            standing = answer
    elif _is_entered_by_methods(held) and capture_mode.in_mended_code(self):
        standing = _Held(held)
    if standing is not None:
        self.stack[-2:] = [standing if each is top else each for each in self.stack[-2:]]
    inner(self, inst)
