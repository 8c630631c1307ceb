"""Install mended code on functions, and remove it.

Swaps the ``__code__`` of the functions that an object reaches and that have something to mend, or
that Dynamo may enter first.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

import torch

from bcmend.analysis.sketch import may_loop_over_indices
from bcmend.bytecode.names_used import code_objects, has_name, has_subscript, has_truth_jump
from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import methods
from bcmend.knowledge.replaced_calls import may_substitute
from bcmend.names import CALLBACK, COMPILER, NAMESPACE, TRACING
from bcmend.patching.reach import Reached
from bcmend.patching.subject import SUSPENDING, module_of
from bcmend.patching.table import KINDS, NOBODY, TABLE, Patched
from bcmend.policy import Policy
from bcmend.rewrite.mended import Context, Mended
from bcmend.rewrite.pipeline import may_have_sites, mend
from bcmend.rewrite.sites.plan import SiteRefusal
from bcmend.tracing.entry import primitive_namespace, primitives
from bcmend.tracing.search import log
from bcmend.tracing.sites import body_states, site_table


def install(
    reached: Sequence[Reached],
    policy: Policy,
    *,
    owner: int,
    entries: frozenset[int] = frozenset(),
    stopped: bool = False,
) -> int:
    """Mend functions; return how many changed.

    Args:
        reached: the functions. Those that are deferred are not mended yet.
        policy: the user's choices.
        owner: identity of the object in whose name it happens.
        entries: identities of the functions that Dynamo may enter first; each becomes a boundary
            if a trace has ``stopped`` in them, or anything reached may turn out to have a site.

    Raises:
        MissingInTorch: no trace could be mended with this torch. Nothing is changed.
    """
    hooks.REGISTRY.require_targets()
    with compat.compile_lock, TABLE.lock:
        functions = [each.function for each in reached]
        TABLE.note_reached(owner, functions, policy)
        at_once = [each.function for each in reached if not each.deferred]
        changed = sum(install_one(each, policy, owner) for each in at_once)
        if stopped or _may_need_a_boundary(functions):
            for function in functions:
                if id(function) in entries:
                    changed += install_one(function, policy, owner, needed=True)
        return changed


#: The code that mended functions had, by what stands in its place.
_AS_WRITTEN: Final[weakref.WeakKeyDictionary[CodeType, CodeType]] = weakref.WeakKeyDictionary()


def give_own_code(functions: Iterable[FunctionType]) -> None:
    """Give copies of mended functions, made of their code, the code that the program has.

    ``cloudpickle`` makes such copies, and what copies a function to give it another docstring.
    """
    for function in functions:
        written = _AS_WRITTEN.get(function.__code__)
        if written is not None and TABLE.of(function) is None:
            function.__code__ = written


def forget_unreached(functions: Iterable[FunctionType]) -> None:
    """Forget what traces found at the code of functions that no patched object reaches by now.

    Else an object that was unpatched would be patched with the sites off that one use of it had
    switched off.
    """
    with compat.compile_lock, TABLE.lock:
        fresh = [each for each in map(TABLE.as_written, functions) if not TABLE.is_reached(each)]
        codes = [code for each in fresh for code in code_objects(each)]
        site_table.forget(codes, TABLE.codes_in_use)
        log.forget(codes)
        frames.take_up_again()
        site_table.take_up_again()
        if not TABLE.functions:
            site_table.forget_unplanned()
        body_states.assume_anew(each.body for each in TABLE.analyses_of(fresh) if each.is_written)
        TABLE.forget_places(fresh)


def watch(owner: int, target: object) -> None:
    """Forget an owner once it is gone; what it owned alone stays patched."""
    if owner in TABLE.reached:
        return
    try:
        weakref.finalize(target, TABLE.orphan, owner).atexit = False
    except TypeError:
        return  # what has no weak references stays as a number


#: Functions of torch that are mended wherever they are called, and that are no substituted calls.
_ASSERTIONS: Final = frozenset(["_assert"])

#: What takes numbers out of tensors, or gives tensors of a data-dependent size.
_OF_SIZES: Final = frozenset(
    "item tolist int float range arange nonzero argwhere where masked_select unique"
    " unique_consecutive bincount repeat_interleave"
    # What counts how often something is repeated, or how many turns a loop makes.
    " sum max cumsum prod count_nonzero split linspace interpolate pad_sequence".split()
)


def _may_need_a_boundary(functions: Sequence[FunctionType]) -> bool:
    """Return whether anything in functions may turn out to have a site."""
    return any(
        TABLE.of(function) is not None
        or has_truth_jump(function.__code__, nested=True)
        or has_name(function.__code__, _ASSERTIONS | _OF_SIZES)
        or has_subscript(function.__code__)
        or may_substitute(function.__code__, function.__globals__)
        for function in functions
    ) or may_loop_over_indices(function.__code__ for function in functions)


def install_one(
    function: FunctionType, policy: Policy, owner: int, *, needed: bool = False
) -> bool:
    """Mend one function if it has sites, or if it is ``needed`` as a boundary."""
    known = TABLE.of(function)
    if known is not None:
        known.owners.add(owner)
        return False
    mended = mended_form(function, function.__code__, policy, needed=needed)
    if mended is None or not (mended.has_lowerings or needed):
        return False
    suspends = mended.original.co_flags & SUSPENDING
    if (suspends and not mended.has_lowerings) or not _can_be_written(mended):
        return False
    put(function, Patched(_reference(function), mended.original, mended, policy, {owner}))
    return True


def _can_be_written(mended: Mended) -> bool:
    try:
        return mended.shell is not None
    except ValueError:
        return False


def _reference(function: FunctionType) -> weakref.ref[FunctionType]:
    key = id(function)

    def gone(_: object, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When Python ends, what this module names may be gone already.
        if not is_ending():
            _forget(key)

    return weakref.ref(function, gone)


def _forget(key: int) -> None:
    """Remove a function from the table, and the hooks in torch with the last one."""
    patched = TABLE.functions.pop(key, None)
    if patched is not None:
        frames.remove_code(patched.written, patched.policy)
        if not TABLE.functions:
            hooks.disarm()


#: What mended code reads of the globals of its module. It stays there: a frame that has begun with
#: mended code reads it after the function has its original code again.
_GLOBALS: Final[dict[str, object]] = {
    NAMESPACE: primitive_namespace,
    TRACING: primitives.entered,
    CALLBACK: compat.get_eval_frame_callback,
    COMPILER: torch.compiler,
}


@hooks.around(
    compat.InliningInstructionTranslator,
    methods.LOAD_GLOBAL,
    "what mended code reads of a module that was imported anew",
    gate=None,
)
def _load_global(load: Any, tx: Any, instruction: Any) -> None:
    """Load a global of bcmend's as one of the frame that the trace has begun in.

    Dynamo looks for the globals of an inlined function in the module of that name that is imported
    now. After an import anew that is another one, which has none of them.
    """
    name, known = instruction.argval, tx.f_globals
    if name not in _GLOBALS or name not in known or _imported(known) is known:
        load(tx, instruction)
        return
    tx.output.global_scope.setdefault(name, known[name])
    tx.push(compat.VariableTracker.build(tx, known[name], compat.GlobalSource(name)))


def _imported(variables: dict[str, Any]) -> dict[str, Any] | None:
    """Return the globals of the module that is imported by the name that globals have.

    Any object may stand there in place of a module.
    """
    found = getattr(sys.modules.get(variables.get("__name__", "")), "__dict__", None)
    return found if isinstance(found, dict) else None


def put(function: FunctionType, patched: Patched) -> None:
    """Give a function its mended code."""
    hooks.arm()
    # A trace that has not come to mended code yet looks where the module is imported.
    for scope in (function.__globals__, _imported(function.__globals__)):
        if scope is not None:
            scope.update(_GLOBALS)
    TABLE.functions[id(function)] = patched
    _AS_WRITTEN[patched.mended.shell] = patched.original
    codes = {patched.mended.shell, *patched.mended.sources}
    frames.add_code(codes, patched.policy)
    patched.written.extend(codes)
    compat.skip_code(patched.mended.shell)
    frames.compile_as(patched.mended.shell, patched.original)
    function.__code__ = patched.mended.shell


def note_written(patched: Patched, code: CodeType) -> None:
    """Have ``code`` count as code that frames of a mended function may have."""
    with TABLE.lock:
        if code not in patched.written:
            frames.add_code([code], patched.policy)
            patched.written.append(code)


def mended_form(
    function: FunctionType, code: CodeType, policy: Policy, *, needed: bool = False
) -> Mended | None:
    """Return what ``code`` becomes; ``None`` where it cannot be read or has nothing to mend."""
    known = TABLE.analysis(function, code, policy)
    if known is not None and all(TABLE.may_have(one, site.name) for one, site in known.sites):
        _register(known, policy)  # an equal function may have had the keys since, and be gone
        return known
    module = module_of(function)
    seen = {name: TABLE.seen(claim) for claim, name in KINDS.items()}
    context = Context(module, function.__globals__, policy, **seen, key_for=TABLE.key_for)
    if not needed and not may_have_sites(code, context):
        return None
    try:
        mended = mend(code, context)
    except ValueError:
        return None
    note_mended(function, policy, mended)
    return mended


def note_mended(function: FunctionType, policy: Policy, mended: Mended) -> None:
    """Have the site table and the analyses say of a function what its mended code has."""
    _register(mended, policy)
    TABLE.note_analysis(function, policy, mended)


def _register(mended: Mended, policy: Policy) -> None:
    """Put the sites into the site table."""
    for code, site in mended.sites:
        if isinstance(site.decision, SiteRefusal):
            continue
        live = site_table.LiveSite(site.name, site.kind, code, policy)
        known = site_table.find(site.name)
        if known is None or not known.is_like(live):
            site_table.register(live)
            known = live
        known.plan = site


def remove(owner: int | None = None) -> int:
    """Give functions their original code back; return how many.

    Args:
        owner: in whose name; a function that others own too keeps its mended code. ``None``
            means all owners.
    """
    with compat.compile_lock, TABLE.lock:
        if owner is None:
            TABLE.reached.clear()
            TABLE.policies.clear()
        else:
            TABLE.reached.pop(owner, None)
            TABLE.policies.pop(owner, None)
        return sum(_remove_one(*each, owner) for each in list(TABLE.alive()))


def remove_what_is_gone() -> int:
    """Do as ``remove`` for what stays mended in the names of owners that are gone."""
    return remove(NOBODY)


def _remove_one(function: FunctionType, patched: Patched, owner: int | None) -> bool:
    if owner is not None:
        if owner not in patched.owners:
            return False
        patched.owners.remove(owner)
        if patched.owners:
            return False
    _forget(id(function))
    if function.__code__ is patched.mended.shell:
        function.__code__ = patched.original
    return True


def owned_by(owner: int) -> list[FunctionType]:
    """Return the functions that are patched in the name of ``owner``."""
    with TABLE.lock:
        return [function for function, patched in TABLE.alive() if owner in patched.owners]


def analysed(function: FunctionType, policy: Policy) -> Mended | None:
    """Return what a function has become, or would; ``None`` if there is nothing to mend."""
    with TABLE.lock:
        known = TABLE.of(function)
        if known is not None:
            return known.mended
        return mended_form(function, function.__code__, policy)
