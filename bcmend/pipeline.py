"""From a code object to a mended one: the stages, in their order.

    code object
      -> decode          codeobj.decode     canonical instructions
      -> analyse         analysis.facts     blocks, operand stacks, liveness, branches
      -> arrange         rewrite.chains,    one branch of ``if a and b``, no ways that are never
                         turns, swallowing, taken, loops that may leave turns out, blocks left
                         exits, unbound,    in one place, marks on locals that may be unbound,
                         shared_tails,      ends that CPython has copied written once, nothing
                         comprehensions     put aside by comprehensions for nobody
      -> plan            rewrite.branch,    one lowering, or one refusal, for each site
                         rewrite.caught,
                         rewrite.defer
      -> write           rewrite.write      the body, its arms and deferred statements
      -> shell           rewrite.shell      the original with a gate in front

Each stage is a function from frozen data to frozen data. Nested code objects go through the same
stages; their mended form stands in the body.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import CodeType
from typing import Any

from bcmend.analysis.conditions import may_be_open, may_be_tensor
from bcmend.analysis.effects import LOOKING_AT_FRAMES, touched
from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.sketch import may_branch_on_tensor, may_loop_over_number
from bcmend.cfg.graph import decoded_index
from bcmend.cfg.regions import Branch
from bcmend.codeobj.decode import decode
from bcmend.codeobj.opcodes import row
from bcmend.policy import Policy
from bcmend.rewrite.branch import propose_branch, propose_guard
from bcmend.rewrite.caught import propose_caught
from bcmend.rewrite.chains import with_chains_joined
from bcmend.rewrite.comprehensions import without_saved_variables
from bcmend.rewrite.defer import propose_output
from bcmend.rewrite.exits import with_shared_exits
from bcmend.rewrite.plan import SPLIT, BranchLowering, Lowering, Plan, Refusal, Site, chained
from bcmend.rewrite.shared_tails import with_shared_tails
from bcmend.rewrite.shell import generator_gate, write_shell
from bcmend.rewrite.splits import facts_with_splits, propose_split
from bcmend.rewrite.statements import may_write_output, output_statements
from bcmend.rewrite.swallowing import asks_for_swallowing, without_swallowing
from bcmend.rewrite.turns import with_turns_left_out
from bcmend.rewrite.unbound import with_marks
from bcmend.rewrite.widen import over_flags, wider_forms
from bcmend.rewrite.write import CodeWriter

__all__ = ["Context", "Mended", "may_have_sites", "mend"]


@dataclass(frozen=True, slots=True)
class Context:
    """What mending needs to know beside the code.

    Attributes:
        module: name of the module that the function belongs to.
        names: the module's globals.
        policy: the user's choices.
        asked: (identity of code, offset) of jumps at which Dynamo was seen to stop; they are mended
            even if nothing in the code says that their conditions may be tensors.
        wide: those of them whose arms turned out to have nothing in common where they meet; they
            get wider forms to try.
        splits: (identity of code, offset) of instructions that were seen to read a value which has
            one form on each side of a branch.
        calls: (identity of code, offset) of calls at which Dynamo was seen to stop.
        turns: (identity of code, offset) of loops that were seen to go over what the data choose.
    """

    module: str
    names: Mapping[str, Any]
    policy: Policy
    asked: frozenset[tuple[int, int]] = frozenset()
    wide: frozenset[tuple[int, int]] = frozenset()
    splits: frozenset[tuple[int, int]] = frozenset()
    calls: frozenset[tuple[int, int]] = frozenset()
    turns: frozenset[tuple[int, int]] = frozenset()

    def splits_in(self, code: CodeType) -> list[int]:
        """Return the offsets at which ``code`` is to be split."""
        return [offset for code_id, offset in self.splits if code_id == id(code)]

    def turns_in(self, code: CodeType) -> list[int]:
        """Return the offsets of the loops of ``code`` that are to leave turns out."""
        return [offset for code_id, offset in self.turns if code_id == id(code)]

    @property
    def seen(self) -> frozenset[tuple[int, int]]:
        """All places at which a trace has shown something."""
        return self.asked | self.splits | self.calls | self.turns


@dataclass(frozen=True, slots=True)
class Written:
    """The code objects that were written for one function.

    Attributes:
        shell: what the function's ``__code__`` becomes.
        body: what the shell calls; for a generator, the shell itself.
        sources: for each code object written, the original code it was made from.
    """

    shell: CodeType
    body: CodeType
    sources: Mapping[CodeType, CodeType]


@dataclass(frozen=True)
class Mended:
    """What became of one function.

    Attributes:
        original: the code object it was made from.
        sites: of the function and of the functions nested in it, with the code each belongs to.
        write: writes the code objects; asked once, and at once only if there is a lowering.
    """

    original: CodeType
    sites: tuple[tuple[CodeType, Site], ...]
    write: Callable[[], Written] = field(repr=False)

    @property
    def has_lowerings(self) -> bool:
        return _any_lowered(self.sites)

    @cached_property
    def written(self) -> Written:
        """The code objects. Raises ``ValueError`` where they cannot be made."""
        return self.write()

    @property
    def shell(self) -> CodeType:
        return self.written.shell

    @property
    def body(self) -> CodeType:
        return self.written.body

    @property
    def sources(self) -> Mapping[CodeType, CodeType]:
        return self.written.sources


def mend(code: CodeType, context: Context) -> Mended:
    """Mend a function. Raises ``ValueError`` for code that cannot be decoded, analysed or written.

    A function in which nothing is lowered is written when that is asked for.
    """
    gathered = _Gathered()
    writer = _planned(code, context, gathered)
    sites = tuple(gathered.sites)
    mended = Mended(code, sites, lambda: _written(code, writer, gathered, _any_lowered(sites)))
    if mended.has_lowerings:
        mended.written  # noqa: B018
    return mended


@dataclass
class _Gathered:
    """Results of a function and of those nested in it."""

    sites: list[tuple[CodeType, Site]] = field(default_factory=list)
    sources: dict[CodeType, CodeType] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)

    def take(self, code: CodeType, written: Iterable[CodeType]) -> None:
        """Note which code objects were written for ``code``."""
        self.sources.update(dict.fromkeys(written, code))


def _any_lowered(sites: Iterable[tuple[CodeType, Site]]) -> bool:
    return any(not isinstance(site.decision, Refusal) for _, site in sites)


def _written(code: CodeType, writer: CodeWriter, gathered: _Gathered, has_sites: bool) -> Written:
    if code.co_flags & inspect.CO_GENERATOR:
        both = writer.both_ways(generator_gate)
        gathered.take(code, writer.written)
        return Written(both, both, gathered.sources)
    body = writer.body(with_buffer=True)
    gathered.take(code, writer.written)
    shell = write_shell(code, body, has_sites=has_sites)
    return Written(shell, body, gathered.sources)


def _planned(code: CodeType, context: Context, gathered: _Gathered) -> CodeWriter:
    """Decide about every site of ``code``, and mend the functions nested in it."""
    facts, decisions = _decided(code, context)
    plan = _plan(code, facts, decisions, context, gathered.names)
    gathered.sites.extend((code, site) for site in plan.sites)
    nested = _mend_nested(code, context, gathered)
    return CodeWriter(facts, plan, lambda site: site.name, nested)


def _mend_nested(code: CodeType, context: Context, gathered: _Gathered) -> dict[CodeType, CodeType]:
    """Mend the functions that a function makes; those without sites stay the same objects."""
    replaced = {}
    for constant in code.co_consts:
        if not isinstance(constant, CodeType) or not may_have_sites(constant, context):
            continue
        if constant.co_flags & inspect.CO_OPTIMIZED == 0:
            continue  # a class body
        inner = _Gathered(names=gathered.names)
        try:
            writer = _planned(constant, context, inner)
            if _any_lowered(inner.sites):
                replaced[constant] = writer.body(with_buffer=False)
                inner.take(constant, writer.written)
        except ValueError:
            continue
        gathered.sites.extend(inner.sites)
        gathered.sources.update(inner.sources)
    return replaced


def may_have_sites(code: CodeType, context: Context) -> bool:
    """Whether it is worth decoding ``code``: a cheap look that never misses a site."""
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


Decision = tuple[int, str, Lowering | Refusal]


def _decided(code: CodeType, context: Context) -> tuple[Facts, list[Decision]]:
    """Decide about every site of one code object, by their instructions.

    Where locals stand in the way because they may be unbound, they get marks.
    """
    facts = facts_of(decode(code))
    whole = _refusal_of_all(code, facts)
    keeps_instructions = bool(whole or code.co_flags & inspect.CO_GENERATOR)
    if not keeps_instructions:
        facts = with_turns_left_out(facts, context.turns_in(code))
        facts = _rearranged(code, facts, context)
    split_at = {*context.splits_in(code), *_open_loops(facts)}
    unmarked, marked = facts, frozenset[str]()
    while True:
        unbound: set[str] = set()
        facts, splits = facts_with_splits(facts, split_at)
        decisions = [
            *_decisions(code, facts, whole, context, unbound),
            *(
                (index, SPLIT, whole or _noting(propose_split(facts, index), unbound))
                for index in splits
            ),
        ]
        if unbound <= marked or keeps_instructions:
            return facts, sorted(decisions, key=lambda each: each[0])
        marked |= unbound
        facts = facts_of(with_marks(unmarked, marked))


def _open_loops(facts: Facts) -> Iterator[int]:
    """Yield the offsets of loops that may go over a range up to a number out of a tensor."""
    for index, instruction in enumerate(facts.instructions):
        is_reached = instruction.op == "FOR_ITER" and facts.stacks[index] is not None
        if is_reached and may_be_open(facts, index):
            yield instruction.offset


def _rearranged(code: CodeType, facts: Facts, context: Context) -> Facts:
    """Return facts about a form of the function in which more can be mended."""
    facts = without_saved_variables(with_shared_tails(facts))
    likely = [each.jump for each in facts.branches if _is_likely(code, facts, each.jump, context)]
    joined = with_chains_joined(facts, likely)
    facts = without_swallowing(facts if joined is None else facts_of(joined))
    return with_shared_exits(facts, lambda *found: _is_branch_site(code, context, *found))


def _is_likely(code: CodeType, facts: Facts, jump: int, context: Context) -> bool:
    place = (id(code), facts.instructions[jump].offset)
    return place in context.asked or may_be_tensor(facts, jump) == "likely"


def _noting(decision: Lowering | Refusal, unbound: set[str]) -> Lowering | Refusal:
    """Add the locals for whose marks ``decision`` would be another; return it as it is."""
    if isinstance(decision, Refusal):
        unbound |= decision.unbound
    return decision


def _plan(
    code: CodeType,
    facts: Facts,
    decisions: Iterable[Decision],
    context: Context,
    names: Counter[str],
) -> Plan:
    """Name every site of one code object."""
    prefix = f"{context.module}.{code.co_qualname}"
    sites = []
    for index, kind, decision in decisions:
        instruction = facts.instructions[index]
        line = None if instruction.location is None else instruction.location.lineno
        name = f"{prefix}:{line}:{kind}"
        names[name] += 1
        if names[name] > 1:
            name = f"{name}#{names[name]}"
        if context.policy.is_off(name):
            decision = Refusal("switched-off")
        inside = _inside(facts, decision)
        sites.append(Site(name, kind, index, line, instruction.offset, decision, inside))
    return Plan(_with_places(facts, sites))


def _with_places(facts: Facts, sites: Sequence[Site]) -> tuple[Site, ...]:
    """Mark the branches that a turn of a loop comes back to, before the loop and in it."""
    places = {
        position: _place(facts, site.decision)
        for position, site in enumerate(sites)
        if isinstance(site.decision, BranchLowering) and _may_end_a_loop(facts, site)
    }
    in_loops = {
        place
        for position, place in places.items()
        if facts.graph.block_of[sites[position].index] in _blocks(sites[position])
    }
    return tuple(
        replace(site, place=places[position]) if places.get(position) in in_loops else site
        for position, site in enumerate(sites)
    )


def _blocks(site: Site) -> frozenset[int]:
    return site.decision.blocks if isinstance(site.decision, BranchLowering) else frozenset()


def _may_end_a_loop(facts: Facts, site: Site) -> bool:
    """Whether a branch may leave a loop: a jump does, and so does an iterator at its end."""
    return site.kind != SPLIT or facts.instructions[site.index].op == "FOR_ITER"


def _place(facts: Facts, branch: BranchLowering) -> tuple[int, int, int]:
    """Return where a branch goes on, and its join, whatever jumps lie in between."""
    then_entry, else_entry = (
        _past_jumps(facts, each) for each in (branch.then_entry, branch.else_entry)
    )
    return then_entry, else_entry, branch.join


def _past_jumps(facts: Facts, block: int) -> int:
    """Follow blocks that hold nothing but a jump, as Python 3.12 puts before a loop's next turn."""
    graph = facts.graph
    for _ in graph.blocks:
        first, last = graph.blocks[block].start, graph.last(block)
        instruction = facts.instructions[first]
        if first != last or instruction.target is None or row(instruction.op).falls_through:
            break
        block = graph.block_of[decoded_index(instruction.target)]
    return block


