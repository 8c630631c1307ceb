"""Mend further where a trace has stopped, so that the next trace does better."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Final

from bcmend.bytecode.names_used import code_objects
from bcmend.bytecode.opcodes import (
    CALLS,
    COMPARISONS,
    DISCARDS,
    IDENTITIES,
    LOCAL_LOADS,
    NONE_JUMPS,
    OPERAND_RETURNS,
    row,
)
from bcmend.names import SPLIT
from bcmend.patching import site_records
from bcmend.patching.installer import (
    give_own_code,
    install,
    install_one,
    mended_form,
    note_mended,
    put,
)
from bcmend.patching.reach import Reached, reach
from bcmend.patching.subject import SUSPENDING
from bcmend.patching.table import TABLE, Patched, touches
from bcmend.policy import Policy
from bcmend.rewrite.mended import Mended
from bcmend.rewrite.passes.common_form import in_common_form
from bcmend.rewrite.sites.plan import BranchLowering, SiteRefusal
from bcmend.tracing.search.assumptions import Claim, Finding, assume_again
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import body_states, site_table
from bcmend.tracing.sites.body_states import Stop
from bcmend.tracing.sites.session import SESSION, Patcher
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes import host_functions

#: Mends patched code at a frame; returns whether it did.
_Mend = Callable[[CodeType, Stop, list[Patched]], bool]


class Retracer(Patcher):
    """Answers what tracing asks of the part that patches functions."""

    def mend_where_stopped(self, stops: Sequence[Stop]) -> bool:
        with TABLE.lock:
            on_stack = TABLE.on_stack(stops)
            if not on_stack:
                return False
            if host_functions.take_over_where_stopped(stops):
                return True
            for number, stop in enumerate(stops, start=1):
                if _mend_stop(stop, on_stack, _mend_at_jump):
                    if number > 1:
                        _note_calls_around(stops[number:], on_stack)
                    return True
            return False

    def mend_jump(self, stops: Sequence[Stop]) -> bool:
        with TABLE.lock:
            on_stack = TABLE.on_stack(stops)
            return bool(on_stack) and _mend_stop(stops[0], on_stack, _mend_at_jump)

    def call_on_the_host(self, stops: Sequence[Stop]) -> bool:
        with TABLE.lock:
            return bool(TABLE.on_stack(stops)) and host_functions.take_over_where_stopped(stops)

    def split_where_read(self, stops: Sequence[Stop], site: LiveSite | None) -> bool:
        with TABLE.lock:
            on_stack = TABLE.on_stack(stops)
            for stop in stops if on_stack else ():
                code = TABLE.original_of(stop, on_stack[0].policy)
                if code is not None:
                    if site is not None and _has_wider_forms(site, code):
                        return False
                    return _mend_stop(stop, on_stack, _split)
            return False

    def widen(self, site: LiveSite) -> bool:
        if site.kind == SPLIT:
            return False
        with TABLE.lock:
            found = TABLE.owners_of_site(site.key)
            widened = [_note_narrow(site.origin, each) and _mend_again(each) for each in found]
            return any(widened)  # of all of them

    def mask_loop(self, stops: Sequence[Stop]) -> bool:
        with TABLE.lock:
            on_stack = TABLE.on_stack(stops)
            return bool(on_stack) and _mend_stop(stops[0], on_stack, _mask_loop)

    def join_exits(self, site: LiveSite) -> bool:
        if site.plan is None:
            return False
        with TABLE.lock:
            found = TABLE.owners_of_site(site.key)
            if not (found and TABLE.note(Claim.OWN_EXIT, site.origin, {site.plan.offset})):
                return False
            joined = [_mend_again(each) for each in found]
            return any(joined)  # of all of them

    def is_named_elsewhere(self, name: str, code: CodeType) -> bool:
        return TABLE.is_named_elsewhere(name, code)

    def refusal_at(self, code: CodeType, line: int) -> tuple[str, str] | None:
        with TABLE.lock:
            for function, policy in TABLE.looked_at():
                if not any(each is code for each in code_objects(TABLE.as_written(function))):
                    continue
                for each in site_records.site_records([function], policy):
                    if each.refusal is not None and each.line == line:
                        return each.refusal, each.detail
            return None

    def source_of(self, code: CodeType) -> CodeType:
        found = TABLE.owners_of(code)
        return found[0][0].mended.sources[code] if found else code

    def as_written(self, function: FunctionType) -> CodeType:
        return TABLE.as_written(function)


def _has_wider_forms(site: LiveSite, code: CodeType) -> bool:
    """Return whether code has a site of which wider forms are tried before it is split."""
    is_branch = site.plan is not None and site.kind != SPLIT
    return is_branch and code == site.origin and site.holds(Claim.JOINED)


def _mend_stop(stop: Stop, on_stack: list[Patched], mend: _Mend) -> bool:
    policy, owners = on_stack[0].policy, {each for found in on_stack for each in found.owners}
    found = TABLE.owners_of(stop.code)
    if found:
        mended = [mend(each[0].mended.sources[stop.code], stop, each) for each in found]
        return any(mended)  # of all of them
    function = stop.function
    if function is None:
        holders = TABLE.holders_of(stop.code)
        if not holders and mend is _mend_at_jump:
            return _mend_around(stop, policy, owners)
        return any(mend(nested, stop, [holder]) for holder, nested in holders)
    if not touches(policy, function):
        return False
    known = TABLE.of(function)
    if known is not None:
        return known.runs(stop.code) and mend(known.original, stop, [known])
    if mend is _mend_at_jump:
        return _mend_newly_found(function, stop, policy, owners)
    code = function.__code__
    return (
        not code.co_flags & SUSPENDING
        and stop.code is code
        and TABLE.note(_KINDS[mend], code, _reads_at(code, stop))
        and _install_anew(function, policy, owners)
    )


def _note_calls_around(stops: Sequence[Stop], on_stack: list[Patched]) -> None:
    """Note the calls in frames around one that was mended: they would be next, one by one."""
    for stop in stops:
        code = TABLE.original_of(stop, on_stack[0].policy)
        if code is not None and _dropped_calls(code, stop):
            _mend_stop(stop, on_stack, _mend_at_jump)


def _mend_around(stop: Stop, policy: Policy, owners: set[int]) -> bool:
    """Mend the function around a generator expression that it has handed out."""
    found = [each for each in TABLE.reached_around(stop.code) if touches(policy, each[0])]
    noted = [each for each in found if _note_stop(each[1], stop)]
    installed = [_install_anew(function, policy, owners) for function, _ in noted]
    return any(installed)  # of all of them


def _note_stop(code: CodeType, stop: Stop) -> bool:
    return _note_undecided(code, _jumps_at(code, stop)) or _note_call(code, stop)


def _mend_newly_found(function: FunctionType, stop: Stop, policy: Policy, owners: set[int]) -> bool:
    """Mend a function that was not reached before, and what it reaches, in the callers' names."""
    if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    suspends = function.__code__.co_flags & inspect.CO_GENERATOR  # which a call only makes
    reached = [Reached(function, "")] if suspends else reach(function, policy)
    fresh = [each for each in reached if TABLE.of(each.function) is None]
    give_own_code(each.function for each in fresh)
    if sum(install(fresh, policy, owner=owner) for owner in owners):
        return True
    code = function.__code__
    if stop.code is not code:
        return False
    return _note_stop(code, stop) and _install_anew(function, policy, owners)


