"""The public functions. On an untested release of torch they warn, and change nothing."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

import torch

from bcmend import releases
from bcmend.errors import PolicyError, UntestedTorch
from bcmend.knowledge import opt_out, output_callables, own_code, replaced_calls
from bcmend.knowledge.qualified_names import identity
from bcmend.patching.reach import reach
from bcmend.patching.subject import module_of, path_of, title_of, uncompiled
from bcmend.policy import DEFAULT, Policy
from bcmend.reports.search_report import Why
from bcmend.reports.site_report import Report

Subject = TypeVar("Subject")

_LOG: Final = logging.getLogger("bcmend")


def patch(obj: Subject, *, policy: Policy | None = None) -> Subject:
    """Mend everything that ``obj`` reaches, in place.

    Outside ``torch.compile`` nothing changes. Patching twice is patching once; the policy of the
    first time stands until ``unpatch``. On a release of torch that bcmend is not tested with, and
    that is not equal to one in all that bcmend relies on, nothing changes at all, or some branches
    are refused; a warning says which.

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
    _install(obj, policy_of(policy), _owner(obj), _holder(obj))
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


class _Owner:
    """Stands for a ``with`` block."""


@contextmanager
def patched(obj: Subject, *, policy: Policy | None = None) -> Iterator[Subject]:
    """Mend ``obj`` for the length of a ``with`` block. Arguments as for ``patch``."""
    owner = _Owner()
    _install(obj, policy_of(policy), id(owner), owner)
    try:
        yield obj
    finally:
        _remove(id(owner))


def cache_key(policy: Policy | None = None) -> str:
    """Return a text that differs where the code of bcmend, torch or the policy does.

    For caches of compiled code that know a model by the text of its files, which patching does not
    change, as that of vLLM does: ``additional_config={"bcmend": bcmend.cache_key()}``.

    Raises:
        PolicyError: ``policy`` is no ``Policy``.
    """
    chosen = policy_of(policy)
    fields = {name: getattr(chosen, name) for name in chosen.__dataclass_fields__}
    text = repr({**fields, "off": sorted(fields["off"])})
    return f"{own_code.code_key()} torch {torch.__version__} {sha256(text.encode()).hexdigest()}"