def _inside(facts: Facts, decision: Lowering | Refusal) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the offsets of the stretches of a branch's arms, for each of its forms."""
    if not isinstance(decision, BranchLowering):
        return ()
    offsets = [
        [each.offset for each in facts.instructions[block.start : block.end] if each.offset >= 0]
        for block in facts.graph.blocks
    ]
    return tuple(
        tuple((offsets[block][0], offsets[block][-1]) for block in sorted(form.blocks))
        for form in decision.alternatives
    )


def _decisions(
    code: CodeType,
    facts: Facts,
    whole: Refusal | None,
    context: Context,
    unbound: set[str],
) -> Iterator[Decision]:
    """Yield what is decided of each site; add the locals whose marks would allow for more."""
    if context.policy.output != "keep" or whole is not None:
        stopped = [offset for code_id, offset in context.calls if code_id == id(code)]
        for statement in output_statements(facts, context.names, stopped):
            yield statement.start, "output", whole or propose_output(facts, statement)
    for branch in facts.branches:
        if not _is_site(code, context, facts, branch):
            continue
        if branch.taken_raises or branch.fallthrough_raises:
            caught = None if whole else propose_caught(facts, branch)
            if isinstance(caught, BranchLowering):
                yield branch.jump, "branch", caught
            elif context.policy.guards == "keep":
                yield branch.jump, "guard", Refusal("policy-keep")
            else:
                yield branch.jump, "guard", whole or _noting(propose_guard(facts, branch), unbound)
            continue
        is_wide = (id(code), facts.instructions[branch.jump].offset) in context.wide
        yield branch.jump, "branch", whole or _proposed(facts, branch, unbound, is_wide=is_wide)


