"""The public functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any, TypeVar

import torch

from bcmend import install as patching
from bcmend import outputs, substitutes
from bcmend.codeobj.scan import code_objects
from bcmend.errors import PolicyError
from bcmend.policy import DEFAULT, Policy
from bcmend.reach import reach
from bcmend.rewrite.plan import SPLIT, Refusal, Site
from bcmend.runtime import sites
from bcmend.site_report import Report, SiteRecord
from bcmend.subject import path_of, uncompiled

__all__ = [
    "compile",
    "patch",
    "patched",
    "register_output",
    "register_substitute",
    "report",
    "unpatch",
]

Subject = TypeVar("Subject")


def patch(obj: Subject, *, policy: Policy | None = None) -> Subject:
    """Mend everything that ``obj`` reaches, in place.

    Outside ``torch.compile`` nothing changes. Patching twice is patching once; the policy of the
    first time stands until ``unpatch``.

    Args:
        obj: an ``nn.Module``, a subclass of it, a Python function, a bound method, or what
            ``torch.compile`` made of one of these.
        policy: what to mend and how; the default suits most.

    Returns:
        ``obj`` itself.

    Raises:
        UnsupportedObject: ``obj`` has no bytecode that could be rewritten. Nothing is changed.
        PolicyError: ``policy`` is no ``Policy``. Nothing is changed.
    """
    _install(obj, _policy(policy), _owner(obj))
    return obj


def unpatch(obj: object = None) -> None:
    """Give the functions that ``patch(obj)`` mended their own code back; all if it is ``None``.

    A function that another patched object reaches too stays mended.

    Raises:
        UnsupportedObject: ``obj`` is nothing that could have been patched.
    """
    if obj is None:
        patching.remove()
        return
    path_of(obj)
    patching.remove(_owner(obj))


@contextmanager
def patched(obj: Subject, *, policy: Policy | None = None) -> Iterator[Subject]:
    """Mend ``obj`` for the length of a ``with`` block. Arguments as for ``patch``."""
    chosen = _policy(policy)
    owner = object()
    _install(obj, chosen, id(owner))
    try:
        yield obj
    finally:
        patching.remove(id(owner))


def compile(obj: Any, *, policy: Policy | None = None, **arguments: Any) -> Any:
    """Patch ``obj`` and return ``torch.compile(obj, **arguments)``."""
    patch(obj, policy=policy)
    return torch.compile(uncompiled(obj), **arguments)  # type: ignore[call-overload]


def register_output(target: Callable[..., Any] | str, *, returns_none: bool = False) -> None:
    """Have calls of ``target`` deferred like those of ``print``.

    That is for callables whose only effect is that something is written somewhere: a metric sent to
    a dashboard, a line added to a file. What is patched from then on is affected; registering twice
    is registering once, and the last ``returns_none`` holds.

    Args:
        target: a function, a method (``Meter.update`` for all instances, ``meter.update`` for one),
            or the qualified name of one, such as ``"package.module.Class.method"``, which need not
            be importable yet.
        returns_none: whether it always returns None; a call whose result is used is deferred only
            then.

    Raises:
        OutputError: ``target`` is no such thing. Nothing is changed.
    """
    outputs.register(target, returns_none=returns_none)
    patching.forget_analyses()


def register_substitute(target: Callable[..., Any] | str, replacement: Callable[..., Any]) -> None:
    """Have calls of ``target`` traced as calls of ``replacement`` in patched code.

    That is for what Dynamo cannot trace (a function of an extension module, one that looks at its
    frame) and something equal that it can. It is for the caller to see to it that both are equal:
    values, dtypes, aliases, gradients, effects, exceptions. Eager execution goes on calling
    ``target``. What is compiled from then on is affected; registering again replaces.

    Args:
        target: a function, class or other callable, a method (``Meter.read`` for all instances,
            whose calls are given the instance first, ``meter.read`` for one), or the qualified name
            of one, such as ``"package.module.Class.method"``, which need not be importable yet.
        replacement: what takes the same arguments.

    Raises:
        SubstituteError: one of them is no such thing. Nothing is changed.
    """
    substitutes.register(target, replacement)
    patching.forget_analyses()


def _install(obj: object, policy: Policy, owner: int) -> None:
    functions = [reached.function for reached in reach(obj, policy)]
    patching.install(functions, policy, owner=owner, entries=_entries(uncompiled(obj)))


def _owner(obj: object) -> int:
    """Return what stands for ``obj``; a bound method is another object at every look."""
    subject = uncompiled(obj)
    if isinstance(subject, MethodType):
        return hash((id(subject.__self__), id(subject.__func__)))
    return id(subject)


def report(obj: object, *, policy: Policy | None = None) -> Report:
    """Return what was done, or would be done, at every site that ``obj`` reaches.

    A site is ``planned`` until a traced call has reached it.

    Raises:
        UnsupportedObject: ``obj`` is nothing that could be patched.
    """
    chosen = _policy(policy)
    reached = [each.function for each in reach(obj, chosen)]
    # What was found at a call belongs to the object as well.
    functions = list(
        {id(each): each for each in (*reached, *patching.owned_by(_owner(obj)))}.values()
    )
    records: dict[str, SiteRecord] = {}
    for function in functions:
        mended = patching.analysed(function, chosen)
        if mended is not None:
            for code, site in mended.sites:
                record = _record(code.co_filename, code.co_qualname, site)
                # A split that was not made is no stop: the branch behind it says what became of it.
                if site.kind != SPLIT or record.status == "mended":
                    records[site.name] = record
    for live in sites.calls_at(_places(functions)):
        records[live.key] = _call_record(live)
    changed = len(patching.patched_functions(functions))
    name = path_of(obj) or type(uncompiled(obj)).__qualname__
    return Report(name, tuple(records.values()), len(functions), changed)


def _places(functions: Iterable[FunctionType]) -> set[tuple[str, int | None]]:
    """Return the files and lines of functions and of those nested in them."""
    known = patching.patched_functions(functions)
    outer = [*(each.original for each in known), *(each.__code__ for each in functions)]
    return {
        (code.co_filename, line)
        for each in outer
        for code in code_objects(each)
        for _, _, line in code.co_lines()
    }


def _call_record(live: sites.LiveSite) -> SiteRecord:
    status, lowering, slug, detail = _outcome_of(live)
    return SiteRecord(
        name=live.key,
        file=live.origin.co_filename,
        line=live.line,
        function=live.origin.co_qualname,
        offset=0,
        kind=live.kind,
        status=status,
        lowering=lowering,
        refusal=slug,
        detail=detail,
    )


def _record(file: str, function: str, site: Site) -> SiteRecord:
    status, lowering, slug, detail = _outcome(site)
    return SiteRecord(
        name=site.name,
        file=file,
        line=site.line,
        function=function,
        offset=site.offset,
        kind=site.kind,
        status=status,
        lowering=lowering,
        refusal=slug,
        detail=detail,
        clone_bytes=_clone_bytes(site, status),
    )


def _clone_bytes(site: Site, status: str) -> int | None:
    live = sites.find(site.name)
    return live.clone_bytes if live is not None and status == "mended" else None


def _outcome(site: Site) -> tuple[str, str | None, str | None, str]:
    if isinstance(site.decision, Refusal):
        return "refused", None, site.decision.slug, site.decision.detail
    live = sites.find(site.name)
    return ("planned", None, None, "") if live is None else _outcome_of(live)


def _outcome_of(live: sites.LiveSite) -> tuple[str, str | None, str | None, str]:
    if live.withdrawn:
        return "withdrawn", None, live.withdrawn, live.detail
    if live.refused:
        slug, detail = next(iter(live.refused.items()))
        return "refused", None, slug, detail
    if live.lowering:
        return "mended", live.lowering, None, live.why
    return "planned", None, None, ""


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
    elif isinstance(subject, type):
        found = [inspect.getattr_static(subject, "forward", None)]
    else:
        found = [subject]
    functions = (_function_of(each) for each in found)
    return frozenset(id(function) for function in functions if function is not None)


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
