"""What one pattern of the corpus is: a small program, calls of it, and what has to become of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from bcmend.reports.site_report import Report
from tests.differences_of_torch import GENERATORS_LEFT_IN_YIELD_FROM_FAIL
from tests.equivalence import Call, Comparison, Way, call, compare, patch_then_compile

WHERE: Final = "branch by where"
COND: Final = "branch by cond"
SPLIT: Final = "branch by split"
CHOICE: Final = "branch by choice"
AHEAD: Final = "branch by ahead"
LOOP: Final = "loop by while_loop"
NO_MERGE: Final = "branch without a merge"
GUARD: Final = "guard deferred"
OUTPUT: Final = "output deferred"
CALL: Final = "call substituted"

Outcome = tuple[str, ...]

_RELEASE: Final = tuple(map(int, torch.__version__.split(".")[:2]))
#: Whether CPython copies a short end of a function into each way that leads there, and inlines
#: comprehensions.
IS_FROM_3_12: Final = sys.version_info >= (3, 12)


def refused(slug: str) -> str:
    """The outcome of a site that is left as it was."""
    return f"refused: {slug}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One small program.

    Attributes:
        name: the name of its factory.
        make: builds the program, a function or a module.
        inputs: builds the arguments of calls that take every path.
        outcome: what becomes of its sites, each kind once, in alphabetical order.
        training: whether it is tried with gradients and a backward pass too.
        training_outcome: what becomes of its sites then, where that differs.
        graphs: how many graphs it takes in one piece; `None` where a site stays as it was.
        recompiles: how many frames may be compiled after the first call.
        may_copy: eager execution gives an alias of an input on one side of a branch; a merged
            value is a tensor of its own.
        zero_gradients: eager execution leaves gradients `None` on one side of a branch.
        any_random_state: an arm draws random numbers, and running both arms draws them always.
        inductor: whether Inductor compiles an operator of its arms inside `torch.cond`; where it
            does not, the branch has to be left to Dynamo.
        inductor_backward: whether Inductor compiles the backward of what it becomes; stock
            `torch.compile(fullgraph=True)` fails alike where it does not.
        only_writes: it has neither branch nor loop nor check, though its outcome does not say so.
        way: how it gets patched and compiled.
        unsettled: why the outcome is not reached yet; empty where it is.
        unsettled_from_3_12: why it is not from CPython 3.12 on.
        unsettled_from_2_15: why it is not from torch 2.15 on.
        unequal: in which way it can be told from eager execution yet; empty where it cannot.
        because: why a site has to stay as it was, or what stands in the way; empty where none does.
        worse: in which way it is worse than stock `torch.compile` yet; empty where it is not.
        changes_with: the release of torch, as (2, 15), from which on the two below hold; `None`
            where releases make no difference.
        changed_outcome: what becomes of its sites then, where no `training_outcome` says it.
        changed_worse: in which way it is worse than stock then.
        from_3_12: what becomes of its sites from CPython 3.12 on, where neither of those two says
            it; `None` where it makes no difference.
    """

    name: str
    make: Callable[[], Any]
    inputs: Callable[[], Sequence[Call]]
    outcome: Outcome
    training: bool = True
    training_outcome: Outcome | None = None
    graphs: int | None = 1
    recompiles: int = 0
    may_copy: bool = False
    zero_gradients: bool = False
    any_random_state: bool = False
    inductor: bool = True
    inductor_backward: bool = True
    only_writes: bool = False
    way: Way = patch_then_compile
    unsettled: str = ""
    unsettled_from_3_12: str = ""
    unsettled_from_2_15: str = ""
    unequal: str = ""
    because: str = ""
    worse: str = ""
    changes_with: tuple[int, int] | None = None
    changed_outcome: Outcome | None = None
    changed_worse: str = ""
    from_3_12: Outcome | None = None

    def expected(self, *, training: bool) -> Outcome:
        """What has to become of the sites with this torch and this Python."""
        of_torch = self.changed_outcome if self.is_changed else None
        of_python = self.from_3_12 if IS_FROM_3_12 else None
        chosen = (self.training_outcome if training else None, of_torch, of_python)
        return next((each for each in chosen if each is not None), self.outcome)

    @property
    def is_changed(self) -> bool:
        """Return whether this torch is one with which something else becomes of it."""
        return self.changes_with is not None and self.changes_with <= _RELEASE

    @property
    def unsettled_here(self) -> str:
        """Why the outcome is not reached yet on this Python; empty where it is."""
        of_python = self.unsettled_from_3_12 if IS_FROM_3_12 else ""
        of_torch = self.unsettled_from_2_15 if GENERATORS_LEFT_IN_YIELD_FROM_FAIL else ""
        return self.unsettled or of_python or of_torch

    @property
    def worse_here(self) -> str:
        """In which way it is worse than stock with this torch; empty where it is not."""
        return self.worse or (self.changed_worse if self.is_changed else "")

    @property
    def outcomes(self) -> frozenset[str]:
        """What has to become of the sites, in inference or in training, on the oldest torch."""
        in_training = self.outcome if self.training_outcome is None else self.training_outcome
        return frozenset(self.outcome) | frozenset(in_training)

    @property
    def is_control_flow(self) -> bool:
        """Return whether it does more than output and calls: branch, loop or raise on a tensor."""
        others = {OUTPUT, CALL, refused("output-shape"), refused("no-equal-substitute")}
        return not (self.only_writes or self.outcomes <= others)

    @property
    def is_refused(self) -> bool:
        """Return whether it is right that a site stays as it was."""
        return any(each.startswith("refused") for each in self.outcomes)

    def is_whole(self, *, training: bool) -> bool:
        """Return whether nothing is refused, so that `fullgraph=True` has to work."""
        expected = self.expected(training=training)
        return self.graphs == 1 and not any(each.startswith("refused") for each in expected)


