"""Install mended code on functions, and take it away again.

Reads an object; swaps the ``__code__`` of the functions that it reaches and that have something to
mend, or that Dynamo may enter first. Keeps every original. One table, one lock.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from types import CodeType, FunctionType, SimpleNamespace
from typing import Final

import torch
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch._dynamo.eval_frame import skip_code

import bcmend.entry
from bcmend.analysis.sketch import may_choose_turns
from bcmend.codeobj.decode import decode
from bcmend.codeobj.opcodes import row
from bcmend.codeobj.scan import code_objects, has_name, has_subscript, has_truth_jump
from bcmend.names import CALLBACK, COMPILER, EXPORTING, NAMESPACE, TRACING
from bcmend.pipeline import Context, Mended, may_have_sites, mend
from bcmend.policy import Policy
from bcmend.reach import reach
from bcmend.rewrite.plan import SPLIT, BranchLowering, Refusal
from bcmend.runtime import backoff, boundary, host_functions, sites, substitution
from bcmend.runtime.backoff import Stop
from bcmend.substitutes import may_substitute

__all__ = [
    "Patched",
    "analysed",
    "forget_analyses",
    "install",
    "owned_by",
    "patched_functions",
    "remove",
]


@dataclass(slots=True, eq=False)
class Patched:
    """A function that carries mended code."""

    function: weakref.ref[FunctionType]
    original: CodeType
    mended: Mended
    policy: Policy
    owners: set[int]


#: Offsets in code objects, by the identities of these.
_Places = dict[int, tuple[CodeType, set[int]]]


@dataclass(slots=True, eq=False)
class _Table:
    """Everything that is installed in this process.

    Code objects are keyed by identity, since equal ones of different modules are not the same.
    Only ``by_code``, which finds what a code object that was written may belong to, goes by
    equality: Dynamo keeps constants, and may trace an equal arm that it met before. ``cache`` holds
    what each original became under each policy; ``asked`` the jumps where Dynamo stopped; ``wide``
    those whose arms have nothing in common where they meet; ``splits`` the instructions that read
    what such arms left; ``calls`` the calls where Dynamo stopped; ``turns`` the loops
    over what the data choose;
    ``reached`` all code that was found for each owner, mended or not.
    """

    by_function: dict[int, Patched] = field(default_factory=dict)
    by_code: dict[CodeType, dict[int, Mended]] = field(default_factory=dict)
    cache: dict[tuple[int, Policy], Mended] = field(default_factory=dict)
    asked: _Places = field(default_factory=dict)
    wide: _Places = field(default_factory=dict)
    splits: _Places = field(default_factory=dict)
    calls: _Places = field(default_factory=dict)
    turns: _Places = field(default_factory=dict)
    reached: dict[int, dict[int, CodeType]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_TABLE = _Table()


def install(
    functions: Sequence[FunctionType],
    policy: Policy,
    *,
    owner: int,
    entries: frozenset[int] = frozenset(),
) -> int:
    """Mend ``functions``; return how many changed.

    Args:
        functions: what was reached.
        policy: the user's choices.
        owner: identity of the object in whose name it happens; what several own stays patched
            until the last is unpatched.
        entries: identities of the functions that Dynamo may enter first; each becomes a boundary
            if anything reached may turn out to have a site.
    """
    with _TABLE.lock:
        found = _TABLE.reached.setdefault(owner, {})
        for function in functions:
            known = _TABLE.by_function.get(id(function))
            code = function.__code__ if known is None else known.original
            found[id(code)] = code
        changed = sum(_install_one(each, policy, owner, needed=False) for each in functions)
        if any(
            id(function) in _TABLE.by_function
            or has_truth_jump(function.__code__, nested=True)
            or has_name(function.__code__, _ASSERTIONS | _OF_SIZES)
            or has_subscript(function.__code__)
            or may_substitute(function.__code__, function.__globals__)
            for function in functions
        ) or may_choose_turns(function.__code__ for function in functions):
            for function in functions:
                if id(function) in entries:
                    changed += _install_one(function, policy, owner, needed=True)
        return changed


def _install_one(function: FunctionType, policy: Policy, owner: int, *, needed: bool) -> bool:
    """Mend one function if it has sites, or if it is ``needed`` as a boundary."""
    known = _TABLE.by_function.get(id(function))
    if known is not None:
        known.owners.add(owner)
        return False
    mended = _mended(function, function.__code__, policy, needed=needed)
    if mended is None or not (mended.has_lowerings or needed):
        return False
    if not mended.has_lowerings and mended.original.co_flags & _SUSPENDS:
        return False
    if not _can_be_written(mended):
        return False
    _put(function, Patched(_reference(function), mended.original, mended, policy, {owner}))
    return True


_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SUSPENDS = _COROUTINE | inspect.CO_GENERATOR


def _can_be_written(mended: Mended) -> bool:
    try:
        return mended.shell is not None
    except ValueError:
        return False


def _reference(function: FunctionType) -> weakref.ref[FunctionType]:
    key = id(function)

    def gone(_: object) -> None:
        _TABLE.by_function.pop(key, None)

    return weakref.ref(function, gone)


#: Functions of torch that are mended wherever they are called, and that are no substituted calls.
_ASSERTIONS: Final = frozenset(["_assert"])

#: What takes numbers out of tensors, or gives tensors of a size that only the data tell. Items may
#: be picked by a mask.
_OF_SIZES: Final = frozenset(
    "item tolist int float range arange nonzero argwhere where masked_select unique"
    " unique_consecutive bincount repeat_interleave".split()
)

#: A version of torch may not say whether it is exporting.
_COMPILER: Final[object] = (
    torch.compiler if hasattr(torch.compiler, EXPORTING) else SimpleNamespace(**{EXPORTING: False})
)


def _put(function: FunctionType, patched: Patched) -> None:
    names = function.__globals__
    names[NAMESPACE] = bcmend.entry
    names[TRACING] = torch.compiler.is_dynamo_compiling
    names[CALLBACK] = get_eval_frame_callback
    names[COMPILER] = _COMPILER
    _TABLE.by_function[id(function)] = patched
    for code in patched.mended.sources:
        _TABLE.by_code.setdefault(code, {})[id(patched.mended)] = patched.mended
    skip_code(patched.mended.shell)
    function.__code__ = patched.mended.shell


def _mended(
    function: FunctionType, code: CodeType, policy: Policy, *, needed: bool = False
) -> Mended | None:
    """Return what ``code`` becomes; ``None`` where it cannot be read or has nothing to mend."""
    key = (id(code), policy)
    if key in _TABLE.cache:
        return _TABLE.cache[key]
    module = str(function.__globals__.get("__name__", ""))
    asked, wide, splits, calls, turns = (
        frozenset(
            (id(stopped), offset) for stopped, offsets in table.values() for offset in offsets
        )
        for table in (_TABLE.asked, _TABLE.wide, _TABLE.splits, _TABLE.calls, _TABLE.turns)
    )
    context = Context(module, function.__globals__, policy, asked, wide, splits, calls, turns)
    if not needed and not may_have_sites(code, context):
        return None
    try:
        mended = mend(code, context)
    except ValueError:
        return None
    _register(mended, policy)
    _TABLE.cache[key] = mended
    return mended


def _register(mended: Mended, policy: Policy) -> None:
    """Make the sites known to the runtime."""
    for code, site in mended.sites:
        if not isinstance(site.decision, Refusal):
            live = sites.LiveSite(
                site.name, site.kind, code, policy.branch, policy.output, policy.guards
            )
            known = sites.find(site.name)
            if known is None or not known.is_like(live):
                sites.register(live)
                known = live
            known.inside, known.place = site.inside, site.place
            if isinstance(site.decision, BranchLowering):
                forms = site.decision.alternatives
                known.returning = tuple(form.returns for form in forms)
                known.flags = tuple(form.flags for form in forms)


def remove(owner: int | None = None) -> int:
    """Give functions their original code back; return how many.

    Args:
        owner: in whose name; a function that others own too keeps its mended code. ``None`` stands
            for all owners.
    """
    with _TABLE.lock:
        if owner is None:
            _TABLE.reached.clear()
        else:
            _TABLE.reached.pop(owner, None)
        removed = [function for function in list(_installed()) if _remove_one(function, owner)]
        _clean_globals(removed)
        return len(removed)


def _remove_one(function: FunctionType, owner: int | None) -> bool:
    patched = _TABLE.by_function.get(id(function))
    if patched is None or (owner is not None and owner not in patched.owners):
        return False
    if owner is not None:
        patched.owners.remove(owner)
        if patched.owners:
            return False
    del _TABLE.by_function[id(function)]
    if function.__code__ is patched.mended.shell:
        function.__code__ = patched.original
    return True


def _installed() -> Iterator[FunctionType]:
    for patched in list(_TABLE.by_function.values()):
        function = patched.function()
        if function is not None:
            yield function


def _clean_globals(removed: Iterable[FunctionType]) -> None:
    """Take bcmend's names out of modules in which nothing is patched any more."""
    in_use = {id(function.__globals__) for function in _installed()}
    for function in removed:
        names = function.__globals__
        if id(names) not in in_use:
            for name in (NAMESPACE, TRACING, CALLBACK, COMPILER):
                names.pop(name, None)


