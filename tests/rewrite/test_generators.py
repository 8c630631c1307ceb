"""A generator holds its own instructions and its mended form, and each does what the other does."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from bcmend.names import CALLBACK, COMPILER, EXPORTING, NAMESPACE, TRACING
from bcmend.rewrite.sites.plan import SiteRefusal, TruthLowering
from tests.stand_ins import (
    EverythingMended,
    NothingToMend,
    RefusedWhileTraced,
    mended,
    sites_of,
    with_code,
)

Made = Callable[..., Iterator[Any]]


def _branches(xs, low):
    for x in xs:
        if x > low:
            y = x * 2
        else:
            y = -x
        yield y


def _ternary(xs, low):
    for number, x in enumerate(xs):
        yield number if x > low else x


def _returns(xs, low):
    total = 0
    for x in xs:
        yield x
        total = total + 1 if x > low else total
    if total > 1:
        return total
    return -total


def _checks(xs, low):
    for x in xs:
        if x > low + 2:
            raise ValueError("too high", x)
        yield x


def _is_sent(xs, low):
    got = yield len(xs)
    while got is not None:
        if got > low:
            got = got + 1
        got = yield got


def _delegates(xs, low):
    found = yield from _returns(xs, low)
    for word in ("one", "two"):
        yield word if found > 0 else "less"


def _handles(xs, low):
    for x in xs:
        try:
            yield 1 / (x if x > low else low)
        except (ZeroDivisionError, KeyError) as error:
            yield type(error).__name__
        finally:
            x = low
    yield x


def _closes(xs, low):
    count = 0

    def note(by):
        nonlocal count
        count += by

    for x in xs:
        note(1 if x > low else 10)
        yield count


def _never_returns(xs, low):
    got = low
    while True:
        sent = yield got
        if sent is None or sent > got:
            got = got + 2
        else:
            got = got - 1


def _filters(xs, low):
    for x in xs:
        if x > low:
            yield x


def _keeps(xs, low):
    for x in xs:
        got = x > low or (yield x)
        yield got


GENERATORS = (
    _branches,
    _ternary,
    _returns,
    _checks,
    _is_sent,
    _delegates,
    _handles,
    _closes,
    _never_returns,
    _filters,
    _keeps,
)
CALLS = (((1, 5, 2), 0), ((1, 2), 4), ((0, 3, -1), 0), ((), 1))


def _drive(made: Made, xs: tuple[int, ...], low: int, send: object = None) -> list[object]:
    seen: list[object] = []
    generator: Any = made(xs, low)
    try:
        seen.append(next(generator))
        for number in range(8):
            seen.append(generator.send(send))
            if number == 1:
                seen.append(generator.throw(KeyError("thrown")))
    except Exception as error:
        seen.append((type(error), error.args))
        seen.append(traceback.extract_tb(error.__traceback__)[-1].lineno)
    return seen


def _with_both_forms(made: FunctionType, primitives: object, *, traced: bool) -> FunctionType:
    names = {
        **made.__globals__,
        NAMESPACE: primitives,
        TRACING: lambda: traced,
        CALLBACK: lambda: None,
        COMPILER: SimpleNamespace(**{EXPORTING: False}),
    }
    return with_code(made, mended(made.__code__, names).shell, names)


@pytest.mark.parametrize("made", GENERATORS, ids=lambda made: made.__name__)
@pytest.mark.parametrize("answers", [NothingToMend, EverythingMended, RefusedWhileTraced])
@pytest.mark.parametrize("send", [None, 7])
def test_the_mended_form_does_what_the_generator_does(
    made: FunctionType, answers: type[NothingToMend], send: object
) -> None:
    primitives = answers()
    both = _with_both_forms(made, primitives, traced=True)
    for call in CALLS:
        assert _drive(both, *call, send) == _drive(made, *call, send)
    assert primitives.asked or made in (_filters, _keeps) or send is None


@pytest.mark.parametrize("made", GENERATORS, ids=lambda made: made.__name__)
def test_an_eager_generator_asks_for_nothing(made: FunctionType) -> None:
    both = _with_both_forms(made, None, traced=False)
    assert inspect.isgeneratorfunction(both)
    for call in CALLS:
        assert _drive(both, *call, 7) == _drive(made, *call, 7)


def test_arms_that_yield_stay_behind_a_jump_whose_truth_may_be_known() -> None:
    (site,) = (each for each in sites_of(_filters) if each.kind == "branch")
    assert isinstance(site.decision, TruthLowering)
    assert site.decision.refusal.slug == "generator"


def test_a_jump_that_keeps_its_condition_is_refused_in_front_of_an_arm_that_yields() -> None:
    def keeps_it(x):
        return x.all() or (yield x)

    (site,) = (each for each in sites_of(keeps_it) if each.kind == "branch")
    if sys.version_info < (3, 12):
        assert isinstance(site.decision, SiteRefusal)
        assert site.decision.slug == "generator"
    else:  # the jump is by a copy of the condition, and drops it
        assert isinstance(site.decision, TruthLowering)


class _Known(NothingToMend):
    """Knows that each condition is true."""

    def known(self, key: str, condition: object) -> object:
        return True


def test_the_jump_goes_by_the_truth_that_is_known() -> None:
    both = _with_both_forms(_filters, _Known(), traced=True)
    assert list(both((1, 5, 2), 3)) == [1, 5, 2]
    assert list(_filters((1, 5, 2), 3)) == [5]