def _install_anew(function: FunctionType, policy: Policy, owners: set[int]) -> bool:
    TABLE.forget_analysis(function.__code__, policy)
    return sum(install_one(function, policy, owner) for owner in owners) > 0


# Places in code


def _jumps_at(code: CodeType, stop: Stop) -> set[int]:
    """Return the offsets of the jumps on truth, or on ``None``, where a frame has stopped."""
    instructions = in_common_form(code).instructions
    return {
        each.offset
        for each in instructions
        if (row(each.op).tests_truth or each.op in NONE_JUMPS) and each.location == stop.position
    }


def _note_undecided(code: CodeType, jumps: set[int]) -> bool:
    """Note that jumps test tensors, and so those beside them may; return whether that is new."""
    return TABLE.note(Claim.DECIDED, code, jumps | _compared_beside(code, jumps))


def _compared_beside(code: CodeType, jumps: set[int]) -> set[int]:
    """Return the jumps on comparisons in the lines of such jumps, as of ``h < 0 or w < 0``.

    Where one of the numbers is not known the others mostly are not either, and each would be found
    in a trace of its own.
    """
    compared = {
        jump.offset: jump.location.lineno
        for test, jump in itertools.pairwise(in_common_form(code).instructions)
        if test.op in COMPARISONS and row(jump.op).tests_truth and jump.location is not None
    }
    lines = {compared[each] for each in jumps if each in compared}
    return {offset for offset, line in compared.items() if line in lines}


def _tests_of_identity(code: CodeType) -> set[int]:
    """Return the jumps on ``one is other`` of two variables.

    Where paths leave different objects, that is a question of tensors. It mostly comes last, as in
    ``return y.clone() if y is x else y``, and a trace is long where code is split.
    """
    instructions = in_common_form(code).instructions
    return {
        jump.offset
        for one, other, test, jump in zip(*(instructions[at:] for at in range(4)), strict=False)
        if test.op in IDENTITIES and row(jump.op).tests_truth and {one.op, other.op} <= LOCAL_LOADS
    }