def run(
    pattern: Pattern, *, backend: str = "eager", fullgraph: bool = True, training: bool = False
) -> Comparison:
    """Compare a pattern, patched and compiled, with eager execution."""
    return compare(
        pattern.make,
        pattern.inputs,
        backend=backend,
        fullgraph=fullgraph,
        training=training,
        may_copy=pattern.may_copy,
        zero_gradients=pattern.zero_gradients,
        any_random_state=pattern.any_random_state,
        way=pattern.way,
    )


def wrong_with(pattern: Pattern, found: Comparison, *, training: bool) -> list[str]:
    """What a run has shown that the pattern does not expect."""
    wrong = [f"patched, in eager execution: {each}" for each in found.eager_differences]
    wrong += [f"compiled: {each}" for each in found.differences]
    expected = pattern.expected(training=training)
    outcome = () if found.report is None else found_outcome(found.report)
    if outcome != expected:
        wrong.append(f"outcome {outcome}, not {expected}")
    if pattern.graphs is None or any(each.startswith("refused") for each in expected):
        return wrong
    if found.graphs != pattern.graphs:
        wrong.append(f"{found.graphs} graphs, not {pattern.graphs}")
    if found.recompiles > pattern.recompiles:
        wrong.append(f"{found.recompiles} frames compiled after the first call")
    return wrong


def pattern(
    inputs: Callable[[], Sequence[Call]], *outcome: str, **facts: Any
) -> Callable[[Callable[[], Any]], Pattern]:
    """Make a pattern of the factory that is decorated."""

    def decorate(make: Callable[[], Any]) -> Pattern:
        name = make.__name__.replace("_", "-")
        return Pattern(name, make, inputs, tuple(sorted(outcome)), **facts)

    return decorate


def patterns_among(values: Iterable[object]) -> tuple[Pattern, ...]:
    """The patterns among the values of a module, in its order."""
    return tuple(value for value in values if isinstance(value, Pattern))


def found_outcome(report: Report) -> Outcome:
    """What a report says of the sites that a call has reached, in the words of `Pattern`."""
    words = {_word(site.kind, site.status, site.lowering, site.refusal) for site in report.sites}
    return tuple(sorted(words - {""}))


def _word(kind: str, status: str, lowering: str | None, slug: str | None) -> str:
    if status in ("refused", "withdrawn"):
        return refused(slug or "")
    if status != "mended" or lowering is None:
        return ""
    if kind == "call":
        return CALL
    if lowering == "guard" or kind == "guard":
        return GUARD
    if kind == "output":
        return OUTPUT
    base = lowering.removesuffix(" with effects")
    if base == "while_loop":
        return LOOP
    if base.startswith("choice"):
        return CHOICE
    if base.startswith("split"):
        return SPLIT
    return NO_MERGE if base == "nothing to merge" else f"branch by {base}"


def signs() -> list[Call]:
    """Three calls with one vector: of positive sum, of negative sum, of mixed signs."""
    vectors = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -4.0, 0.5])
    return [call(torch.tensor(vector)) for vector in vectors]


def rows() -> list[Call]:
    """Calls with a matrix of two rows and four columns, of positive and of negative sum."""
    values = torch.arange(1.0, 9.0).reshape(2, 4) / 4
    return [call(values.clone()), call(-values), call(values + 0.5)]


def pairs() -> list[Call]:
    """Calls with two vectors: equal, different, different the other way round."""
    one, other = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, -2.0, 1.0])
    return [call(one.clone(), one.clone()), call(one.clone(), other.clone()), call(-one, other)]