def patched_functions(functions: Iterable[FunctionType]) -> list[Patched]:
    """Return the records of those of ``functions`` that are patched."""
    found = (_TABLE.by_function.get(id(function)) for function in functions)
    return [patched for patched in found if patched is not None]


def owned_by(owner: int) -> list[FunctionType]:
    """Return the functions that are patched in the name of ``owner``."""
    with _TABLE.lock:
        found = [each for each in _TABLE.by_function.values() if owner in each.owners]
    return [function for each in found if (function := each.function()) is not None]


def forget_analyses() -> None:
    """Have code that is analysed from now on looked at afresh."""
    with _TABLE.lock:
        _TABLE.cache.clear()


def analysed(function: FunctionType, policy: Policy) -> Mended | None:
    """Return what a function has become, or would; ``None`` where there is nothing to say."""
    with _TABLE.lock:
        known = _TABLE.by_function.get(id(function))
        return known.mended if known is not None else _mended(function, function.__code__, policy)


# Where Dynamo stopped


def _mend_where_stopped(stops: list[Stop]) -> bool:
    """Mend the innermost code that can be mended and was not."""
    with _TABLE.lock:
        on_stack = _on_stack(stops)
        if not on_stack:
            return False
        owners = {owner for patched in on_stack for owner in patched.owners}
        if host_functions.take_over_where_stopped(stops):
            return True
        return any(_mend_stop(stop, on_stack[0].policy, owners, _mend_asked) for stop in stops)