def _note_call(code: CodeType, stop: Stop) -> bool:
    """Note a call that may write, its result dropped or returned; return whether it is new."""
    return TABLE.note(Claim.WRITES_NOTHING, code, _dropped_calls(code, stop))


def _dropped_calls(code: CodeType, stop: Stop) -> set[int]:
    """Return the offsets of calls where a frame has stopped, their results dropped or returned."""
    if stop.opname not in CALLS:
        return set()
    return {
        one.offset
        for one, other in itertools.pairwise(in_common_form(code).instructions)
        if one.op in CALLS
        and other.op in DISCARDS | OPERAND_RETURNS
        and one.location == stop.position
    }


def _reads_at(code: CodeType, stop: Stop) -> set[int]:
    """Return the offsets of the instructions that a frame may have stopped at."""
    here = [each for each in in_common_form(code).instructions if each.location == stop.position]
    found = [each for each in here if each.op == stop.opname]
    # Dynamo takes a jump on None apart, into a comparison and a jump on its truth.
    found = found or [each for each in here if each.target is not None] or here[-1:]
    return {each.offset for each in found}


# What is done at a place of patched code


def _split(code: CodeType, stop: Stop, owners: list[Patched]) -> bool:
    """Split patched code in front of an instruction."""
    if not TABLE.note(Claim.WHOLE_CODE, code, _reads_at(code, stop)):
        return False
    TABLE.note(Claim.DECIDED, code, _tests_of_identity(code))
    return _mend_again(owners)


def _mask_loop(code: CodeType, stop: Stop, owners: list[Patched]) -> bool:
    """Let a loop of patched code skip iterations."""
    return TABLE.note(Claim.ALL_TURNS, code, _reads_at(code, stop)) and _mend_again(owners)


#: The kinds of place at which code is mended whatever else is known of it.
_KINDS: Final[dict[_Mend, Claim]] = {_split: Claim.WHOLE_CODE, _mask_loop: Claim.ALL_TURNS}


def _mend_at_jump(code: CodeType, stop: Stop, owners: list[Patched]) -> bool:
    """Mend a jump of patched code that was not thought to test a tensor, or mend it otherwise."""
    sites = [site for source, site in owners[0].mended.sites if source is code]
    known = {site.offset for site in sites if site.kind != SPLIT}
    jumps = _jumps_at(code, stop)
    # CPython 3.11 gives the jumps of `a > 0 or b` one position, so that another may have stopped.
    is_another = not jumps <= known and _note_undecided(code, jumps)
    if known & jumps and not is_another:
        if not _note_narrow(code, owners):
            return _go_on_in_halves(owners[0].mended, code)
    elif not (is_another or _note_stop(code, stop)):
        return False
    return _mend_again(owners) or _go_on_in_halves(owners[0].mended, code)


def _go_on_in_halves(mended: Mended, code: CodeType) -> bool:
    """Have code split where it reads what its branches have left; return whether that is new."""
    changed = False
    for source, site in mended.sites:
        live = site_table.find(site.name)
        if source is not code or live is None or not live.active:
            continue
        if site_table.is_to_be_widened(live):
            continue
        forms = live.all_found(Claim.READ_APART)
        if forms and weaken(Finding(Claim.JOINED, live)):
            for form in forms:
                assume_again(live, Claim.READ_APART, form)
            changed = True
    return changed


def _mend_again(owners: list[Patched]) -> bool:
    """Mend functions by what has been found out since; return whether more is mended now."""
    again = False
    for patched in owners:
        function, old = patched.function(), patched.mended
        if function is None:
            continue
        TABLE.forget_analysis(patched.original, patched.policy)
        fresh = mended_form(function, patched.original, patched.policy)
        if fresh is None or _forms(fresh) <= _forms(old):
            note_mended(function, patched.policy, old)
            continue
        body_states.state_of(old.body, is_body=True).newer = fresh.body
        put(function, replace(patched, mended=fresh))
        again = True
    return again


def _note_narrow(code: CodeType, owners: list[Patched]) -> bool:
    """Note that arms of branches of ``code`` should go on further; return whether that is new."""
    return TABLE.note(Claim.NARROW, code, _to_be_widened(owners[0].mended, code))


def _to_be_widened(mended: Mended, code: CodeType) -> set[int]:
    """Return the branches of ``code`` whose arms turned out to have nothing in common."""
    return {
        site.offset
        for source, site in mended.sites
        if source is code
        and isinstance(site.decision, BranchLowering)
        and site.decision.wider is None
        and (live := site_table.find(site.name)) is not None
        and live.is_worth_widening
    }


def _forms(mended: Mended) -> int:
    """Count the ways in which sites can be mended."""
    return sum(
        len(site.decision.alternatives) if isinstance(site.decision, BranchLowering) else 1
        for _, site in mended.sites
        if not isinstance(site.decision, SiteRefusal)
    )


SESSION.patcher = Retracer()
