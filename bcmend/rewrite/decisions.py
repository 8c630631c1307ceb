"""Decide about every site of a function: one lowering, or one refusal."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType

from bcmend.analysis.code_effects import LOOKING_AT_FRAMES, touched
from bcmend.analysis.conditions import Chance, may_be_open, may_be_tensor
from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.grown_lists import asks_about, grown_lists
from bcmend.bytecode.opcodes import LOOPS, row
from bcmend.cfg.regions import Branch
from bcmend.names import SPLIT
from bcmend.rewrite.mended import Context, offsets_in
from bcmend.rewrite.passes.swallowing import asks_for_swallowing
from bcmend.rewrite.passes.unbound_marks import with_marks
from bcmend.rewrite.sites.branch import propose_branch, propose_guard
from bcmend.rewrite.sites.caught import propose_caught
from bcmend.rewrite.sites.output_proposal import propose_output
from bcmend.rewrite.sites.output_statements import output_statements
from bcmend.rewrite.sites.plan import (
    BranchLowering,
    Lowering,
    OutputLowering,
    SiteRefusal,
    TruthLowering,
    chained,
)
from bcmend.rewrite.sites.split_points import facts_with_splits, propose_split
from bcmend.rewrite.sites.widen import over_flags, wider_forms

Decision = tuple[int, str, Lowering | SiteRefusal]


def decided(
    code: CodeType,
    facts: Facts,
    context: Context,
    whole: SiteRefusal | None,
    *,
    may_be_marked: bool,
) -> tuple[Facts, list[Decision]]:
    """Return facts about the function with splits and marks, and the decisions about its sites.

    Args:
        code: the original code.
        facts: the function, rearranged.
        context: what traces have reported, and the policy.
        whole: the refusal of every site, if they are all refused.
        may_be_marked: whether locals that may be unbound, and so prevent lowerings, can get marks.
    """
    split_at = {*offsets_in(code, context.splits), *_open_loops(facts)}
    unmarked, marked = facts, frozenset[str]()
    while True:
        unbound: set[str] = set()
        facts, splits = facts_with_splits(facts, split_at)
        decisions = list(_decisions(code, facts, whole, context, unbound))
        for index in splits:
            decision = whole or _noting(propose_split(facts, index), unbound)
            decisions.append((index, SPLIT, decision))
        if unbound <= marked or not may_be_marked:
            return facts, sorted(decisions, key=lambda each: each[0])
        marked |= unbound
        facts = facts_of(with_marks(unmarked, marked))


def _open_loops(facts: Facts) -> Iterator[int]:
    """Yield the offsets of loops over ranges that may end at a data-dependent number."""
    for index, each in enumerate(facts.instructions):
        is_reached = each.op in LOOPS and facts.stacks[index] is not None
        if is_reached and may_be_open(facts, index):
            yield each.offset


def _noting(decision: Lowering | SiteRefusal, unbound: set[str]) -> Lowering | SiteRefusal:
    """Return ``decision``, and add the locals that it was refused for and that can be marked."""
    if isinstance(decision, SiteRefusal):
        unbound |= decision.unbound
    return decision


def _decisions(
    code: CodeType, facts: Facts, whole: SiteRefusal | None, context: Context, unbound: set[str]
) -> Iterator[Decision]:
    """Yield the decision about each site; add the locals that prevent more and can be marked."""
    stopped = offsets_in(code, context.calls)
    for statement in output_statements(facts, context.names, stopped):
        decision = whole or propose_output(facts, statement)
        if context.policy.output != "keep" or whole or _names_callers(decision):
            yield statement.start, "output", decision
        elif statement.callee is None:  # else only a trace knows whether it writes
            yield statement.start, "output", SiteRefusal("policy-keep")
    likely = [each for each in facts.branches if is_likely(code, facts, each.jump, context)]
    grown = grown_lists(facts, likely)
    for branch in facts.branches:
        tests_length = asks_about(facts, branch.jump, grown)
        if not (_may_be_site(facts, branch) and (tests_length or branch in likely)):
            continue
        if branch.taken_raises or branch.fallthrough_raises:
            caught = None if whole else propose_caught(facts, branch)
            if isinstance(caught, BranchLowering):
                yield branch.jump, "branch", caught
            elif context.policy.guards == "keep":
                yield branch.jump, "guard", SiteRefusal("policy-keep")
            else:
                yield branch.jump, "guard", whole or _noting(propose_guard(facts, branch), unbound)
        else:
            place = id(code), facts.instructions[branch.jump].offset
            is_wide = tests_length or place in context.wide
            yield branch.jump, "branch", whole or _proposed(facts, branch, unbound, is_wide=is_wide)


def _names_callers(decision: Lowering | SiteRefusal) -> bool:
    """Return whether an output statement shows other frames than its own."""
    return isinstance(decision, OutputLowering) and decision.stack_level != 1


def _may_be_site(facts: Facts, branch: Branch) -> bool:
    """Return whether a branch is a site if the condition is likely to be a tensor."""
    return (
        facts.instructions[branch.jump].offset >= 0
        and not (branch.taken_raises and branch.fallthrough_raises)
        and not asks_for_swallowing(facts, branch.jump)
    )


def is_branch_site(code: CodeType, context: Context, facts: Facts, branch: Branch) -> bool:
    """Return whether a branch is such a site, and no arm of it always raises."""
    raises = branch.taken_raises or branch.fallthrough_raises
    is_meant = is_likely(code, facts, branch.jump, context)
    return not raises and is_meant and _may_be_site(facts, branch)


def is_likely(code: CodeType, facts: Facts, jump: int, context: Context) -> bool:
    place = (id(code), facts.instructions[jump].offset)
    return place in context.asked or may_be_tensor(facts, jump) is Chance.LIKELY


def _proposed(
    facts: Facts, branch: Branch, unbound: set[str], *, is_wide: bool
) -> Lowering | SiteRefusal:
    """Propose a branch over the tests of the flags it sets, or else the branch alone.

    With ``is_wide``, wider forms of it are proposed too, to be tried where the live-outs of the
    narrower ones have no common form.
    """
    wider = wider_forms(facts, branch) if is_wide else ()
    forms = dict.fromkeys([over_flags(facts, branch), branch, *wider])
    proposals = [propose_branch(facts, form) for form in forms]
    found = [each for each in proposals if not isinstance(each, SiteRefusal)]
    if is_wide or not found:
        unbound.update(*(each.unbound for each in proposals if isinstance(each, SiteRefusal)))
    if not found:
        return _without_arms(facts, branch, proposals[-1])
    return chained(found if is_wide else found[:1])


def _without_arms(
    facts: Facts, branch: Branch, refusal: Lowering | SiteRefusal
) -> Lowering | SiteRefusal:
    """Propose to jump by what is computed in front of the graph, where an arm yields."""
    assert isinstance(refusal, SiteRefusal)
    drops_condition = row(facts.instructions[branch.jump].op).pops_condition
    if refusal.slug != "generator" or not drops_condition:
        return refusal
    return TruthLowering(branch.jump, refusal)


def refusal_of_all(code: CodeType, facts: Facts) -> SiteRefusal | None:
    """Return the refusal of every site, for a function whose code cannot move to another frame."""
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return SiteRefusal("coroutine")
    if LOOKING_AT_FRAMES.isdisjoint(code.co_names):
        return None
    found = touched(facts, range(len(facts.instructions))).introspects
    return SiteRefusal("frame-introspection", found) if found else None
