"""Both sides of every mended branch: the calls that take them, and what these show.

Each mended jump asks which side to take (``bcmend.rewrite.forced_jumps``). The program that asks is
called in eager execution, first as the inputs say; each further plan tells some jump a side that no
call has taken yet, until all that can be come to is taken. Then the same program is mended and
compiled, once, and called by the same plans: each call in a copy of the process. Where there are no
copies it is compiled anew for each plan.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from types import FunctionType
from typing import Final, TypeVar

from bcmend import api
from bcmend.errors import TrialError
from bcmend.names import FORCED
from bcmend.patching.reach import reach
from bcmend.policy import Policy
from bcmend.reports.outcomes import SiteRecord
from bcmend.reports.verdict import Difference, SideRecord, Sides
from bcmend.rewrite.forced_jumps import ForcedJump, Offsets, with_nested
from bcmend.tracing.search import budget
from bcmend.trials import forced
from bcmend.trials.apart import TriedCall, run_apart
from bcmend.trials.forced import Met
from bcmend.trials.observed import Observed, Started, Way, started

#: The kinds of sites that have two sides.
KINDS: Final = ("branch", "guard")
#: How many calls are made as the inputs say before that of a plan, which then compiles nothing.
_BEFORE: Final = 2
#: Seconds that the call of a plan may take.
_SECONDS: Final = 120.0
#: How often a jump of a loop is told in a frame, beyond twice as often as the inputs come to it.
_BEYOND: Final = 8
#: How many times as long the search for lowerings may take: a program that asks is larger.
_PATIENCE: Final = 4
_NO_TIME: Final = "the time was over"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a jump is told: a side, or, where a loop is left, after how many turns of it."""

    key: str
    side: bool | None = None
    turns: int | None = None

    def __str__(self) -> str:
        if self.turns is None:
            return str(self.side).lower()
        return {0: "no turn", 1: "1 turn"}.get(self.turns, f"{self.turns} turns")