def _split_where_read(stops: list[Stop], site: sites.LiveSite | None) -> bool:
    """Split the innermost code that can be mended, where it reads what ``site`` has left.

    Code that has the site itself is not, before its wider forms have been tried.
    """
    with _TABLE.lock:
        on_stack = _on_stack(stops)
        if not on_stack:
            return False
        owners = {owner for patched in on_stack for owner in patched.owners}
        policy = on_stack[0].policy
        for stop in stops:
            code = _original(stop, policy)
            if code is not None:
                return not _waits(site, code) and _mend_stop(stop, policy, owners, _split_asked)
        return False


def _leave_turns_out(stops: list[Stop]) -> bool:
    """Write the loop anew at which the innermost frame is."""
    with _TABLE.lock:
        on_stack = _on_stack(stops)
        owners = {owner for patched in on_stack for owner in patched.owners}
        return bool(on_stack) and _mend_stop(stops[0], on_stack[0].policy, owners, _turns_asked)


def _waits(site: sites.LiveSite | None, code: CodeType) -> bool:
    """Whether wider forms of a site of ``code`` are to be tried before it is split."""
    if site is None or site.kind == SPLIT or site.goes_on_in_halves:
        return False
    return code == site.origin


def _on_stack(stops: Iterable[Stop]) -> list[Patched]:
    return [each for stop in stops for found in _owners(stop.code) for each in found]


def _original(stop: Stop, policy: Policy) -> CodeType | None:
    """Return the code behind a frame, as it was; ``None`` for code that is not to be touched."""
    for owners in _owners(stop.code):
        return owners[0].mended.sources[stop.code]
    for _, nested in _holders(stop.code):
        return nested
    function = stop.function
    if function is None or not policy.touches(str(function.__globals__.get("__name__", ""))):
        return None
    known = _TABLE.by_function.get(id(function))
    return known.original if known is not None and _runs(known, stop.code) else stop.code


def _owners(code: CodeType) -> list[list[Patched]]:
    """Return the functions that ``code`` was written for; those with one result together."""
    found = [
        [each for each in _TABLE.by_function.values() if each.mended is mended]
        for mended in _TABLE.by_code.get(code, {}).values()
    ]
    return [patched for patched in found if patched]


