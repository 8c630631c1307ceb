"""Calls for which a variant is compiled, made in copies of the process first: eagerly, mended.

That is ``Policy(verify="first")``. Where they differ, sites are tried one by one, each without, and
the one at fault is withdrawn. What differs without any site is no fault of bcmend's.
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
from bcmend.dynamo import frames
from bcmend.errors import TrialError
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.session import SESSION
from bcmend.trials.apart import TriedCall, makes_copies, run_apart
from bcmend.trials.frozen import FirstDifference
from bcmend.trials.observed import (
    ASPECTS,
    Observed,
    first_difference_in,
    of_one_call,
    tensors_in,
)

_LOG: Final = logging.getLogger("bcmend")
#: By how much values may differ, as a share of the largest number of a tensor: the back end that
#: compiles is not known here.
_SHARE: Final = 1e-4
#: How long a call may take in a copy. It never ends where another thread held a lock it wants.
_SECONDS: Final = 300.0
_Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Difference:
    aspect: str
    found: FirstDifference

    def __str__(self) -> str:
        return f"{self.found.where} is {self.found.one} eagerly, and {self.found.other} mended"


def compare(code: CodeType, mended: _Call, plain: _Call, arguments: tuple[Any, ...]) -> bool:
    """Return whether a call may be made mended, and compiled for that."""
    if not makes_copies(goes_back=torch.is_grad_enabled()):
        _say_once(
            "a process with an accelerator, or with threads of autograd, cannot be copied: first "
            "calls are not compared"
        )
        return True
    if any(map(_is_shared, tensors_in(arguments))):
        _say_once("copies of the process would change tensors in shared memory: not compared")
        return True
    subject = TriedCall(None, arguments, {})
    try:
        expected = _tried(subject, plain)[0]
        found, sites = _tried(subject, mended)
        difference = _first(expected, found)
        if difference is None:
            _LOG.info("a first call of %s is equal to eager execution", code.co_qualname)
            return True
        if _first(expected, _tried(subject, mended, without=code)[0]) is not None:
            text = "%s differs from eager execution without bcmend as well: %s"
            _LOG.info(text, code.co_qualname, difference)
            return True
        guilty = _guilty(subject, mended, sites, expected)
    except TrialError as error:
        _say_once(f"a first call could not be compared with eager execution: {error}")
        return True
    _withdraw(code, guilty, difference)
    return False


def _is_shared(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]


def _tried(
    subject: TriedCall, call: _Call, without: CodeType | str | None = None
) -> tuple[Observed, tuple[str, ...]]:
    return run_apart(subject, partial(_observed, call=call, without=without), _SECONDS)


def _observed(
    subject: TriedCall, *, call: _Call, without: CodeType | str | None = None
) -> tuple[Observed, tuple[str, ...]]:
    """Return what a call shows, and the names of the sites that were mended for it.

    ``without`` is code that is compiled as without bcmend, or a site that is withdrawn before.
    """
    if isinstance(without, CodeType):
        frames.leave_alone(without)
    elif without is not None:
        site_table.withdraw(without, "differs")
    for each in SESSION.sites.values():
        each.outcome.lowering = ""
    shown = of_one_call(call, subject.arguments, trains=torch.is_grad_enabled())
    return shown, tuple(key for key, each in SESSION.sites.items() if each.outcome.lowering)


def _first(expected: Observed, found: Observed) -> _Difference | None:
    for aspect in ASPECTS:
        at = first_difference_in(aspect, expected, found, share=_SHARE, joins=True)
        if at is not None:
            return _Difference(aspect, at)
    return None


def _guilty(
    subject: TriedCall, mended: _Call, sites: tuple[str, ...], expected: Observed
) -> str | None:
    """Return the site without which the call shows what it should."""
    for each in sites:
        if _first(expected, _tried(subject, mended, without=each)[0]) is None:
            return each
    return None


def _withdraw(code: CodeType, guilty: str | None, difference: _Difference) -> None:
    if guilty is None:
        frames.leave_alone(code)
        what = f"{code.co_qualname} is compiled as without bcmend"
    else:
        site_table.withdraw(guilty, "differs", str(difference))
        what = f'the site {guilty} is withdrawn; Policy(off=("{guilty}",)) keeps it off'
    _LOG.warning(
        "bcmend: a call of %s, mended, differs from eager execution: %s\n"
        "  From now on %s.\n  This call gives what eager execution gives. Please report it, with "
        "this text: bcmend %s, torch %s.",
        code.co_qualname,
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