Found = TypeVar("Found")
Plan = tuple[Choice, ...]
"""What is told to jumps in one call; the others do what their conditions say."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a call by a plan has shown.

    Attributes:
        shown: all of it; empty where ``failed`` says why there is nothing.
        raised: what it has raised, in one line.
        met: the jumps that plain Python has come to, in order.
        mended: the lines of functions with sites that were mended in it, as ``line_of`` has them.
        refused: of the others why they were not, in a few words.
    """

    shown: Observed = field(default_factory=dict)
    raised: str = ""
    met: tuple[Met, ...] = ()
    mended: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all plans.

    Attributes:
        most: how often a frame is told by a jump in a loop, and how far the loop goes at most.
        tensors: the jumps that tensors are met at, whose numbers are not told.
    """

    most: Mapping[str, int] = field(default_factory=dict)
    tensors: frozenset[str] = frozenset()


_Runner = Callable[[Plan, Rules, float], Run]
"""Makes a call by a plan, in so many seconds."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A program whose jumps ask: of code objects, by identity, those at some offsets.

    ``checks`` are the keys of those that raise on one side.
    """

    offsets_of: Mapping[int, Offsets]
    checks: frozenset[str]
    policy: Policy
    is_copied: bool

    def _functions(self, obj: object) -> Iterator[FunctionType]:
        """Yield the functions of the process, and those that an object reaches, each once."""
        if self.is_copied:
            gc.unfreeze()  # else what is frozen is not listed
        found = [each for each in gc.get_objects() if type(each) is FunctionType]
        found += [each.function for each in reach(obj, self.policy)]
        yield from {id(each): each for each in found}.values()

    @contextmanager
    def installed(self, obj: object) -> Iterator[dict[str, ForcedJump]]:
        """Have the code of all functions ask in a block; yield the jumps that do, by their keys."""
        api.unpatch()
        jumps: dict[str, ForcedJump] = {}
        changed = []
        for function in self._functions(obj):
            code = function.__code__
            try:
                asks, found = with_nested(code, self.offsets_of, self.checks)
            except ValueError:
                continue  # then the jumps of this function are not told
            if found:
                changed.append((function, code))
                function.__code__ = asks
                function.__globals__[FORCED] = forced
                jumps |= {each.key: each for each in found}
        forced.TOLD.update({key: forced.Told() for key in jumps})
        try:
            yield jumps
        finally:
            api.unpatch()
            for function, code in changed:
                function.__code__ = code
                function.__globals__.pop(FORCED, None)
            forced.TOLD.clear()
            forced.LOG.met.clear()

    def run(self, subject: TriedCall, attempt: Callable[[TriedCall], Found]) -> Found:
        """Return what an attempt finds that makes calls of its own apart."""
        return run_apart(subject, attempt, is_copied=True) if self.is_copied else attempt(subject)

    @contextmanager
    def ready(
        self, subject: TriedCall, way: Way, *, keeps_all: bool, asks: bool = True
    ) -> Iterator[tuple[dict[str, ForcedJump], _Runner]]:
        """Yield the jumps that ask in a block, and what makes calls there.

        Unless it ``asks``, the program is as it was.
        """

        def begun(subject: TriedCall) -> Started:
            ready = started(subject, way, self.policy)
            for _ in range(_BEFORE):
                ready.call(keeps_all=False, goes_back=False)
            return ready

        installed: AbstractContextManager[dict[str, ForcedJump]] = nullcontext({})
        if asks:
            installed = self.installed(subject.obj)
        with installed as jumps:
            with budget.patience(_PATIENCE):
                once = begun(subject) if self.is_copied else None

            def run(plan: Plan, rules: Rules, seconds: float) -> Run:
                def attempt(subject: TriedCall) -> Run:
                    ready = once or begun(subject)
                    with _telling(plan, rules, seconds), budget.patience(_PATIENCE):
                        shown = ready.call(keeps_all=keeps_all, goes_back=way.trains)
                        met = tuple(forced.LOG.met)
                    sites = api.report(subject.obj).sites if way.is_mended else ()
                    mended = {line_of(each.name) for each in sites if each.status == "mended"}
                    refused = {line_of(each.name): _reason(each) for each in sites if each.refusal}
                    return Run(*shown, met, frozenset(mended), refused)

                try:
                    return run_apart(subject, attempt, seconds, is_copied=self.is_copied)
                except TrialError as error:
                    return Run(failed=str(error))
                except forced.OutOfTime:
                    return Run(failed=f"the call has not ended after {seconds:.0f} seconds")

            yield jumps, run


def asking(
    sites: Iterable[SiteRecord], codes: Mapping[str, int], policy: Policy, *, is_copied: bool
) -> Asking:
    """Return a program in which the jumps of ``sites`` ask; ``codes`` has the code of each."""
    offsets_of: dict[int, dict[int, str]] = {}
    known = [each for each in sites if each.kind in KINDS and each.name in codes]
    for each in known:
        offsets_of.setdefault(codes[each.name], {})[each.offset] = each.name
    checks = frozenset(each.name for each in known if each.kind == "guard")
    return Asking(offsets_of, checks, policy, is_copied)


def line_of(name: str) -> str:
    """Return what a name of a site has in front of its kind.

    A condition that asks may make a check of what was a branch, and the other way about.
    """
    return name.rpartition(":")[0]


def _reason(site: SiteRecord) -> str:
    detail = site.detail.strip().partition("\n")[0]
    return ": ".join(filter(None, (site.refusal, detail)))


@contextmanager
def _telling(plan: Plan, rules: Rules, seconds: float) -> Iterator[None]:
    told = {each.key: each for each in plan}
    for key, at in forced.TOLD.items():
        choice, most = told.get(key, Choice(key)), rules.most.get(key, forced.ENDLESS)
        at.keeps.fill_(choice.side is None)
        at.side.fill_(bool(choice.side))
        at.least.fill_(choice.turns or 0)
        at.most.fill_(most if choice.turns is None else choice.turns)
        at.numbers = key not in rules.tensors
    forced.LOG.met.clear()
    forced.LOG.until = time.monotonic() + seconds
    try:
        yield
    finally:
        forced.LOG.until = float("inf")
        for at in forced.TOLD.values():
            at.keeps.fill_(True)
            at.least.fill_(0)
            at.most.fill_(forced.ENDLESS)


# Which plans there are


@dataclass(slots=True)
class Explored:
    """What eager execution has shown.

    Attributes:
        jumps: those that ask, by their keys.
        checks: the keys of those that raise on one side.
        plain: what a call shows of the program that does not ask.
        runs: of each plan, in order; the empty one is what the inputs say.
        left_out: the plans for which there was no time.
        tensors: the jumps that tensors were met at.
        made_by: what ``made`` has returned since that was noted.
    """

    jumps: Mapping[str, ForcedJump]
    checks: frozenset[str]
    plain: Run
    runs: dict[Plan, Run] = field(default_factory=dict)
    left_out: list[Plan] = field(default_factory=list)
    tensors: set[str] = field(default_factory=set)
    made_by: dict[Plan, list[Choice]] = field(default_factory=dict)

    def note(self, plan: Plan, run: Run) -> None:
        """Note what a call has shown."""
        self.runs[plan] = run
        self.tensors |= {each.key for each in run.met if each.kind == "tensor"}
        self.made_by.clear()  # which numbers are choices depends on it

    @property
    def rules(self) -> Rules:
        """What holds for all plans but the empty one."""
        often: dict[str, int] = {}
        for each in self.runs[()].met:
            often[each.key] = max(often.get(each.key, 0), each.before + 1)
        most = {key: 2 * often.get(key, 0) + _BEYOND for key in self.jumps}
        return Rules(most, frozenset(self.tensors))

    def made(self, plan: Plan) -> list[Choice]:
        """Return the choices that were made in a call, in order.

        That is each side of a branch, and of a loop how many turns it has made.
        """
        if plan not in self.made_by:
            self.made_by[plan] = list(_made(self.runs[plan].met, self.jumps, self.tensors))
        return self.made_by[plan]

    def choices(self, key: str) -> list[Choice]:
        """Return all that a jump is to be told, or does by itself."""
        if self.jumps[key].stays is None:
            return [Choice(key, True), Choice(key, False)]
        seen = [each.turns or 0 for each in self.made(()) if each.key == key]
        counts = {0, 1, *seen, max(seen, default=0) + 1}
        return [Choice(key, turns=each) for each in sorted(counts)]


def _made(
    met: Iterable[Met], jumps: Mapping[str, ForcedJump], tensors: Collection[str]
) -> Iterator[Choice]:
    turns: dict[str, int] = {}
    for each in met:
        if each.truth is None or (each.kind == "number" and each.key in tensors):
            continue
        stays = jumps[each.key].stays
        if stays is None:
            yield Choice(each.key, each.truth)
            continue
        if each.before == 0 and each.key in turns:
            yield Choice(each.key, turns=turns.pop(each.key))
        if each.truth is stays:
            turns[each.key] = turns.get(each.key, 0) + 1
        else:
            yield Choice(each.key, turns=turns.pop(each.key, 0))
    for key, count in turns.items():
        yield Choice(key, turns=count)


@dataclass(slots=True)
class _Search:
    """A search for plans by which each choice is made."""

    run: _Runner
    until: float
    found: Explored

    def all(self) -> None:
        base = self.run((), Rules(), _SECONDS)
        self.found.note((), base)
        if not base.failed:
            self._sides()
            for plan in self._pairs():
                self._try(plan)

    def _try(self, plan: Plan) -> bool:
        """Make a call by a plan that is new; return whether it has ended."""
        if plan in self.found.runs:
            return False
        left = self.until - time.monotonic()
        if left <= 0:
            self.found.left_out.append(plan)
            return False
        run = self.run(plan, self.found.rules, min(_SECONDS, max(left, 1.0)))
        self.found.note(plan, run)
        return not run.failed

    def _sides(self) -> None:
        """Have each choice made that no call has made, beginning with what the inputs come to."""
        known = set(self.found.made(()))
        pending: deque[Plan] = deque()

        def ask(around: Plan) -> None:
            told = {each.key for each in around}
            for key in dict.fromkeys(each.key for each in self.found.made(around)):
                for choice in self.found.choices(key) if key not in told else ():
                    if choice not in known:
                        known.add(choice)
                        pending.append((*around, choice))

        ask(())
        while pending:
            plan = pending.popleft()
            if self._try(plan):
                known.update(self.found.made(plan))
                ask(plan)

    def _pairs(self) -> Iterator[Plan]:
        """Yield plans in which what follows each other takes all four pairs of sides.

        All true, all false, and in turns: these are all pairs of neighbours. A check that raises
        ends the call, so it is told nothing there, and raises after each side of what it follows.
        """
        made = self.found.made(())
        order = list(dict.fromkeys(each.key for each in made))
        told = [key for key in order if key not in self.found.checks]
        for first, step in product((0, 1), (0, 1)):
            sides = enumerate(self.found.choices(key)[:2] for key in told)
            plan = tuple(two[(first + step * place) % 2] for place, two in sides)
            if len(plan) > 1:
                yield plan
        passed = {each for each in made if each.key in self.found.checks}
        for before, key in adjacent(made):
            if key in self.found.checks and before not in self.found.checks:
                for choice in self.found.choices(key):
                    if choice not in passed:
                        yield from ((each, choice) for each in self.found.choices(before)[:2])


def adjacent(made: Sequence[Choice]) -> list[tuple[str, str]]:
    """Return the pairs of jumps that follow each other in a call, each once."""
    keys = [each.key for each in made]
    return list(dict.fromkeys(pair for pair in pairwise(keys) if pair[0] != pair[1]))


def explored(subject: TriedCall, program: Asking, way: Way, until: float) -> Explored:
    """Return what eager execution shows, until all sides are taken or the time is over.

    Args:
        subject: what is called.
        program: the jumps that ask.
        way: how it is to be called mended.
        until: a moment of `time.monotonic`.

    Raises:
        TrialError: the calls could not be made.
    """
    eager, keeps_all = replace(way, backend=None, is_mended=False), way.keeps_all

    def unasked(subject: TriedCall) -> Run:
        with program.ready(subject, eager, keeps_all=keeps_all, asks=False) as (_, run):
            return run((), Rules(), _SECONDS)

    def attempt(subject: TriedCall) -> Explored:
        with program.ready(subject, eager, keeps_all=keeps_all) as (jumps, run):
            found = Explored(jumps, program.checks, plain)
            _Search(run, until, found).all()
            return found

    plain = program.run(subject, unasked)
    return program.run(subject, attempt)


def replayed(
    subject: TriedCall,
    program: Asking,
    way: Way,
    eager: Explored,
    plans: Sequence[Plan],
    until: float,
) -> dict[Plan, Run]:
    """Return what compiled calls show by plans of ``eager``, as many as there is time for.

    Arguments are as for ``explored``. Raises ``TrialError`` if the calls could not be made.
    """

    told = eager.rules

    def attempt(subject: TriedCall) -> dict[Plan, Run]:
        found: dict[Plan, Run] = {}
        with program.ready(subject, way, keeps_all=way.keeps_all) as (_, run):
            for plan in plans:
                if found and time.monotonic() > until:
                    break
                found[plan] = run(plan, told if plan else Rules(tensors=told.tensors), _SECONDS)
        return found

    return program.run(subject, attempt)


# What was found


def none_of(sites: Iterable[SiteRecord], why: str) -> Sides:
    """Return that no side was taken, and why."""
    records = [
        SideRecord(each.name, "each", "not forced", why) for each in sites if each.kind in KINDS
    ]
    return Sides(tuple(records), (0, 0), 0.0)


def sides_of(
    sites: Iterable[SiteRecord],
    eager: Explored,
    mended: Mapping[Plan, Run],
    differences: Mapping[Plan, Difference],
    seconds: float,
) -> Sides:
    """Return what is known of each side, of what both kinds of calls have shown by each plan."""
    found = _Findings(eager, mended, differences)
    of_keys = {key: each for each in eager.jumps.values() for key in each.keys}
    records: list[SideRecord] = []
    for site in sites:
        if site.kind in KINDS and site.name not in of_keys:
            why = "its condition is that of no jump"
            records.append(SideRecord(site.name, "each", "not forced", why))
        elif site.kind in KINDS and of_keys[site.name].key == site.name:
            records += found.records(of_keys[site.name])
    told = [
        replace(each, call=_BEFORE + 1, forced=tuple((told.key, str(told)) for told in plan))
        for plan, each in differences.items()
    ]
    return Sides(tuple(records), found.pairs(), seconds, tuple(told))


@dataclass(frozen=True, slots=True)
class _Findings:
    """What both kinds of calls have shown by each plan, and where they differ."""

    eager: Explored
    mended: Mapping[Plan, Run]
    differences: Mapping[Plan, Difference]

    def _is_equal(self, plan: Plan) -> bool:
        run = self.mended.get(plan)
        return run is not None and not run.failed and plan not in self.differences

    def pairs(self) -> tuple[int, int]:
        """Return how many pairs of sides of neighbours were taken, and how many there are."""
        made, eager = self.eager.made(()), self.eager
        neighbours = adjacent(made)
        taken = {
            pair
            for plan in self.mended
            if self._is_equal(plan)
            for pair in pairwise(eager.made(plan))
            if (pair[0].key, pair[1].key) in neighbours
        }
        wanted = {
            pair
            for one, other in neighbours
            for pair in product(eager.choices(one)[:2], eager.choices(other)[:2])
            if one not in eager.checks or pair[0] in made  # what raises is followed by nothing
        }
        return len(wanted & taken), len(wanted)

    def records(self, jump: ForcedJump) -> Iterator[SideRecord]:
        """Yield what is known of each side of a jump."""
        for choice in self.eager.choices(jump.key):
            by = [plan for plan in self.eager.runs if choice in self.eager.made(plan)]
            is_told = [plan for plan in self.eager.runs if choice in plan]
            if not by and is_told and choice.turns and self._ends_before(is_told[0], choice):
                continue  # a loop over something has no more turns
            status, detail = self._status(choice, jump, by)
            yield SideRecord(jump.key, str(choice), status, detail)

    def _ends_before(self, plan: Plan, choice: Choice) -> bool:
        turns = [each.turns or 0 for each in self.eager.made(plan) if each.key == choice.key]
        is_whole = not self.eager.runs[plan].failed and not self.eager.runs[plan].raised
        return is_whole and bool(turns) and max(turns) < (choice.turns or 0)

    def _status(self, choice: Choice, jump: ForcedJump, by: Sequence[Plan]) -> tuple[str, str]:
        equal = [plan for plan in by if self._is_equal(plan)]
        if () in equal:
            return "seen", ""
        if any(line_of(jump.key) in self.mended[plan].mended for plan in equal):
            return "forced", ""
        if any(plan in self.differences for plan in by):
            return "differs", ""
        return "not forced", self._why_not(choice, jump, by)

    def _why_not(self, choice: Choice, jump: ForcedJump, by: Sequence[Plan]) -> str:
        eager, mended = self.eager, self.mended
        failed = [run.failed for plan, run in eager.runs.items() if choice in plan and run.failed]
        if failed:
            return f"in eager execution: {failed[0]}"
        if any(choice in plan for plan in eager.left_out) or any(each not in mended for each in by):
            return _NO_TIME
        if not by:
            return self._why_never(jump)
        failed = [mended[each].failed for each in by if mended[each].failed]
        if failed:
            return f"mended: {failed[0]}"
        reasons = [reason for each in by if (reason := mended[each].refused.get(line_of(jump.key)))]
        return ": ".join(["it is not mended where it has to ask", *reasons[:1]])

    def _why_never(self, jump: ForcedJump) -> str:
        met = [each for run in self.eager.runs.values() for each in run.met if each.key == jump.key]
        if not met:
            return "no call comes to it"
        kinds = sorted({each.kind for each in met if each.truth is None})
        return (
            f"its condition is {' or '.join(kinds)}" if kinds else "no call that is told takes it"
        )