def _is_site(code: CodeType, context: Context, facts: Facts, branch: Branch) -> bool:
    """Whether a branch is likely to be one on a tensor, or Dynamo was seen to stop there."""
    is_inserted = facts.instructions[branch.jump].offset < 0
    if is_inserted or (branch.taken_raises and branch.fallthrough_raises):
        return False
    if asks_for_swallowing(facts, branch.jump):
        return False
    return _is_likely(code, facts, branch.jump, context)


def _is_branch_site(code: CodeType, context: Context, facts: Facts, branch: Branch) -> bool:
    """Whether a branch is such a site and no arm of it raises."""
    raises = branch.taken_raises or branch.fallthrough_raises
    return not raises and _is_site(code, context, facts, branch)


def _proposed(
    facts: Facts, branch: Branch, unbound: set[str], *, is_wide: bool
) -> Lowering | Refusal:
    """Propose a branch over the tests of the flags it sets, or else the branch alone.

    With ``is_wide``, wider forms of it are proposed too, for where that turns out not to do.
    """
    forms = dict.fromkeys([over_flags(facts, branch), branch])
    if is_wide:
        forms.update(dict.fromkeys(wider_forms(facts, branch)))
    proposals = [propose_branch(facts, form) for form in forms]
    found = [each for each in proposals if not isinstance(each, Refusal)]
    if is_wide or not found:
        unbound.update(*(each.unbound for each in proposals if isinstance(each, Refusal)))
    if not found:
        return proposals[-1]
    return chained(found if is_wide else found[:1])


def _refusal_of_all(code: CodeType, facts: Facts) -> Refusal | None:
    """Refuse every site of a function whose frame cannot become another one."""
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return Refusal("coroutine")
    if LOOKING_AT_FRAMES.isdisjoint(code.co_names):
        return None
    touches = touched(facts, range(len(facts.instructions)))
    if touches.introspects:
        return Refusal("frame-introspection", touches.introspects)
    return None