def _holders(code: CodeType) -> list[tuple[Patched, CodeType]]:
    """Return the functions in which ``code`` is nested, itself not yet rewritten, and where.

    Dynamo may have met an equal constant before, and then it names that one.
    """
    return [
        (each, nested)
        for each in _TABLE.by_function.values()
        for nested in code_objects(each.original)
        if nested is not each.original and nested == code and nested.co_filename == code.co_filename
    ]


_Mend = Callable[[CodeType, Stop, list[Patched]], bool]


def _mend_stop(stop: Stop, policy: Policy, owners: set[int], mend: _Mend) -> bool:
    found = _owners(stop.code)
    if found:
        mended = [mend(each[0].mended.sources[stop.code], stop, each) for each in found]
        return any(mended)
    function = stop.function
    if function is None:
        return any(mend(nested, stop, [holder]) for holder, nested in _holders(stop.code))
    if not policy.touches(str(function.__globals__.get("__name__", ""))):
        return False
    known = _TABLE.by_function.get(id(function))
    if known is None and mend in _PLACES:
        return _place_newly_found(function, stop, policy, owners, _PLACES[mend])
    if known is None:
        return _mend_newly_found(function, stop, policy, owners)
    return _runs(known, stop.code) and mend(known.original, stop, [known])


def _runs(patched: Patched, code: CodeType) -> bool:
    """Whether ``code`` has the original instructions of a function; a shell has them too."""
    return code is patched.original or code is patched.mended.shell


def _place_newly_found(
    function: FunctionType, stop: Stop, policy: Policy, owners: set[int], table: _Places
) -> bool:
    code = function.__code__
    if code.co_flags & _SUSPENDS or stop.code is not code:
        return False
    if not _note(table, code, _reads_at(code, stop)):
        return False
    _TABLE.cache.pop((id(code), policy), None)
    return sum(_install_one(function, policy, owner, needed=False) for owner in owners) > 0


def _mend_newly_found(function: FunctionType, stop: Stop, policy: Policy, owners: set[int]) -> bool:
    """Mend a function that was not reached before, and what it reaches, in the callers' names."""
    if function.__code__.co_flags & _COROUTINE:
        return False
    suspends = function.__code__.co_flags & inspect.CO_GENERATOR  # which a call only makes
    reached = [function] if suspends else [each.function for each in reach(function, policy)]
    fresh = [each for each in reached if id(each) not in _TABLE.by_function]
    changed = sum(install(fresh, policy, owner=owner) for owner in owners)
    if (
        not changed
        and stop.code is function.__code__
        and (
            _note(_TABLE.asked, stop.code, _jumps_at(stop.code, stop.position))
            or _note_call(stop.code, stop)
        )
    ):
        _TABLE.cache.pop((id(function.__code__), policy), None)
        changed = sum(_install_one(function, policy, owner, needed=False) for owner in owners)
    return changed > 0


def _note(table: _Places, code: CodeType, jumps: set[int]) -> bool:
    """Add jumps of ``code`` to a table; ``False`` if they were there."""
    _, offsets = table.setdefault(id(code), (code, set()))
    fresh = jumps - offsets
    offsets |= fresh
    return bool(fresh)


def _jumps_at(code: CodeType, position: tuple[int | None, ...]) -> set[int]:
    """Return the offsets of the jumps on truth at a source position."""
    return {
        instruction.offset
        for instruction in decode(code).instructions
        if row(instruction.op).tests_truth
        and instruction.location is not None
        and astuple(instruction.location) == position
    }


def _note_call(code: CodeType, stop: Stop) -> bool:
    """Note a call that may write, its result dropped or returned; ``False`` if it was noted."""
    if not stop.opname.startswith("CALL"):
        return False
    instructions = decode(code).instructions
    return _note(
        _TABLE.calls,
        code,
        {
            one.offset
            for one, other in itertools.pairwise(instructions)
            if one.op.startswith("CALL")
            and other.op in ("POP_TOP", "RETURN_VALUE")
            and one.location is not None
            and astuple(one.location) == stop.position
        },
    )


def _reads_at(code: CodeType, stop: Stop) -> set[int]:
    """Return the offsets of the instructions that a frame may have stopped at."""
    here = [
        instruction
        for instruction in decode(code).instructions
        if instruction.location is not None and astuple(instruction.location) == stop.position
    ]
    name = stop.opname.replace("FORWARD_", "").replace("BACKWARD_", "").replace("PRECALL", "CALL")
    found = [each for each in here if each.op == name]
    # Dynamo takes a jump on None apart, into a comparison and a jump on its truth.
    found = found or [each for each in here if each.target is not None] or here[-1:]
    return {each.offset for each in found}


