"""A site, a body and a stop as traces know them: what is assumed of them, what came of it.

Data alone; the tables that hold it are in ``session``.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from bcmend.names import SPLIT
from bcmend.policy import DEFAULT, Policy
from bcmend.rewrite.sites.plan import BranchLowering, Site
from bcmend.tracing.search.assumptions import Claim, Finding, Subject
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.search.sides import Branch, NotedSides


@dataclass(slots=True, eq=False)
class Outcome:
    """What the last trace that reached a site has made of it.

    Attributes:
        lowering: what it became; empty before it became anything.
        why: why it became that and nothing else, where there was a choice.
        refused: slug and detail of why it was refused.
        clone_bytes: how many bytes of tensors its records copy at each call; ``None`` if that is
            not known.
        reads_item: whether it is a split that was seen to read an item at a data-dependent place.
        traceable: the truth of its condition for which alone Dynamo can trace a branch; ``None`` if
            there is no such, or it is not known.
        has_exit: whether a branch that was refused could be left by a side exit.
        known: why the truth of its condition is known, where nothing else was made of it.
    """

    lowering: str = ""
    why: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    clone_bytes: int | None = None
    reads_item: bool = False
    traceable: bool | None = None
    has_exit: bool = False
    known: str = ""


@dataclass(slots=True, eq=False)
class LiveSite(Branch):
    """One site of one code object.

    Attributes:
        key: unique name, a constant in the rewritten bytecode.
        kind: "branch", "guard", "output" or "call".
        code: the code object before it was rewritten, which a site does not keep alive; see
            ``origin``.
        policy: what the user has chosen for it.
        plan: how it was written; ``None`` for a call, a text or a number that was met in a trace.
        line: of one that was met in a trace.
        outcome: what became of it.
        seen_sides: the truths of the condition of a branch of which calls were compared.
    """

    key: str
    kind: str
    code: InitVar[CodeType]
    policy: Policy = DEFAULT
    plan: Site | None = None
    line: int | None = None
    outcome: Outcome = field(default_factory=Outcome, init=False, repr=False)
    seen_sides: set[bool] = field(default_factory=set, init=False, repr=False)
    _code: weakref.ref[CodeType] = field(init=False, repr=False)

    def __post_init__(self, code: CodeType) -> None:
        self._code = weakref.ref(code)

    def when_gone(self, act: Callable[[], None]) -> None:
        """Have ``act`` called when the code is gone."""
        self._code = weakref.ref(self.origin, lambda _: act())

    @property
    def is_gone(self) -> bool:
        """Return whether the code is."""
        return self._code() is None

    @property
    def origin(self) -> CodeType:
        code = self._code()
        assert code is not None  # whoever asks is tracing it
        return code

    def is_like(self, other: LiveSite) -> bool:
        """Return whether both are the same place under the same choices."""
        choices = operator.attrgetter(
            "branch", "output", "guards", "untaken_gradients", "one_sided"
        )
        return self._code() is other._code() and choices(self.policy) == choices(other.policy)

    @property
    def place(self) -> tuple[int, int, int] | None:
        """Return where a branch goes on that an iteration of a loop comes back to, and its join.

        The tests before and behind a ``while`` loop have the same place.
        """
        return None if self.plan is None else self.plan.place

    def form(self, number: int) -> BranchLowering:
        """Return one of the forms of a branch."""
        assert self.plan is not None and isinstance(self.plan.decision, BranchLowering)
        return self.plan.decision.alternatives[number]

    @property
    def number_of_forms(self) -> int:
        """Return how many forms of a branch there are; none of another site."""
        decision = None if self.plan is None else self.plan.decision
        return len(decision.alternatives) if isinstance(decision, BranchLowering) else 0

    @property
    def name(self) -> str:
        return self.key

    @property
    def active(self) -> bool:
        return self.holds(Claim.MENDED)

    @property
    def withdrawn(self) -> str:
        """Return the slug of the reason for which the site is off; empty while it is on."""
        found = self.found(Claim.MENDED)
        return "" if found is None else found.slug

    @property
    def detail(self) -> str:
        """Return one line beside that slug."""
        found = self.found(Claim.MENDED)
        return "" if found is None else found.evidence

    @property
    def is_worth_widening(self) -> bool:
        """Return whether the branch might be mended if its arms went on further."""
        return not WIDENED.isdisjoint(self.outcome.refused)

    def mended(self, lowering: str, why: str = "") -> None:
        self.outcome.lowering, self.outcome.why, self.outcome.known = lowering, why, ""
        self.outcome.refused.clear()
        RECENT.sites[self.key] = self

    def has_one_side(self, why: str) -> None:
        """Note that the graph has one side. No back end fails for that; it is no suspect."""
        self.outcome.lowering, self.outcome.why = ONE_SIDED, why
        self.outcome.refused.clear()

    @property
    def is_refused(self) -> bool:
        return bool(self.outcome.refused) or not self.active

    @property
    def may_have_one_side(self) -> bool:
        return self.policy.one_sided == "exit"

    @property
    def first_side(self) -> bool:
        return bool(self.outcome.traceable)

    def chosen_later(self, lowering: str) -> str:
        """Return what a lowering is called where what it leaves keeps two forms for now."""
        is_called_so = self.kind == SPLIT or lowering.startswith(_CHOICE)
        return lowering if is_called_so else f"{_CHOICE}{lowering}"

    def refuse(self, slug: str, detail: str = "") -> None:
        """Note that this trace could not mend the site; a later one, on other values, may."""
        self.outcome.refused, self.outcome.known = {slug: detail}, ""
        RECENT.refused[self.key] = self
        RECENT.refusal = (slug, detail)
        if slug in LEFT_OUT_NOW:
            weaken(Finding(Claim.MENDED_NOW, self, evidence=detail, slug=slug))

    def unmendable(self, slug: str, detail: str = "") -> Finding:
        """Return the finding that the site cannot be mended at all."""
        return Finding(Claim.MENDED, self, evidence=detail, slug=slug)

    def shares(self, form: int) -> Finding:
        """Return the finding that a form merges what one side alone shares, or has apart."""
        claim = Claim.SHARED if self.holds(Claim.SHARED, form) else Claim.NEW
        return Finding(claim, self, form)


#: The lowering of a branch of which the graph has one side.
ONE_SIDED: Final = "one side"
#: What begins the name of a lowering whose live-outs have two forms.
_CHOICE: Final = "choice by "

#: Why a branch is refused that can be mended if its arms share more of what follows.
WIDENED: Final = frozenset(["arms-differ", "arm-untraceable", "alias-changed", "consumes-iterator"])
#: Why a site is refused for the rest of the call, however often its code is traced.
LEFT_OUT_NOW: Final = frozenset(["random-under-gradients"])


#: Branches whose conditions are computed in front of one body. As many variants as these can make
#: is what Dynamo compiles of a function.
TRUTHS_AT_MOST: Final = 3
#: Turns of a loop in which what one line asks for is computed in front.
TURNS_AT_MOST: Final = 64


class Recent(threading.local):
    """What this thread's traces have found."""

    def __init__(self) -> None:
        self.sites: dict[str, LiveSite] = {}  # those mended since ``clear_recent``
        self.refused: dict[str, LiveSite] = {}  # those refused since
        self.refusal: tuple[str, str] | None = None  # the last since ``forget_refusal``
        self.to_be_widened: Collection[LiveSite] = ()  # where an arm of them has stopped


