"""How deep branches may be nested, and how much of them is traced, before they are refused.

Where a branch returns, or leaves a loop, the rest of the function is part of one of its arms, with
all later branches in it. Dynamo needs Python frames for each level; where both arms have the rest,
each level doubles what is traced; and torch compiles a ``torch.cond`` inside another more than
once. Past the bounds below the whole chain is refused: the innermost branch raises ``TooDeep``,
and the outermost has the frame traced again without any of them, at the cost of one trace.

What was measured for a bound, here and elsewhere, was measured with torch 2.13.0 on one core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch.fx import Graph, Node

from bcmend import meta_keys
from bcmend.dynamo import compat, frames
from bcmend.dynamo.slots import Slot, pushed
from bcmend.names import SPLIT
from bcmend.tracing.search import budget, log
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify, weaken
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.locations import Location
from bcmend.tracing.sites.session import SESSION
from bcmend.tracing.sites.site_table import LiveSite

#: Branches that may be nested. Of a chain of returns 24 take 9 times as long to trace as two (1.6
#: s), 32 take 14 times, and 40 are more than Python's stack can hold: a part of it is left to the
#: caller.
LEVELS: Final = 24

#: Arms that may be traced for the sake of one outermost branch. Each takes 15 to 20 ms: 366 take 5
#: s, and with one more branch behind them, 971 take 20 s.
ARMS: Final = 400

#: Operators ``torch.cond`` that may be nested. With "aot_eager" each level up to six takes 1.6 to
#: 2.2 times as long to compile as those inside: five take 10 times as long as one
#: (5 s), seven 20 times.
CONDS: Final = 5

#: Operations that torch may have to look at for one ``torch.cond``, those of each one inside twice.
#: With "aot_eager" each takes 14 to 16 ms, from 136 of them to 496, which makes 40 s at the bound.
OPERATIONS: Final = 2500

#: From so many levels on, operators ``torch.cond`` that can be are written behind each other.
FLAT_FROM: Final = 3

#: So many branches, one in another, each of which takes nearly twice as long as the one in it, say
#: that those around them do as well. No limit is waited for that they would reach so often.
DOUBLED: Final = 2
OFTEN: Final = 2

#: How often a split is inside itself for a value that has many forms: once for each but one, where
#: it reads an item at a place that is not known. More often it is in turns of a loop.
FORMS: Final = 8


class TooDeep(BaseException):
    """A chain of branches is refused.

    No ``Exception``, since what traces arms in between takes those for failures of its own.

    Attributes:
        slug: the reason.
        claim: what does not hold of each branch.
    """

    slug = "too-deep"
    claim = Claim.MENDED_NOW
    #: The sites at fault, if not all of the chain.
    at_fault: frozenset[LiveSite] = frozenset()

    def detail(self, unrolled: str) -> str:
        """Return one line that says more; ``unrolled``: why a loop was, if one was."""
        if not unrolled:
            return str(self)
        return f"a loop is traced turn by turn, since {unrolled}; that makes {self}"


class TooLong(TooDeep):
    """A chain of branches is withdrawn, since the search for its lowerings takes too long."""

    slug = "search-too-long"
    claim = Claim.MENDED

    def detail(self, unrolled: str) -> str:
        """Return how long the search was, and what has made it so long."""
        return f"{self}, turn by turn of a loop, since {unrolled}" if unrolled else str(self)


class Unreadable(BaseException):
    """A half of a split reads a lazy phi that is none of its own; the half cannot be traced.

    No ``Exception``, since Dynamo would take it for the answer to a question of its own.
    """


#: Arms of a branch.
_BOTH: Final = 2


@dataclass(slots=True)
class _Level:
    """A branch being mended, and what is in it.

    Attributes:
        site: the branch.
        form: the one in which it is tried.
        began: when it began, in steps.
        arms: how many of its arms were begun.
        inner: how many steps the longest branch right in it took.
        doubled: how many branches, one in another, have each doubled those, from that one inwards.
    """

    site: LiveSite
    form: int
    began: int
    arms: int = 0
    inner: int = 0
    doubled: int = 0


@dataclass(slots=True)
class _Chain:
    """The branches being mended, outermost first: ``levels``.

    ``arms`` counts the arms that were traced for the first, ``outer_arms`` its own, and
    ``open_arms`` those being traced. ``began``: when the first began, in steps;
    ``is_past_first_path``: an arm was traced to its end since, or a branch has come inside itself,
    as where a loop is unrolled; ``path``: how long that took, through both arms of the first;
    ``is_hopeless``: they will take too long.
    """

    levels: list[_Level] = field(default_factory=list)
    arms: int = 0
    outer_arms: int = 0
    open_arms: int = 0
    began: int = 0
    path_began: int = 0
    is_past_first_path: bool = False
    path: int = 0
    is_hopeless: bool = False

    @property
    def sites(self) -> list[LiveSite]:
        return [each.site for each in self.levels]

    @property
    def is_unrolled(self) -> bool:
        """Return whether a branch is inside itself, or a split more often than forms explain."""
        times = Counter(self.sites)
        return any(count > (FORMS if site.kind == SPLIT else 1) for site, count in times.items())

    def loops_without_an_end(self) -> frozenset[LiveSite]:
        """Return the loops over a range up to a number out of a tensor that are unrolled.

        Without them the number may be computed before the call, and what stands in a turn mended.
        """
        often = Counter(
            each for each in self.sites if each.kind == SPLIT and each.place is not None
        )
        return frozenset(each for each, times in often.items() if times > 1)

    def begin(self) -> None:
        """Begin with the outermost branch, or count anew what is in those being mended."""
        self.arms = self.outer_arms = self.path = 0
        self.began = self.path_began = budget.now()
        self.is_past_first_path = self.is_hopeless = False
        for each in self.levels:
            each.began, each.inner, each.doubled = self.began, 0, 0

    def end_level(self) -> None:
        """End with the innermost branch; foretell how long those around it will take.

        Of these only the ones count whose other arm is still to come.
        """
        level = self.levels.pop()
        steps = budget.now() - level.began
        is_double = 0 < 9 * level.inner <= 5 * steps
        doubled = level.doubled + 1 if is_double else 0
        if self.levels and steps > self.levels[-1].inner:
            self.levels[-1].inner, self.levels[-1].doubled = steps, doubled
        to_come = sum(each.arms == 1 for each in self.levels)
        foretold = steps << to_come
        self.is_hopeless |= doubled >= DOUBLED and foretold > OFTEN * budget.limit()

    def enter_arm(self) -> None:
        """Begin with an arm; the second of the outermost branch has a first path of its own."""
        self.arms += 1
        if self.levels:
            self.levels[-1].arms += 1
        if self.open_arms == 0 and len(self.levels) == 1:
            self.outer_arms += 1
            if self.outer_arms == _BOTH:
                self.path_began, self.is_past_first_path = budget.now(), False
        self.open_arms += 1

    def note_path(self) -> None:
        """Note how long the first path through branches took, once for each outermost arm."""
        if self.levels and not self.is_past_first_path:
            self.is_past_first_path = True
            self.path += budget.now() - self.path_began
            budget.note_path(self.path)

    def end(self, *, is_mended: bool) -> None:
        """End with the outermost branch, with or without a lowering."""
        steps = budget.now() - self.began
        path = self.path if self.is_past_first_path else steps
        budget.note_branch(steps, path, is_mended=is_mended)
        if not is_mended:
            budget.spend(steps)


_CHAIN: Final = Slot(_Chain, rolls_back=False)


class Iteration(NamedTuple):
    """An iteration of a loop that is being traced.

    Attributes:
        place: that of the loop's jump.
        tracer: of the graph that it is traced into.
        stored: what is carried beside the live-ins of the jump.
    """

    place: object
    tracer: Any
    stored: Sequence[Location] = ()


ITERATIONS: Final[Slot[list[Iteration]]] = Slot(list, rolls_back=False)

#: Of each loop being traced, whether what it goes over has no other form to be tried in.
_TRIED: Final[Slot[list[bool]]] = Slot(list, rolls_back=False)


def trying(tx: compat.Tracer, *, is_last: bool) -> AbstractContextManager[None]:
    """Note for a block that a loop is traced in its last form, or in one before."""
    return pushed(_TRIED.of(tx.output), is_last)


def is_last_try(tx: compat.Tracer) -> bool:
    """Return whether what stops now stops in each form of the loops that are being traced.

    A turn that does not have its number may stop for that alone: the number is counted next.
    """
    return all(_TRIED.of(tx.output))


@contextmanager
def mending(tx: compat.Tracer, site: LiveSite, form: int = 0) -> Iterator[None]:
    """Mend a form of ``site`` in a block, inside the branches that are being mended."""
    chain = _CHAIN.of(tx.output)
    if not chain.levels:
        chain.begin()
    elif site in chain.sites:
        chain.note_path()
    chain.levels.append(_Level(site, form, budget.now()))
    is_mended = False
    try:
        if len(chain.levels) > LEVELS:
            raise TooDeep(f"more than {LEVELS} branches, one in another")
        yield
        is_mended = not site.outcome.refused
    except TooDeep as reason:
        body_states.mend_at_questions(tx)
        _give_up(tx, site, reason)
        raise
    finally:
        chain.end_level()
        if not chain.levels:
            chain.end(is_mended=is_mended)


def count_anew(tx: compat.Tracer) -> None:
    """Have nothing that was traced since the outermost branch began be part of a search."""
    _CHAIN.of(tx.output).begin()


def _give_up(tx: compat.Tracer, site: LiveSite, reason: TooDeep) -> None:
    """Note why a chain is refused; at its outermost branch, have the call traced anew.

    Where a loop was unrolled only since it makes few turns, it is not from now on.
    """
    chain, detail = _CHAIN.of(tx.output), reason.detail(_UNROLLED.of(tx.output))
    is_outermost, is_long = len(chain.levels) == 1, isinstance(reason, TooLong)
    few = [] if is_long else [e for e in _FEW_TURNS.of(tx.output) if e.holds(Claim.UNROLLED)]
    if few:
        if is_outermost:
            falsify(*(Finding(Claim.UNROLLED, each, evidence=detail) for each in few))
        return
    reason.at_fault = reason.at_fault or chain.loops_without_an_end()
    at_fault = reason.at_fault or {site}
    if site in at_fault:
        site.refuse(reason.slug, detail)
    if is_outermost:
        if is_long:
            budget.begin_anew()
        falsify(*(_finding(reason, each, detail) for each in at_fault))
    if not reason.at_fault:
        weaken(Finding(reason.claim, site, evidence=detail, slug=reason.slug))


def _finding(reason: TooDeep, site: LiveSite, detail: str) -> Finding:
    """Return what is assumed of a branch no more: of one left out of the call, that it is mended.

    Such a branch is tried again where its conditions are computed in front of the graph.
    """
    finding = Finding(reason.claim, site, evidence=detail, slug=reason.slug)
    return site.unmendable(reason.slug, detail) if log.was_known(finding) else finding


def require_time(tx: compat.Tracer) -> None:
    """Raise ``TooLong`` where branches without a lowering, or the search, take too much time."""
    chain = _CHAIN.of(tx.output)
    if not (chain.levels and chain.is_past_first_path):
        return
    if chain.is_hopeless and not tx.one_graph:  # which is worth the whole search
        raise TooLong("each of many branches, one in another, doubles what is traced")
    steps = budget.now() - chain.began
    if budget.is_exceeded(steps, chain.path, is_unrolled=chain.is_unrolled):
        spent = budget.spent(steps)
        raise TooLong(f"no lowering was found in {spent:,} steps of tracing")


#: Why a loop was unrolled.
_UNROLLED: Final = Slot(str, rolls_back=False)


def note_unrolled(tx: compat.Tracer, why: str) -> None:
    """Note why a loop is unrolled; the first reason is that of its first iterations."""
    _UNROLLED.put(tx.output, _UNROLLED.of(tx.output) or why)


#: The loops that are unrolled since they make few turns.
_FEW_TURNS: Final[Slot[list[LiveSite]]] = Slot(list, rolls_back=False)


def note_few_turns(tx: compat.Tracer, site: LiveSite) -> None:
    """Note that a loop is unrolled which may be an operator, if that makes too many branches."""
    found = _FEW_TURNS.of(tx.output)
    if site not in found:
        found.append(site)


def to_be_widened(tx: compat.Tracer) -> frozenset[LiveSite]:
    """Return the branches being mended of which wider forms are tried if this one is refused."""
    levels = _CHAIN.of(tx.output).levels
    return frozenset(each.site for each in levels if each.form + 1 < each.site.number_of_forms)


def is_returned(tx: compat.Tracer) -> bool:
    """Return whether what the branches being mended leave is what the call returns."""
    levels, root = _CHAIN.of(tx.output).levels, tx.output.root_tx.f_code
    origin = SESSION.patcher.source_of(root)
    return (
        bool(levels)
        and frames.ends_at_a_boundary(tx)
        and all(
            each.site.origin is origin
            and each.site.number_of_forms
            and each.site.form(each.form).returns
            for each in levels
        )
    )


def is_in_half(tx: compat.Tracer) -> bool:
    """Return whether a half of a split is being traced; it is not while the split is lowered."""
    chain = _CHAIN.of(tx.output)
    return any(each.site.kind == SPLIT for each in chain.levels[: chain.open_arms])


def is_in_an_arm(tx: compat.Tracer) -> bool:
    """Return whether an arm is being traced, and not the main trace."""
    return _CHAIN.of(tx.output).open_arms > 0


def times(tx: compat.Tracer, site: LiveSite) -> int:
    return _CHAIN.of(tx.output).sites.count(site)


@contextmanager
def in_one_more_arm(tx: compat.Tracer) -> Iterator[None]:
    """Trace an arm in a block. Raises ``TooDeep`` past the bound."""
    require_time(tx)
    chain = _CHAIN.of(tx.output)
    if chain.levels and chain.arms >= ARMS:
        raise TooDeep(f"more than {ARMS} arms to trace")
    chain.enter_arm()
    try:
        yield
    finally:
        chain.open_arms -= 1
        chain.note_path()


class Nesting(NamedTuple):
    """How large a ``torch.cond`` is.

    Attributes:
        levels: how many are one in another to torch.
        operations: how many it looks at.
        depth: how many were traced one in another.
        is_flat: those in it can be written behind each other.
        records_gradients: it stands where gradients are recorded.
    """

    levels: int
    operations: int
    depth: int = 1
    is_flat: bool = False
    records_gradients: bool = False


def require_shallow(
    graphs: Sequence[Graph],
    *,
    are_flat: bool = False,
    is_light: Callable[[Node], bool] = lambda _: False,
) -> Nesting:
    """Return how large a ``torch.cond`` over ``graphs`` is. Raises ``TooDeep`` past the bounds.

    Each level takes torch nearly twice as long to compile as the one inside it. Where choices
    ``are_flat``, those that can be are written behind each other, and what ``is_light`` beside
    them does not count.
    """
    nodes = [node for graph in graphs for node in graph.nodes]
    found = (each.meta.get(meta_keys.CONDS) for each in nodes)
    within: list[Nesting] = [each for each in found if each is not None]
    depth = 1 + max((each.depth for each in within), default=0)
    is_flat = are_flat and depth >= FLAT_FROM
    flat = [each for each in within if is_flat and each.is_flat]
    others = [each for each in within if not (is_flat and each.is_flat)]
    levels = max([1, *(each.levels for each in flat), *(1 + each.levels for each in others)])
    own = len(nodes) - len(within) - (sum(map(is_light, nodes)) if flat else 0)
    operations = own + sum(each.operations for each in others)
    operations = 2 * operations + sum(each.operations for each in flat)
    if levels > CONDS:
        raise TooDeep(f"more than {CONDS} operators torch.cond, one in another")
    if levels > 1 and operations > OPERATIONS:
        raise TooDeep(f"{operations} operations for operators torch.cond, one in another")
    return Nesting(levels, operations, depth, are_flat, torch.is_grad_enabled())


def mark_cond(node: Node, size: Nesting) -> None:
    """Note on the node of a ``torch.cond`` what ``require_shallow`` found."""
    node.meta[meta_keys.CONDS] = size