def _split_asked(code: CodeType, stop: Stop, owners: list[Patched]) -> bool:
    """Split patched code in front of an instruction."""
    if not _note(_TABLE.splits, code, _reads_at(code, stop)):
        return False
    return _mend_again(owners)


def _turns_asked(code: CodeType, stop: Stop, owners: list[Patched]) -> bool:
    """Let a loop of patched code leave turns out."""
    return _note(_TABLE.turns, code, _reads_at(code, stop)) and _mend_again(owners)


#: What is asked for at a place, whatever else is known of the code, and where that is noted.
_PLACES: Final[dict[_Mend, _Places]] = {_split_asked: _TABLE.splits, _turns_asked: _TABLE.turns}


def _mend_asked(code: CodeType, stop: Stop, owners: list[Patched]) -> bool:
    """Mend a jump of patched code that was not thought to test a tensor, or mend it otherwise."""
    known = {site.offset for source, site in owners[0].mended.sites if source is code}
    jumps = _jumps_at(code, stop.position)
    if known & jumps:
        if not _note(_TABLE.wide, code, _to_be_widened(owners[0].mended, code)):
            return _go_on_in_halves(owners[0].mended, code)
    elif not _note(_TABLE.asked, code, jumps) and not _note_call(code, stop):
        return False
    return _mend_again(owners) or _go_on_in_halves(owners[0].mended, code)


def _go_on_in_halves(mended: Mended, code: CodeType) -> bool:
    """Have code split where it reads what branches of its own have left; ``False`` if it was."""
    changed = False
    for source, site in mended.sites:
        live = sites.find(site.name)
        if source is code and live is not None and live.reads and not live.goes_on_in_halves:
            live.reads.clear()
            live.goes_on_in_halves = changed = True
    return changed


def _mend_again(owners: list[Patched]) -> bool:
    """Mend functions anew, by what has been found out since; say whether more is mended now."""
    again = False
    for patched in owners:
        function, old = patched.function(), patched.mended
        if function is None:
            continue
        _TABLE.cache.pop((id(patched.original), patched.policy), None)
        fresh = _mended(function, patched.original, patched.policy)
        if fresh is None or _forms(fresh) <= _forms(old):
            continue
        backoff.state_of(old.body, is_body=True).newer = fresh.body
        _put(function, replace(patched, mended=fresh))
        again = True
    return again


def _to_be_widened(mended: Mended, code: CodeType) -> set[int]:
    """Return the branches of ``code`` whose arms turned out to have nothing in common."""
    return {
        site.offset
        for source, site in mended.sites
        if source is code
        and isinstance(site.decision, BranchLowering)
        and site.decision.wider is None
        and (live := sites.find(site.name)) is not None
        and live.is_worth_widening
    }


def _forms(mended: Mended) -> int:
    """Count the ways in which sites can be mended."""
    return sum(
        len(site.decision.alternatives) if isinstance(site.decision, BranchLowering) else 1
        for _, site in mended.sites
        if not isinstance(site.decision, Refusal)
    )


def _named_elsewhere(name: str, code: CodeType) -> bool:
    """Whether code that is reached together with ``code``, other than it, names an attribute."""
    return any(
        _names(other, name, code)
        for found in _TABLE.reached.values()
        if any(_within(code, each) for each in found.values())
        for other in found.values()
    )


def _within(code: CodeType, outer: CodeType) -> bool:
    return any(code is each for each in code_objects(outer))


def _names(code: CodeType, name: str, but: CodeType) -> bool:
    """Whether ``code``, or code nested in it, names ``name``; ``but`` does not count."""
    return any(
        each is not but and (name in each.co_names or name in each.co_consts)
        for each in code_objects(code)
    )


def _policy_over(code: CodeType) -> Policy | None:
    """Return the policy under which ``code``, or the function it was written for, was patched."""
    for found in _owners(code):
        return found[0].policy
    for patched in list(_TABLE.by_function.values()):
        if code is patched.mended.shell:
            return patched.policy
    return None


def _as_written(function: FunctionType) -> CodeType:
    """Return the code of a function before it was patched."""
    known = _TABLE.by_function.get(id(function))
    return function.__code__ if known is None else known.original


sites.named_elsewhere = _named_elsewhere
host_functions.code_of = _as_written
substitution.policy_over = _policy_over
boundary.install(_mend_where_stopped, _split_where_read, _leave_turns_out)
