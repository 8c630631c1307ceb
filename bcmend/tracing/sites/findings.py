"""What traces find out: about a site, about a body, and where one has stopped.

Data alone; the tables that hold it are in ``session``.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final


@dataclass(slots=True, eq=False)
class LiveSite:
    """One site of one code object.

    Attributes:
        key: unique name, a constant in the rewritten bytecode.
        kind: "branch", "guard", "output" or "call".
        code: the code object before it was rewritten, which a site does not keep alive; see
            ``origin``.
        branch, output, guards, untaken_gradients: what the policy asks for (see ``bcmend.policy``).
        withdrawn: slug of the reason for which the site is off; empty while it is on.
        detail: one line beside the slug.
        lowering: what the site became at the last trace that reached it; empty before.
        why: why it became that and nothing else, where there was a choice.
        copied: numbers of the tensors that records of this site copy, among those that they refer
            to, since they were seen to change later.
        clone_bytes: how many bytes those are at each call; ``None`` if that is not known.
        computes_ahead: whether what only output in an arm reads is computed in the graph, since
            what it is computed from was seen to change later.
        side_exits: whether side exits are worth their while: no, once the plain call behind one has
            not failed and the graph may break.
        stored_later: attributes of objects of the arguments that were seen to be stored to later.
        inside: for each form of a branch, the offsets in ``origin`` of the stretches of its arms,
            first and last.
        place: of a branch that an iteration of a loop comes back to, the blocks where it goes on
            and where its arms meet; the tests before and behind a ``while`` loop have the same.
        returning: for each form of a branch, whether its arms return.
        flags: for each form of a branch, the positions of live-outs that say by which way a block
            is left.
        reads: the forms in which a lazy phi of it was seen to be read, where the code could not be
            split, in the outermost call being made.
        returns: the forms in which both sides of a phi are stored, since it was seen to be returned
            by the call, or to be read by code that can go on in halves.
        outliving: the forms in which a variable of a closure was seen to outlive its frame.
        aliased: the forms in which a merged tensor would have to be an older one.
        apart: the forms in which values that share memory, or are one object, on one side alone
            are not merged.
        reads_item: whether it is a split that was seen to read an item at a data-dependent place.
        goes_on_in_halves: whether even the code that has the site is split where it reads one.
        offset: where in ``origin`` it stands; -1 for a call that may be substituted.
        line: of a call that may be substituted, which no plan lists.
        refused: slug and detail of why the last trace that reached the site refused it.
    """

    key: str
    kind: str
    code: InitVar[CodeType]
    branch: str = "auto"
    output: str = "defer"
    guards: str = "defer"
    untaken_gradients: str = "none"
    withdrawn: str = ""
    detail: str = ""
    lowering: str = ""
    why: str = ""
    copied: set[int] = field(default_factory=set)
    clone_bytes: int | None = None
    computes_ahead: bool = False
    side_exits: bool = True
    stored_later: set[str] = field(default_factory=set)
    inside: tuple[tuple[tuple[int, int], ...], ...] = ()
    place: tuple[int, int, int] | None = None
    returning: tuple[bool, ...] = ()
    flags: tuple[frozenset[int], ...] = ()
    reads: set[int] = field(default_factory=set)
    returns: set[int] = field(default_factory=set)
    outliving: set[int] = field(default_factory=set)
    aliased: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)
    reads_item: bool = False
    goes_on_in_halves: bool = False
    offset: int = -1
    line: int | None = None
    refused: dict[str, str] = field(default_factory=dict)
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
        choices = operator.attrgetter("branch", "output", "guards", "untaken_gradients")
        return self._code() is other._code() and choices(self) == choices(other)

    @property
    def active(self) -> bool:
        return not self.withdrawn

    @property
    def is_worth_widening(self) -> bool:
        """Return whether the branch might be mended if its arms went on further."""
        return not _WIDENED.isdisjoint(self.refused)

    def mended(self, lowering: str, why: str = "") -> None:
        self.lowering, self.why = lowering, why
        self.refused.clear()
        RECENT.sites[self.key] = self

    def refuse(self, slug: str, detail: str = "") -> None:
        """Note that this trace could not mend the site; a later one, on other values, may."""
        self.refused = {slug: detail}
        RECENT.refusal = (slug, detail)
        if slug in ("random-under-gradients", "too-deep"):
            RECENT.refused_for_this_call.add(self.key)

    def note_read(self, form: int) -> None:
        """Note, for the length of the outermost call, that a form has to merge everything."""
        self.reads.add(form)
        RECENT.read.append(self)

    def keep_apart(self, form: int) -> None:
        """Have no values merged that only one side shares; where that is so, give the form up."""
        (self.aliased if form in self.apart else self.apart).add(form)

    def withdraw(self, slug: str, detail: str = "") -> None:
        """Switch the site off for good."""
        self.withdrawn, self.detail = slug, detail
        self.lowering = ""


#: Why a branch is refused that can be mended if its arms share more of what follows.
_WIDENED: Final = frozenset(["arms-differ", "arm-untraceable", "alias-changed"])


class Recent(threading.local):
    """What this thread's traces have found."""

    def __init__(self) -> None:
        self.sites: dict[str, LiveSite] = {}  # those mended since ``clear_recent``
        self.refusal: tuple[str, str] | None = None  # the last since ``forget_refusal``
        # In the outermost call:
        self.refused_for_this_call: set[str] = set()
        self.read: list[LiveSite] = []
        self.without_exit: set[str] = set()