def compile(obj: Any = ..., *, policy: Policy | None = None, **arguments: Any) -> Any:
    """Patch ``obj`` and return ``torch.compile(obj, **arguments)``.

    Without ``obj`` it returns a decorator, as ``torch.compile`` does:
    ``@bcmend.compile(fullgraph=True)``.

    Raises:
        UnsupportedObject: ``obj`` is nothing that can be patched, as ``None`` is not.
    """
    if obj is ...:
        return partial(compile, policy=policy, **arguments)
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
        OutputError: ``target`` is no such thing, or its module is imported and has nothing of that
            name. Nothing is changed.
    """
    output_callables.register(target, returns_none=returns_none)
    _forget_analyses()


def register_capture(
    target: Callable[..., Any] | str,
    traced: Callable[..., Any] | None = None,
    *,
    opaque: Callable[..., Any] | None = None,
) -> None:
    """Have calls of ``target``, which Dynamo cannot trace, captured in patched code.

    Either ``traced`` is traced in its place, or the call itself is an operator of the graph, of
    which ``opaque`` tells what it gives. `bcmend.testing.check_capture` compares what is captured
    with eager execution, which still calls ``target``. What is compiled from then on is affected;
    registering again replaces.

    Args:
        target: a function, class or other callable, a method (``Meter.read`` for all instances,
            whose calls are given the instance first, ``meter.read`` for one), or the qualified name
            of one, which need not be importable yet.
        traced: what takes the same arguments and is equal: values, dtypes, aliases, gradients,
            effects, exceptions.
        opaque: what takes the same arguments, tensors without contents among them, and returns
            tensors with the shapes, dtypes, strides and ``requires_grad`` that the call gives. Then
            ``target`` is a function that returns new tensors, one or several, of which the form
            does not depend on what tensors hold; it changes nothing, and draws nothing. It may
            raise. It is called when the graph runs, and its backward calls it again, with autograd.
            It is given tensors, constants and numbers, also in tuples and lists. With other
            arguments, and inside of ``try`` and ``with``, the graph breaks as in stock torch.

    Raises:
        CaptureError: one of them is no such thing, both or none of ``traced`` and ``opaque`` are
            given, or the module of ``target`` is imported and has nothing of that name. Nothing is
            changed.
    """
    replaced_calls.register(target, traced, opaque)
    _forget_analyses()


def report(
    obj: object, *, policy: Policy | None = None, ahead: bool = False, bytecode: bool = False
) -> Report:
    """Return what was done at every site of ``obj`` that a traced call has met.

    Args:
        obj: what was patched, or could be.
        policy: what would be mended and how, for what is not patched.
        ahead: look at all code that ``obj`` reaches, and list as ``planned`` what would be mended
            if a traced call met it. Else nothing is looked at before Dynamo has stopped.
        bytecode: add the bytecode, before and after, of what got new bytecode for its sites.

    Raises:
        UnsupportedObject: ``obj`` is nothing that could be patched.
    """
    chosen = policy_of(policy)
    name = title_of(obj)
    reached = {id(each.function): each.function for each in reach(obj, chosen)}
    if not is_used():
        why = "BCMEND=0 is set" if opt_out.is_process_off() else releases.sentence()
        return Report(name, (), len(reached), 0, off_because=why)
    if not ahead and not _is_looked_at(obj, reached.values()):
        return Report(name, (), len(reached), 0, waits=True)
    from bcmend.patching import installer, site_records
    from bcmend.patching.table import TABLE

    if policy is None:
        chosen = TABLE.policies.get(_owner(obj), chosen)
    # What was found at a call belongs to the object as well.
    reached |= {id(each): each for each in installer.owned_by(_owner(obj))}
    functions = list(reached.values())
    changed = sum(TABLE.of(each) is not None for each in functions)
    found = site_records.site_records(functions, chosen)
    sites = tuple(each for each in found if ahead or each.status != "planned")
    retraces = site_records.retraces(map(TABLE.as_written, functions))
    about = site_records.circumstances(functions, chosen, found)
    pairs = site_records.bytecode(functions) if bytecode else ()
    is_whole = site_records.are_whole(map(TABLE.as_written, functions))
    made = name, sites, len(functions), changed, False, retraces
    return Report(*made, bytecode=pairs, is_whole=is_whole, **about._asdict())


def why(obj: object) -> Why:
    """Return the log of the search: each trace of code that ``obj`` reaches, and what came of it.

    A trace takes some things for granted. One that did not hold is listed with what showed it and
    with what later traces do instead. What was traced as without bcmend, and captured, is not
    listed.

    Raises:
        UnsupportedObject: ``obj`` is nothing that could be patched.
    """
    name = title_of(obj)
    reached = [each.function for each in reach(obj, DEFAULT)]
    if "bcmend.tracing.search.log" not in sys.modules:
        return Why(name, ())
    from bcmend.patching import installer, site_records
    from bcmend.patching.table import TABLE

    functions = [*reached, *installer.owned_by(_owner(obj))]
    return Why(name, site_records.traces(map(TABLE.as_written, functions)))


def unpatch_what_is_gone() -> None:
    """Give functions their own code back that stay mended in the names of objects that are gone."""
    if installer := sys.modules.get("bcmend.patching.installer"):
        installer.remove_what_is_gone()


def is_patched(obj: object) -> bool:
    """Return whether ``patch`` was called with ``obj``, and ``unpatch`` not since.

    Raises:
        UnsupportedObject: ``obj`` is nothing that could be patched.
    """
    path_of(obj)
    waiting = sys.modules.get("bcmend.patching.waiting")
    return waiting is not None and bool(waiting.is_known(_owner(obj)))


def is_anything_patched() -> bool:
    """Return whether any object of this process is patched, or waits until Dynamo stops in it."""
    waiting, table = (sys.modules.get(f"bcmend.patching.{name}") for name in ("waiting", "table"))
    is_waiting = waiting is not None and bool(waiting.everything())
    return is_waiting or (table is not None and bool(table.TABLE.functions))


def _is_looked_at(obj: object, reached: Iterable[FunctionType]) -> bool:
    """Return whether the code of an object, or some that it reaches, was analysed and mended."""
    waiting = sys.modules.get("bcmend.patching.waiting")
    if waiting is None or _waits(_owner(obj)):
        return False
    return waiting.is_known(_owner(obj)) or any(map(waiting.is_mended, reached))


def _waits(owner: int) -> bool:
    waiting = sys.modules.get("bcmend.patching.waiting")
    return waiting is not None and waiting.waits(owner)


def _install(obj: object, policy: Policy, owner: int, holder: object) -> None:
    name = title_of(obj)
    if not is_used():
        return
    _LOG.info("patch: %s, with %s", name, policy)
    if policy.verify != "never":
        import_module("bcmend.trials.first_calls")  # which gives tracing what compares
    if policy.mend == "on-demand" and policy.compiling != "eager":  # which nothing may stop at
        _have_wait(obj, owner, holder, policy=policy)
    elif not _waits(owner):
        _install_ahead(obj, owner, holder, policy=policy)


def _have_wait(obj: object, owner: int, holder: object, *, policy: Policy) -> None:
    """Have ``obj`` wait until Dynamo stops in it, if nothing is known of its code yet."""
    from bcmend.patching import stops, waiting  # noqa: F401  watches traces

    if waiting.is_known(owner):
        return
    subject = uncompiled(obj)
    modules, touches = _modules(subject), functools.cache(policy.touches)
    entries = _entries(subject, modules)
    if installer := sys.modules.get("bcmend.patching.installer"):
        installer.give_own_code(entries)  # else nothing was mended of which there could be a copy
    starts = [each for each in entries if touches(module_of(each))] or entries
    kinds = [each for each in _kinds(modules) if touches(str(each.__module__))]
    ahead, later = (partial(each, policy=policy) for each in (_install_ahead, _have_wait))
    if starts and not any(map(waiting.is_mended, starts)):
        with suppress(TypeError):  # what has no weak references
            reached = partial(_functions, policy=policy)
            one = waiting.Waiting(
                subject, holder, starts, kinds, reach=reached, ahead=ahead, later=later
            )
            waiting.wait(owner, one)
            return
    _install_ahead(obj, owner, holder, policy=policy)


def _functions(obj: object, *, policy: Policy) -> list[FunctionType]:
    return [each.function for each in reach(obj, policy)]


def _install_ahead(obj: object, owner: int, holder: object, *, policy: Policy) -> None:
    found = reach(obj, policy)
    from bcmend.patching import installer, retrace, told, waiting  # noqa: F401  traces ask them

    functions = [each.function for each in found]
    installer.give_own_code(functions)
    waiting.wait_no_more(owner)
    waiting.mend([each.__code__ for each in functions])
    installer.forget_unreached(functions)
    installer.watch(owner, holder)
    subject = uncompiled(obj)
    entries = frozenset(map(id, _entries(subject, _modules(subject))))
    # What waited is read where Dynamo stops in it, in whosever code.
    stopped = policy.mend == "on-demand"
    changed = installer.install(found, policy, owner=owner, entries=entries, stopped=stopped)
    _LOG.info("%d functions are reached, %d have new bytecode", len(functions), changed)


def _remove(owner: int | None) -> None:
    if not releases.is_used():
        return
    if waiting := sys.modules.get("bcmend.patching.waiting"):
        waiting.wait_no_more(owner)
    if installer := sys.modules.get("bcmend.patching.installer"):
        installer.remove(owner)


def is_used() -> bool:
    """Return whether bcmend works with this torch; warn the caller of the API if it is not tested.

    Raises ``UntestedTorch`` instead if the environment says so.
    """
    if opt_out.is_process_off():
        _LOG.info("%s=0 in the environment: nothing is mended in this process", opt_out.VARIABLE)
        return False
    if releases.is_tested():
        return True
    if releases.is_an_error():
        raise UntestedTorch(releases.sentence())
    releases.prepare()
    if not (releases.standing().is_partly_used and _WARNED):
        _WARNED.append(releases.sentence())
        level = 1
        frame = inspect.currentframe()
        while frame is not None and frame.f_globals.get("__name__") in (__name__, "contextlib"):
            frame, level = frame.f_back, level + 1
        warnings.warn(_WARNED[-1], UntestedTorch, stacklevel=level)
    return releases.is_used()


#: What the process was warned of, so that it is once of hooks that are not used.
_WARNED: Final[list[str]] = []


def _forget_analyses() -> None:
    if releases.is_used():
        from bcmend.patching.table import TABLE

        TABLE.forget_analyses()


def _holder(obj: object) -> object:
    """Return the object that an owner goes with."""
    subject = uncompiled(obj)
    return subject.__self__ if isinstance(subject, MethodType) else subject


def _owner(obj: object) -> int:
    """Return what stands for ``obj``, compiled or not."""
    return identity(uncompiled(obj))


def policy_of(policy: object) -> Policy:
    """Return a policy, for ``None`` the default. Raises ``PolicyError`` for anything else."""
    if policy is None:
        return DEFAULT
    if not isinstance(policy, Policy):
        raise PolicyError(f"policy has to be a bcmend.Policy, got {type(policy).__qualname__}")
    return policy


def _entries(subject: object, modules: list[torch.nn.Module]) -> list[FunctionType]:
    """Return the functions that Dynamo may enter first; ``modules`` are those of ``subject``."""
    found: list[object]
    if modules:
        kinds = _kinds(modules)
        found = [inspect.getattr_static(each, "forward", None) for each in kinds]
        found += [each for each in map(_own_call, kinds) if each is not None]
        found += [each for module in modules for each in _entries_of_instance(vars(module))]
    else:
        is_class = isinstance(subject, type)
        found = [inspect.getattr_static(subject, "forward", None) if is_class else subject]
    from bcmend.patching.decorated import entered_first

    return [entered_first(each) for each in map(_function_of, found) if each is not None]


def _own_call(kind: type) -> object:
    """Return what a class of modules has in place of ``nn.Module.__call__``, if it has its own."""
    found = inspect.getattr_static(kind, "__call__", None)
    return None if found is vars(torch.nn.Module)["__call__"] else found


def kinds_of(obj: object) -> list[type]:
    """Return the classes of a module and of those in it."""
    return _kinds(_modules(uncompiled(obj)))


def _kinds(modules: list[torch.nn.Module]) -> list[type]:
    """Return the classes of modules, each once, by identity."""
    return list({id(type(each)): type(each) for each in modules}.values())


def _modules(subject: object) -> list[torch.nn.Module]:
    """Return a module and those in it, each once, by identity; none of what is no module."""
    found: dict[int, torch.nn.Module] = {}
    pending = [subject]
    while pending:
        each = pending.pop()
        if isinstance(each, torch.nn.Module) and id(each) not in found:
            found[id(each)] = each
            pending += reversed(vars(each).get("_modules", {}).values())
    return list(found.values())


def _entries_of_instance(held: dict[str, Any]) -> Iterator[object]:
    if "forward" in held:
        yield held["forward"]
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        if hooks := held.get(name):
            yield from hooks.values()


def _function_of(candidate: object) -> FunctionType | None:
    while isinstance(candidate, functools.partial):
        candidate = candidate.func
    if isinstance(candidate, MethodType):
        candidate = candidate.__func__
    return candidate if isinstance(candidate, FunctionType) else None
