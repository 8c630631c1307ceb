"""The public functions. On an untested release of torch they warn, and change nothing."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any, TypeVar

import torch

from bcmend import releases
from bcmend.errors import PolicyError, UntestedTorch
from bcmend.knowledge import output_callables, replaced_calls
from bcmend.knowledge.qualified_names import identity
from bcmend.patching.reach import reach
from bcmend.patching.subject import path_of, uncompiled
from bcmend.policy import DEFAULT, Policy
from bcmend.site_report import Report

Subject = TypeVar("Subject")


def patch(obj: Subject, *, policy: Policy | None = None) -> Subject:
    """Mend everything that ``obj`` reaches, in place.

    Outside ``torch.compile`` nothing changes. Patching twice is patching once; the policy of the
    first time stands until ``unpatch``. On a release of torch that bcmend is not tested with,
    nothing changes at all, and a warning says so.

    Args:
        obj: an ``nn.Module``, a subclass of it, a Python function, a bound method, or what
            ``torch.compile`` made of one of these.
        policy: what to mend and how; the default suits most.

    Returns:
        ``obj`` itself.

    Raises:
        UnsupportedObject: ``obj`` has no bytecode that could be rewritten. Nothing is changed.
        PolicyError: ``policy`` is no ``Policy``. Nothing is changed.
        MissingInTorch: the running torch lacks methods that bcmend replaces. Nothing is changed.
    """
    _install(obj, _policy(policy), _owner(obj), _holder(obj))
    return obj


def unpatch(obj: object = None) -> None:
    """Give the functions that ``patch(obj)`` mended their own code back; all if it is ``None``.

    A function that another patched object reaches too stays mended.

    Raises:
        UnsupportedObject: ``obj`` is nothing that could have been patched.
    """
    if obj is not None:
        path_of(obj)
    _remove(None if obj is None else _owner(obj))


@contextmanager
def patched(obj: Subject, *, policy: Policy | None = None) -> Iterator[Subject]:
    """Mend ``obj`` for the length of a ``with`` block. Arguments as for ``patch``."""
    owner = object()
    _install(obj, _policy(policy), id(owner), owner)
    try:
        yield obj
    finally:
        _remove(id(owner))


def compile(obj: Any, *, policy: Policy | None = None, **arguments: Any) -> Any:
    """Patch ``obj`` and return ``torch.compile(obj, **arguments)``."""
    patch(obj, policy=policy)
    return torch.compile(uncompiled(obj), **arguments)  # type: ignore[call-overload]


def register_output(target: Callable[..., Any] | str, *, returns_none: bool = False) -> None:
    """Have calls of ``target`` deferred like those of ``print``.

    That is for callables whose only effect is that something is written somewhere. What is patched
    from then on is affected; where registered twice, the last ``returns_none`` holds.

    Args:
        target: a function, a method (``Meter.update`` for all instances, ``meter.update`` for one),
            or the qualified name of one, which need not be importable yet.
        returns_none: whether it always returns None; else only calls whose results are dropped are
            deferred.

    Raises:
        OutputError: ``target`` is no such thing. Nothing is changed.
    """
    output_callables.register(target, returns_none=returns_none)
    _forget_analyses()


def register_substitute(target: Callable[..., Any] | str, replacement: Callable[..., Any]) -> None:
    """Have calls of ``target`` traced as calls of ``replacement`` in patched code.

    That is for what Dynamo cannot trace and something equal that it can; the caller is responsible
    that both are equal: values, dtypes, aliases, gradients, effects, exceptions. Eager execution
    still calls ``target``. What is compiled from then on is affected; registering again replaces.

    Args:
        target: a function, class or other callable, a method (``Meter.read`` for all instances,
            whose calls are given the instance first, ``meter.read`` for one), or the qualified name
            of one, which need not be importable yet.
        replacement: what takes the same arguments.

    Raises:
        SubstituteError: one of them is no such thing. Nothing is changed.
    """
    replaced_calls.register(target, replacement)
    _forget_analyses()


def report(obj: object, *, policy: Policy | None = None) -> Report:
    """Return what was done, or would be done, at every site that ``obj`` reaches.

    A site is ``planned`` until a traced call has reached it.

    Raises:
        UnsupportedObject: ``obj`` is nothing that could be patched.
    """
    chosen = _policy(policy)
    reached = {id(each.function): each.function for each in reach(obj, chosen)}
    name = path_of(obj) or type(uncompiled(obj)).__qualname__
    if not _is_tested():
        return Report(name, (), len(reached), 0)
    from bcmend.patching import installer, site_records
    from bcmend.patching.table import TABLE

    # What was found at a call belongs to the object as well.
    reached |= {id(each): each for each in installer.owned_by(_owner(obj))}
    functions = list(reached.values())
    changed = sum(TABLE.of(each) is not None for each in functions)
    return Report(name, site_records.site_records(functions, chosen), len(functions), changed)


def _install(obj: object, policy: Policy, owner: int, holder: object) -> None:
    found = reach(obj, policy)
    if _is_tested():
        from bcmend.patching import installer, retrace  # noqa: F401  is asked by traces

        installer.begin_anew([each.function for each in found])
        installer.watch(owner, holder)
        installer.install(found, policy, owner=owner, entries=_entries(uncompiled(obj)))


def _remove(owner: int | None) -> None:
    if releases.is_tested():
        from bcmend.patching import installer

        installer.remove(owner)


def _is_tested() -> bool:
    """Return whether bcmend is tested with this torch; warn the caller of the API if not."""
    if releases.is_tested():
        return True
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") in (__name__, "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(releases.sentence(), UntestedTorch, stacklevel=level)
    return False


def _forget_analyses() -> None:
    if releases.is_tested():
        from bcmend.patching.table import TABLE

        TABLE.forget_analyses()


def _holder(obj: object) -> object:
    """Return the object that an owner goes with."""
    subject = uncompiled(obj)
    return subject.__self__ if isinstance(subject, MethodType) else subject


def _owner(obj: object) -> int:
    """Return what stands for ``obj``, compiled or not."""
    return identity(uncompiled(obj))


def _policy(policy: object) -> Policy:
    if policy is None:
        return DEFAULT
    if not isinstance(policy, Policy):
        raise PolicyError(f"policy has to be a bcmend.Policy, got {type(policy).__qualname__}")
    return policy


def _entries(subject: object) -> frozenset[int]:
    """Return the identities of the functions that Dynamo may enter first."""
    if isinstance(subject, torch.nn.Module):
        found = [each for module in subject.modules() for each in _entries_of_module(module)]
    else:
        is_class = isinstance(subject, type)
        found = [inspect.getattr_static(subject, "forward", None) if is_class else subject]
    return frozenset(id(each) for each in map(_function_of, found) if each is not None)


def _entries_of_module(module: torch.nn.Module) -> Iterator[object]:
    yield inspect.getattr_static(type(module), "forward", None)
    yield vars(module).get("forward")
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        yield from vars(module).get(name, {}).values()


def _function_of(candidate: object) -> FunctionType | None:
    while isinstance(candidate, functools.partial):
        candidate = candidate.func
    if isinstance(candidate, MethodType):
        candidate = candidate.__func__
    return candidate if isinstance(candidate, FunctionType) else None