RECENT: Final = Recent()


@dataclass(frozen=True, slots=True)
class Stop:
    """A frame that Dynamo was tracing when it stopped.

    ``function`` is ``None`` for a frame that no function object is known of. ``position`` is the
    source position of the instruction: line, last line, column, last column (Dynamo renumbers
    instructions, so an offset would not do). ``opname`` is what Dynamo calls the instruction.
    """

    function: FunctionType | None
    code: CodeType
    position: tuple[int | None, ...]
    opname: str = ""


@dataclass(slots=True, eq=False)
class BodyState:
    """What is known of one body.

    ``may_break``: it cannot be captured whole, so graph breaks are allowed again.
    ``repeatable``: a call in which the graph of its latest trace fails can be made once more, since
    what that graph changes can be restored; ``None`` before there was one with records.
    ``timing``: whether the records of its statements run "inline" or "deferred"; empty where the
    policy of the first one tells.
    ``takes_numbers``: a trace of it has taken numbers out of tensors without having been asked for
    one graph; ``leaves_numbers``: that went wrong, so that later traces leave it.
    ``newer``: code that replaced it since, from which to make the function for the next try.
    ``has_choices``: what it returns may hold choices that are made after the graph.
    ``runs_plainly``: the call that is being made runs in plain Python, since it sets up what later
    ones find; ``has_set_up``: the last one did.
    ``changing``: where it has found buffers of modules that do not stay as they are.
    ``slices``: what is computed in front of a call, whose numbers the body is given; ``joined``:
    the same, made one program; ``noted``: what the latest trace would have had so as well, a
    fraction or a truth with its symbol. ``spare``: the same code for calls whose numbers would make
    one variant too many, without such numbers.
    """

    may_break: bool = False
    repeatable: bool | None = None
    timing: str = ""
    takes_numbers: bool = False
    leaves_numbers: bool = False
    tries: int = 0
    generation: int = 0
    newer: CodeType | None = None
    has_choices: bool = False
    runs_plainly: bool = False
    has_set_up: bool = False
    changing: set[str] = field(default_factory=set)
    slices: list[Any] = field(default_factory=list)
    joined: Any = None
    noted: list[tuple[Any, Any]] = field(default_factory=list)
    spare: CodeType | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def leave_numbers(self) -> bool:
        """Take no more numbers out of tensors; return whether any were."""
        taken, self.takes_numbers = self.takes_numbers, False
        self.leaves_numbers = self.leaves_numbers or taken
        return taken

    def have_numbers(self, asked: Iterable[Any] = ()) -> bool:
        """Have computed in front of later calls what was noted; return whether anything was.

        Of fractions and truths only those of the symbols ``asked``: each value is a variant.
        """
        asked = set(asked)
        wanted = [each for each, symbol in self.noted if symbol is None or symbol in asked]
        fresh = [each for each in wanted if each not in self.slices]
        self.slices += fresh
        self.noted.clear()
        return bool(fresh)

    def replacement(self, body: FunctionType) -> FunctionType:
        """Return the function to call at the next try."""
        return body if self.newer is None else with_code(body, self.newer)


def with_code(body: FunctionType, code: CodeType) -> FunctionType:
    """Return a function of other code, with all else of ``body``."""
    space, name = body.__globals__, body.__name__
    return FunctionType(code, space, name, body.__defaults__, body.__closure__)
