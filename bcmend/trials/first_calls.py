"""Calls that are made in copies of the process first, eagerly and mended, and compared.

Those for which a variant is compiled (``Policy(verify="first")``), or in which a branch takes a
side that is new (``Policy(verify="sides")``). Where they differ, sites are tried one by one, each
without, and the one at fault is withdrawn. What differs without any site is no fault of bcmend's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any, Final

import torch

import bcmend
from bcmend.dynamo import compat, frames
from bcmend.errors import TrialError
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.session import SESSION
from bcmend.trials.apart import NotEnded, TriedCall, makes_copies, run_apart
from bcmend.trials.frozen import FirstDifference
from bcmend.trials.gradients import tensors_in
from bcmend.trials.observed import (
    ASPECTS,
    Observed,
    first_difference_in,
    of_one_call,
)

_LOG: Final = logging.getLogger("bcmend")
#: By how much values may differ, as a share of the largest number of a tensor: the back end that
#: compiles is not known here.
_SHARE: Final = 1e-4
#: How long a call may take in a copy. It never ends where another thread held a lock it wants.
_SECONDS: Final = 300.0
_DIFFERS: Final = "bcmend withdraws what differs from eager execution"
_Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Difference:
    aspect: str
    found: FirstDifference

    def __str__(self) -> str:
        return f"{self.found.where} is {self.found.one} eagerly, and {self.found.other} mended"


def compare(
    code: CodeType,
    mended: _Call,
    plain: _Call,
    arguments: tuple[Any, ...],
    new: tuple[str, ...],
) -> bool:
    """Return whether a call may be made mended.

    ``new`` are the sites of which it takes new sides; without any the code is compiled for it.
    """
    if not makes_copies(goes_back=torch.is_grad_enabled()):
        _say_once(
            "a process with an accelerator, or with threads of autograd, cannot be copied: calls "
            "are not compared"
        )
        return True
    if any(map(_is_shared, tensors_in(arguments))):
        _say_once("copies of the process would change tensors in shared memory: not compared")
        return True
    if _GIVEN_UP:
        return True
    subject = TriedCall(None, arguments, {})
    try:
        expected = _tried(subject, plain).shown
        found = _tried(subject, mended)
        difference = _first(expected, found.shown)
        if difference is None:
            _LOG.info("a call of %s is equal to eager execution%s", code.co_qualname, _about(new))
            return True
        # Where it was compiled before, it is compiled once more, for the names of its sites.
        sites = _tried(subject, mended, _Without(code)).sites if new else found.sites
        sites = tuple(dict.fromkeys((*new, *sites)))
        stock = _tried(subject, mended, _Without(code, everything=True))
        if stock.is_compiled and _first(expected, stock.shown) is not None:
            text = "%s differs from eager execution without bcmend as well: %s"
            _LOG.info(text, code.co_qualname, difference)
            return True
        guilty = _guilty(subject, mended, sites, expected, code)
    except TrialError as error:
        _say_once(f"a call could not be compared with eager execution: {error}")
        if isinstance(error, NotEnded):
            _say_once("no more calls are compared with eager execution")
            _GIVEN_UP.append(error)
        return True
    _withdraw(code, guilty, sites, difference, new)
    return False


#: That a copy of the process has not ended: the next one might not either.
_GIVEN_UP: Final[list[TrialError]] = []


@dataclass(frozen=True, slots=True)
class _Without:
    """What is compiled anew for a call, without a site or as if there were no bcmend."""

    code: CodeType
    site: str = ""
    everything: bool = False

    def begin(self) -> None:
        codes = [self.code]
        if self.everything:
            frames.leave_all_alone()
            codes += [each for each, _ in SESSION.bodies.items()]
        for each in codes:
            frames.forget(each, _DIFFERS)
        if self.site:
            site_table.withdraw(self.site, "differs")


@dataclass(frozen=True, slots=True)
class _Made:
    """What a call has shown, the sites that were mended for it, and whether torch compiled it."""

    shown: Observed
    sites: tuple[str, ...]
    is_compiled: bool


def _is_shared(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]


def _tried(subject: TriedCall, call: _Call, without: _Without | None = None) -> _Made:
    return run_apart(subject, partial(_observed, call=call, without=without), _SECONDS)


def _observed(subject: TriedCall, *, call: _Call, without: _Without | None) -> _Made:
    if without is not None:
        without.begin()
    failures: list[Exception] = []

    def noted() -> Any:
        try:
            return call()
        except compat.TorchDynamoException as error:
            failures.append(error)
            raise

    for each in list(SESSION.sites.values()):
        each.outcome.lowering = ""
    shown = of_one_call(noted, subject.arguments, trains=torch.is_grad_enabled())
    sites = tuple(key for key, each in SESSION.sites.copy().items() if each.outcome.lowering)
    return _Made(shown, sites, not failures)


def _first(expected: Observed, found: Observed) -> _Difference | None:
    for aspect in ASPECTS:
        at = first_difference_in(aspect, expected, found, share=_SHARE, joins=True)
        if at is not None:
            return _Difference(aspect, at)
    return None


def _guilty(
    subject: TriedCall,
    mended: _Call,
    sites: tuple[str, ...],
    expected: Observed,
    code: CodeType,
) -> str | None:
    """Return the site without which the call shows what it should."""
    for each in sites:
        if _first(expected, _tried(subject, mended, _Without(code, each)).shown) is None:
            return each
    return None


def _about(new: tuple[str, ...]) -> str:
    return f" (new sides of {', '.join(new)})" if new else ""


def _withdraw(
    code: CodeType,
    guilty: str | None,
    sites: tuple[str, ...],
    difference: _Difference,
    new: tuple[str, ...],
) -> None:
    frames.forget(code, _DIFFERS)
    if guilty is None:
        frames.leave_alone(code)
        for each in sites:  # be they in code that it calls
            site_table.withdraw(each, "differs", str(difference))
        what = f"{code.co_qualname} is compiled as without bcmend"
    else:
        site_table.withdraw(guilty, "differs", str(difference))
        what = f'the site {guilty} is withdrawn; Policy(off=("{guilty}",)) keeps it off'
    _LOG.warning(
        "bcmend: a call of %s, mended, differs from eager execution%s: %s\n"
        "  From now on %s.\n  This call gives what eager execution gives. Please report it, with "
        "this text: bcmend %s, torch %s.",
        code.co_qualname,
        _about(new),
        difference,
        what,
        bcmend.__version__,
        torch.__version__,
    )


#: What the process was told.
_SAID: Final[set[str]] = set()


def _say_once(text: str) -> None:
    if text not in _SAID:
        _SAID.add(text)
        _LOG.warning("bcmend: %s", text)


SESSION.verifier = compare
