"""What is tried: an object and a call of it, looked at before anything is done with them."""

from __future__ import annotations

import inspect
import sys
from types import FunctionType
from typing import Any

import torch

from bcmend import api
from bcmend.errors import CallError, TrialError, UnsupportedObject
from bcmend.knowledge import opt_out
from bcmend.patching.subject import title_of, uncompiled
from bcmend.trials.apart import TriedCall


def subject_of(obj: Any, arguments: Any, keywords: Any, *, backend: str) -> TriedCall:
    """Return what is tried, of an object that may be compiled.

    Raises:
        UnsupportedObject: ``obj`` is nothing that can be patched, or a class.
        CallError: the arguments are not those of the object, or torch has no such back end.
    """
    name = title_of(obj)
    bare: Any = uncompiled(obj)
    if isinstance(bare, type):
        raise UnsupportedObject(f"{name} is a class: pass an object of it, such as {name}(...)")
    if backend not in torch.compiler.list_backends(exclude_tags=()):
        known = ", ".join(["eager", "aot_eager", *torch.compiler.list_backends()])
        raise CallError(f"torch has no back end {backend!r}; it has {known}")
    _check_call(bare, name, arguments, keywords)
    if opt_out.is_process_off():
        raise TrialError(f"{opt_out.VARIABLE}=0 is set, so that nothing is mended: unset it first")
    api.is_used()  # which warns where torch is none that bcmend works with
    return TriedCall(bare, tuple(arguments), dict(keywords))


def only_traces(backend: str) -> bool:
    """Return whether a back end runs graphs as eager execution does, so that no time is gained.

    These are the ones that torch keeps for looking for faults.
    """
    known, for_use = (torch.compiler.list_backends(exclude_tags=tags) for tags in ((), ("debug",)))
    return backend in known and backend not in for_use


def state_holder(obj: Any) -> Any:
    """Return what has the state of an object: a module or a function, if it is of one."""
    while not isinstance(obj, (FunctionType, torch.nn.Module)):
        inner = getattr(obj, "__self__", None) or getattr(obj, "func", None)
        if inner is None:
            return obj
        obj = inner
    return obj


#: From Python 3.14 on annotations are code, which may name what is not there.
_AS_WRITTEN: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    import annotationlib

    _AS_WRITTEN["annotation_format"] = annotationlib.Format.FORWARDREF


def _check_call(obj: Any, name: str, arguments: Any, keywords: Any) -> None:
    called = obj.forward if isinstance(obj, torch.nn.Module) else obj
    try:
        signature = inspect.signature(called, **_AS_WRITTEN)
    except (TypeError, ValueError):
        return  # what has none is called as it is
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise CallError(f"{name}{signature} does not take these arguments: {error}") from error
