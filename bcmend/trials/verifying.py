"""`bcmend.verify`: whether mended calls of an object show what eager ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from bcmend.errors import CallError
from bcmend.patching.subject import title_of
from bcmend.reports.steps import step
from bcmend.reports.verdict import Difference, Verdict
from bcmend.trials.apart import makes_copies, run_apart
from bcmend.trials.observed import (
    ASPECTS,
    EXACT,
    Calls,
    Observed,
    Way,
    first_difference_in,
    observed,
)
from bcmend.trials.subject import subject_of

#: By how much values may differ, as a share of the largest number of a tensor: compilers reorder
#: arithmetic; gradients of an arm are added up before they join others.
_OF_COMPILERS: Final = 1e-4
_OF_GRADIENTS: Final = 1e-6


def verify(
    obj: Any,
    *args: Any,
    runs: int = 2,
    train: bool = False,
    backend: str = "eager",
    **kwargs: Any,
) -> Verdict:
    """Return whether ``obj``, mended and compiled, shows what it does in eager execution.

    Compared are, after each call, what it returns or raises (values, dtypes, shapes, strides), what
    it writes, logs and warns of, what the arguments, the object and the globals that its code names
    hold, gradients, the states of the generators of random numbers, and which of all that are one
    object or share memory: all but what docs/deviations.md lists. The calls are made as for
    ``explain``, and leave nothing behind.

    Args:
        obj: an ``nn.Module``, a Python function, a bound method, or what ``torch.compile`` made of
            one of these.
        args, kwargs: what it is called with.
        runs: how many calls are made, one after another on one object.
        train: have a module in training mode, and gradients go back through what it returns. Else
            it is in the mode that it has.
        backend: of `torch.compile`. With "eager" and "aot_eager" values are compared to the bit,
            and gradients to a millionth of the largest; with others all values to 1e-4 of it.

    Raises:
        UnsupportedObject: ``obj`` is nothing that can be patched, or a class.
        CallError: the arguments are not those of the object, ``runs`` is no positive number, or
            torch has no such back end.
        TrialError: the calls could not be made.
    """
    _require_calls(runs)
    subject = subject_of(obj, args, kwargs, backend=backend)
    mended = Way(backend, True, runs, train)
    is_copied = makes_copies(goes_back=train)

    def tried(name: str, way: Way) -> Calls:
        step(name)
        attempt = partial(observed, way=way, keeps_all=mended.keeps_all)
        return run_apart(subject, attempt, is_copied=is_copied)

    expected = tried("eager execution", replace(mended, backend=None, is_mended=False))
    found = tried("mended", mended)
    difference = _first(expected.shown, found.shown, backend)
    if difference is not None:
        without = tried("stock", replace(mended, is_mended=False))
        in_stock = _first(expected.shown, without.shown, backend)
        difference = replace(difference, stock=in_stock is not None)
    return Verdict(
        title_of(obj),
        torch.__version__,
        backend,
        runs,
        train,
        is_copied,
        difference,
        found.sites,
        expected.raised,
    )


def _require_calls(runs: object) -> None:
    if not isinstance(runs, int) or runs < 1:
        raise CallError(f"verify(runs=...) takes a positive number of calls, got {runs!r}")


def _first(
    expected: Sequence[Observed], found: Sequence[Observed], backend: str
) -> Difference | None:
    is_exact = backend in EXACT
    for call, (one, other) in enumerate(zip(expected, found, strict=True), 1):
        for aspect in ASPECTS:
            if aspect == "generators" and not is_exact:
                continue  # compilers draw in their own way
            share = _OF_GRADIENTS * (aspect == "gradients") if is_exact else _OF_COMPILERS
            at = first_difference_in(aspect, one, other, share=share, joins=not is_exact)
            if at is not None:
                return Difference(call, aspect, at.where, at.one, at.other, False)
    return None
