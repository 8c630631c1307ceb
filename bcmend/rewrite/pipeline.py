"""From a code object to a mended one: the stages, in their order.

    code object
      -> decode     bytecode.decode        canonical instructions
      -> analyse    analysis.facts         blocks, operand stacks, liveness, branches
      -> rearrange  rewrite.passes         loops that may leave iterations out, jumps on ``None``
                                           taken apart, ends that CPython has copied written once,
                                           nothing saved by comprehensions that nobody reads, one
                                           branch of ``if a and b``, no paths that are never taken,
                                           ``with`` blocks left in one place
      -> decide     rewrite.decisions,     one lowering, or one refusal, for each site; marks on
                    rewrite.sites          locals that may be unbound where that allows for more
      -> name       rewrite.named_sites    the plan
      -> write      rewrite.writer         the body, its regions and deferred statements
      -> shell      rewrite.writer.shell   the original with a gate in front

Nested code objects go through the same stages; the body has their mended form.
"""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, field
from types import CodeType

from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.sketch import may_branch_on_tensor, may_loop_over_number
from bcmend.rewrite.decisions import decided, is_branch_site, is_likely, refusal_of_all
from bcmend.rewrite.mended import Context, Mended, Written, any_lowered, offsets_in
from bcmend.rewrite.named_sites import named_plan
from bcmend.rewrite.passes.chains import with_chains_joined
from bcmend.rewrite.passes.common_form import in_common_form, inlines_builtins
from bcmend.rewrite.passes.comprehensions import without_saved_variables
from bcmend.rewrite.passes.iteration_tests import with_iteration_tests
from bcmend.rewrite.passes.loop_exits import with_joined_exits
from bcmend.rewrite.passes.none_tests import with_none_tests
from bcmend.rewrite.passes.shared_exits import with_shared_exits
from bcmend.rewrite.passes.shared_tails import with_shared_tails
from bcmend.rewrite.passes.swallowing import without_swallowing
from bcmend.rewrite.sites.output_statements import may_write_output
from bcmend.rewrite.sites.plan import Site
from bcmend.rewrite.writer.code_writer import CodeWriter
from bcmend.rewrite.writer.shell import generator_gate, write_shell


def mend(code: CodeType, context: Context) -> Mended:
    """Return a function with its sites mended; it is written on demand if nothing is lowered.

    Raises:
        ValueError: the code cannot be decoded, analysed or written.
    """
    gathered = _Gathered()
    writer = _planned(code, context, gathered)
    sites = tuple(gathered.sites)
    mended = Mended(code, sites, lambda: _written(code, writer, gathered, any_lowered(sites)))
    if mended.has_lowerings:
        mended.written  # noqa: B018
    return mended


@dataclass
class _Gathered:
    """Results of a function and of those nested in it."""

    sites: list[tuple[CodeType, Site]] = field(default_factory=list)
    sources: dict[CodeType, CodeType] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)


def _written(code: CodeType, writer: CodeWriter, gathered: _Gathered, has_sites: bool) -> Written:
    if code.co_flags & inspect.CO_GENERATOR:
        shell = body = writer.both_forms(generator_gate)
    else:
        body = writer.body(with_buffer=True)
        shell = write_shell(code, body, has_sites=has_sites)
    gathered.sources.update(dict.fromkeys(writer.written, code))
    return Written(shell, body, gathered.sources)


def _planned(code: CodeType, context: Context, gathered: _Gathered) -> CodeWriter:
    """Return a writer of ``code`` that has decided about its sites, and mended nested functions."""
    facts = facts_of(in_common_form(code))
    refusal = refusal_of_all(code, facts)
    keeps_instructions = refusal is not None or bool(code.co_flags & inspect.CO_GENERATOR)
    if not keeps_instructions:
        facts = _rearranged(code, facts, context)
    facts, decisions = decided(code, facts, context, refusal, may_be_marked=not keeps_instructions)
    plan = named_plan(code, facts, decisions, context, gathered.names)
    gathered.sites.extend((code, site) for site in plan.sites)
    nested = _mend_nested(code, context, gathered)
    return CodeWriter(facts, plan, nested)


def _rearranged(code: CodeType, facts: Facts, context: Context) -> Facts:
    """Return facts about a form of the function in which more can be mended."""
    facts = with_iteration_tests(facts, offsets_in(code, context.masked_loops))
    facts = with_none_tests(facts, offsets_in(code, context.asked))
    facts = with_shared_tails(facts)
    facts = without_saved_variables(facts)
    likely = [each.jump for each in facts.branches if is_likely(code, facts, each.jump, context)]
    facts = with_chains_joined(facts, likely)
    facts = without_swallowing(facts)
    facts = with_shared_exits(facts, lambda *found: is_branch_site(code, context, *found))
    return with_joined_exits(facts, offsets_in(code, context.joined_exits))


def _mend_nested(code: CodeType, context: Context, gathered: _Gathered) -> dict[CodeType, CodeType]:
    """Return what replaces nested code objects; those without lowered sites mostly are not."""
    replaced = {}
    for constant in code.co_consts:
        if not isinstance(constant, CodeType) or not constant.co_flags & inspect.CO_OPTIMIZED:
            continue  # a value, or a class body
        if not may_have_sites(constant, context):
            continue
        inner = _Gathered(names=gathered.names)
        try:
            writer = _planned(constant, context, inner)
            if any_lowered(inner.sites) or inlines_builtins(constant):
                replaced[constant] = writer.body(with_buffer=False)
                inner.sources.update(dict.fromkeys(writer.written, constant))
        except ValueError:
            continue
        gathered.sites.extend(inner.sites)
        gathered.sources.update(inner.sources)
    return replaced


def may_have_sites(code: CodeType, context: Context) -> bool:
    """Return whether ``code`` may have sites: a cheap test without false negatives."""
    return (
        any(code_id == id(code) for code_id, _ in context.seen)
        or may_branch_on_tensor(code)
        or may_loop_over_number(code)
        or may_write_output(code, context.names)
        or any(
            isinstance(constant, CodeType) and may_have_sites(constant, context)
            for constant in code.co_consts
        )
    )