RECENT: Final = Recent()


class Clean(NamedTuple):
    """What a call of a body has found, and the next one finds as long as an epoch lasts.

    ``callback`` refers to what compiles frames, ``compiler`` to what is to compile those of the
    body; ``is_whole`` says whether a graph has to have the whole body.
    """

    epoch: int
    callback: weakref.ref[Any]
    compiler: weakref.ref[Any]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """A frame that Dynamo was tracing when it stopped.

    ``function`` is ``None`` for a frame that no function object is known of. ``position`` is the
    source position of the instruction: line, last line, column, last column (Dynamo renumbers
    instructions, so an offset would not do). ``opname`` is what Dynamo calls the instruction.
    ``names`` are the globals that the code sees.
    """

    function: FunctionType | None
    code: CodeType
    position: tuple[int | None, ...]
    opname: str = ""
    names: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(slots=True, eq=False)
class BodyState(Subject):
    """What is known of one body.

    ``function``: its qualified name.
    ``is_body``: whether a boundary waits for what goes wrong while it is traced.
    ``repeatable``: a call in which the graph of its latest trace fails can be made once more, since
    what that graph changes can be restored; ``None`` before there was one with records.
    ``takes_numbers``: a trace of it has taken numbers out of tensors without having been asked for
    one graph.
    ``asks_whether_compiled``: code that it runs asks whether it is being compiled.
    ``generation``: counts what was changed for the sake of a next try.
    ``newer``: code that replaced it since, from which to make the function for the next try.
    ``has_choices``: what it returns may hold choices that are made after the graph.
    ``slices``: what is computed in front of a call, whose numbers the body is given; ``joined``:
    the same, made one program, and the names of the arguments; ``noted``: what the latest trace
    would have had so as well, a fraction or a truth with its symbol, and ``noted_sizes``: sizes of
    tensors with theirs; ``noted_truths``: conditions of branches that were refused, in this order,
    with the keys of the branches; ``truths``: the branches of which some are computed in front.
    ``tried``: what the trace has gone by and is not computed in front yet, with keys of sites;
    ``turns``: of how many turns of a loop each site has had it so; ``is_asked_for``: whether the
    user asked for one graph.
    ``plain``: the branches of which some form has arms that are captured as they are where the
    condition is known; longer ones may hold what is behind the branch.
    ``noted_empty``: branches that were refused on whether anything is selected, in this order.
    ``sides``: branches that could be left by a side exit.
    ``noted_open``: what is taken for granted of lists to which one side appends, and of numbers.
    ``read_at``: the lines at which fractions are taken out of tensors, by their symbols.
    ``constants``: the buffers that the latest trace has taken for constants, as Dynamo names them.
    ``counted``: attributes that are integers, which a trace has counted, as Dynamo names them.
    ``spare``: the same code for calls whose numbers would make one variant too many, without
    such numbers.
    ``clean``: left by a call that has traced nothing.
    ``deferring``: code of it that was compiled with exceptions that come when its graph has run.
    """

    function: str
    is_body: bool
    repeatable: bool | None = None
    takes_numbers: bool = False
    asks_whether_compiled: bool = False
    generation: int = 0
    newer: CodeType | None = None
    has_choices: bool = False
    slices: list[Any] = field(default_factory=list)
    joined: Any = None
    noted: list[tuple[Any, Any]] = field(default_factory=list)
    noted_sizes: list[tuple[Any, Any]] = field(default_factory=list)
    noted_truths: list[tuple[Any, Any]] = field(default_factory=list)
    noted_empty: list[Subject] = field(default_factory=list)
    constants: set[str] = field(default_factory=set)
    sides: NotedSides = field(default_factory=NotedSides)
    noted_open: list[Finding] = field(default_factory=list)
    read_at: dict[Any, object] = field(default_factory=dict)
    truths: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    tried: list[tuple[Any, Any]] = field(default_factory=list)
    is_asked_for: bool = False
    turns: dict[str, int] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    spare: CodeType | None = None
    clean: Clean | None = None
    deferring: list[weakref.ref[CodeType]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return self.function

    @property
    def may_break(self) -> bool:
        """Return whether graph breaks are allowed: no boundary waits, or they cannot be helped."""
        return not self.is_body or not self.holds(Claim.WHOLE)

    def note_deferring(self, code: CodeType) -> None:
        """Note that what is compiled of ``code`` may raise once its graph has run."""
        self.deferring.append(weakref.ref(code))

    def defer_nothing(self) -> list[CodeType]:
        """Defer no exception from now on; return the code that has to be compiled anew."""
        weaken(Finding(Claim.UNCAUGHT, self))
        found = [code for each in self.deferring if (code := each()) is not None]
        self.deferring.clear()
        return found

    def leave_numbers(self) -> bool:
        """Take no more numbers out of tensors; return whether any were."""
        taken, self.takes_numbers = self.takes_numbers, False
        return taken and weaken(Finding(Claim.NUMBERS, self))

    def have_numbers(self, asked: Iterable[Any] = ()) -> bool:
        """Have computed in front of later calls what was noted; return whether anything was.

        Of fractions and truths only those of the symbols ``asked``: each value is a variant. Sizes
        of these if nothing else helps.
        """
        asked = set(asked)
        wanted = [each for each, symbol in self.noted if symbol is None or symbol in asked]
        sizes = [each for each, symbol in self.noted_sizes if symbol in asked]
        self.noted.clear()
        self.noted_sizes.clear()
        return self._compute_ahead(wanted) or self._compute_ahead(sizes)

    def have_sizes(self) -> bool:
        """Have all sizes that were noted computed in front; return whether there were any."""
        sizes = [each for each, _ in self.noted_sizes]
        return self._compute_ahead(sizes)

    def have_truth(self) -> bool:
        """Have the condition of the branch refused last computed in front; return if it is new."""
        site = next((key for _, key in reversed(self.noted_truths)), None)
        if site is None or (site not in self.truths and len(self.truths) == TRUTHS_AT_MOST):
            return False
        if not (self.is_asked_for or self._has_room()):
            return False
        self.truths.add(site)
        self.turns[site] = self.turns.get(site, 0) + 1
        is_new = self._compute_ahead([each for each, _ in self.noted_truths[-1:]])
        return self.have_tried() or is_new

    def leave_empty(self) -> bool:
        """Have the branch refused last left by a side exit where nothing is selected.

        Return whether that is new.
        """
        return bool(self.noted_empty) and weaken(Finding(Claim.KEPT, self.noted_empty[-1]))

    def take_constants_for_data(self) -> bool:
        """Take no buffer for a constant that the trace has; return whether that is new."""
        names = sorted(self.constants)
        found = [Finding(Claim.CONSTANT, self, name, evidence=name) for name in names]
        return weaken(*found)

    def have_tried(self) -> bool:
        """Have computed in front what the trace has gone by; return whether there was anything."""
        is_new = self._compute_ahead([each for each, _ in self.tried])
        for _, site in self.tried:
            self.turns[site] = self.turns.get(site, 0) + 1
        self.tried.clear()
        return is_new

    def may_try(self, site: str) -> bool:
        """Return whether a trace may go by what it is given in one call, in a turn more."""
        tried = sum(key == site for _, key in self.tried)
        is_few = self.turns.get(site, 0) + tried < TURNS_AT_MOST
        return is_few and not self.may_break and (self.is_asked_for or self._has_room())

    def _has_room(self) -> bool:
        """Return whether one condition more may be computed in front: each outcome is a graph.

        Where one graph was not asked for, eager execution goes on between graphs, and compiles
        nothing anew.
        """
        return sum(self.turns.values()) + len(self.tried) < TRUTHS_AT_MOST

    def take_numbers_of(self, other: BodyState) -> None:
        """Have computed in front what is computed for a body with the same arguments."""
        self.slices, self.truths, self.turns = other.slices, other.truths, other.turns
        self.plain = other.plain

    def read_beside(self, asked: Iterable[Any]) -> set[Any]:
        """Return the symbols of the fractions that are read in the lines of some."""
        lines = {self.read_at[each] for each in asked if each in self.read_at}
        return {each for each, line in self.read_at.items() if line in lines}

    def forget_noted(self) -> None:
        self.read_at.clear()
        noted = self.noted, self.noted_sizes, self.noted_truths, self.noted_open, self.tried
        for each in (*noted, self.noted_empty, self.constants, self.sides):
            each.clear()

    def look_at_items(self, at_most: int | None = None) -> bool:
        """Take nothing for granted of lists to which one side appends; return if that is new.

        Nothing is done where more items than ``at_most`` may be in such lists.
        """
        is_few = at_most is None or len(self.noted_open) <= at_most
        if not (is_few and weaken(*self.noted_open)):
            return False
        for site in RECENT.refused.values():  # for such a list; the next trace may not meet it
            site.outcome.refused.clear()
        return True

    def _compute_ahead(self, wanted: Iterable[Any]) -> bool:
        before = len(self.slices)
        for each in wanted:
            if each not in self.slices:
                weaken(Finding(Claim.NUMBER_LATE, self, len(self.slices)))
                self.slices.append(each)
        return len(self.slices) > before

    def replacement(self, body: FunctionType) -> FunctionType:
        """Return the function to call at the next try."""
        return body if self.newer is None else with_code(body, self.newer)


def with_code(body: FunctionType, code: CodeType) -> FunctionType:
    """Return a function of other code, with all else of ``body``."""
    space, name = body.__globals__, body.__name__
    return FunctionType(code, space, name, body.__defaults__, body.__closure__)
