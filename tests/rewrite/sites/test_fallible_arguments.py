"""What of a deferred statement is tried beforehand, since it may fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import CALLS
from bcmend.rewrite.sites.call_parts import arguments_of
from bcmend.rewrite.sites.fallible_arguments import may_fail
from bcmend.rewrite.sites.plan import CodeRange, Fails, Trial
from tests.stand_ins import NothingToMend, installed, sites_of


class Number:
    """Stands for a tensor of one element."""

    def __init__(self, value: float) -> None:
        self.value = value

    def item(self) -> float:
        return self.value

    def tolist(self) -> list[float]:
        return [self.value, self.value]


class Trying(NothingToMend):
    """Makes the trial of a statement and never the statement."""

    def __init__(self) -> None:
        super().__init__()
        self.trials: list[Trial | tuple[Any, ...]] = []

    def recording(self, key: str, *receiver: object) -> bool:
        return True

    def record(  # type: ignore[override]
        self, key: str, action: FunctionType, inputs: tuple[Any, ...], *more: Any
    ) -> bool:
        _, _, trial, facts = more
        self.trials.append(facts)
        trial(*inputs)
        return True


def _trial(function: Any) -> Trial | None:
    (site,) = sites_of(function, ask=False)
    trial: Trial | None = site.decision.trial  # type: ignore[union-attr]
    return trial


def _divided(x, y):
    print("inverse", 1 / x.item(), y, sep="")


def _with_stars(x, y):
    print(*x.tolist(), *[y], 1 % x.item(), sep="")


def _with_stars_behind_a_test(x, y):
    print(*(x.tolist() if y else [round(1 / x.item())]), **{"sep": str(1 / x.item())})  # noqa: PIE804


def _rounded_in_a_comprehension(x, y):
    print(str([round(1 / each) for each in x.tolist()]))


def _behind_a_test(x, y):
    print(f"{1 / x.item():.2f}" if y else round(1 / x.item()), "end")
    for _ in range(2):  # Python 3.12 writes a short end once for each way to it
        y = [y]


def _of_math(x, y):
    print(math.log(x.item()), y)


def _whole(x, y):
    print("%d" % (1 / x.item()), y, file=None)  # noqa: UP031


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize(
    "function",
    [
        _divided,
        _with_stars,
        _with_stars_behind_a_test,
        _behind_a_test,
        _of_math,
        _whole,
    ],
)
def test_a_trial_fails_where_the_statement_does(
    function: Callable[..., None], y: int, capsys: pytest.CaptureFixture[str]
) -> None:
    primitives = Trying()
    mended = installed(function, primitives, ask=False)
    mended(Number(2.0), y)
    for call in (function, mended):
        with pytest.raises((ZeroDivisionError, ValueError)):
            call(Number(0.0), y)
    assert capsys.readouterr().out == ""
    assert len(primitives.trials) == 2


def _shown(x):
    print("mean", x, f"{x.item():.3f}", str(x), x.tolist(), len(x))


def _said(x):
    print(say(x.item()))


def _says_twice(x):
    print(print(1 / x.item()))


def _of_nothing(x):
    print("nothing", 1, x.shape)


def say(value: object) -> str:
    return f"<{value}>"


@pytest.mark.parametrize("function", [_said, _says_twice, _of_nothing])
def test_what_cannot_fail_or_be_made_twice_is_not_tried(function: Callable[..., None]) -> None:
    assert _trial(function) is None


def _mean(x):
    print(f"{x.mean().item():.3f}", float(x.sum()), f"{x.max():8.2f}")


@pytest.mark.parametrize(
    ("function", "fails"),
    [
        (_mean, Fails.UNLESS_USUAL),
        (_shown, Fails.UNLESS_NUMBERS),
        (_divided, Fails.POSSIBLY),
    ],
)
def test_when_something_fails(function: Callable[..., None], fails: Fails) -> None:
    trial = _trial(function)
    assert trial is not None and trial.fails is fails


def _reads(show, x, y):
    show(x.shape)


def _divides(show, x, y):
    show(x / y)


def _adds(show, x, y):
    show(x + y)


def _calls_what_is_not_known(show, x, y):
    show(y(x))


def _first_argument(function: Any) -> tuple[Facts, CodeRange]:
    facts = facts_of(decode(function.__code__))
    call = max(i for i, each in enumerate(facts.instructions) if each.op in CALLS)
    return facts, arguments_of(facts, 0, call)[0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [(_reads, False), (_divides, True), (_adds, False), (_calls_what_is_not_known, True)],
)
def test_a_division_and_an_unknown_call_may_fail(function: Any, expected: bool) -> None:
    facts, part = _first_argument(function)
    assert may_fail(facts, part, (), frozenset()) is expected


def test_what_was_evaluated_before_cannot_fail_when_it_is_delivered() -> None:
    facts, part = _first_argument(_divides)
    assert not may_fail(facts, part, (part,), frozenset())


def _reads_a_global(show, x, y):
    show(math)


def test_only_harmless_globals_can_be_read_later() -> None:
    facts, part = _first_argument(_reads_a_global)
    assert may_fail(facts, part, (), frozenset())
    assert not may_fail(facts, part, (), frozenset(["math"]))
