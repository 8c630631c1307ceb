"""`bcmend.verify`: whether mended calls of an object show what eager ones do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from bcmend.errors import CallError
from bcmend.patching.subject import title_of
from bcmend.reports.steps import shown, step
from bcmend.reports.verdict import Difference, Sides, Verdict
from bcmend.trials.apart import TriedCall, makes_copies
from bcmend.trials.observed import (
    ASPECTS,
    EXACT,
    Calls,
    Observed,
    Way,
    first_difference_in,
    observed_apart,
)
from bcmend.trials.sides import Explored, Plan, Run, asking, explored, none_of, replayed, sides_of
from bcmend.trials.subject import subject_of

#: By how much values may differ, as a share of the largest number of a tensor: compilers reorder
#: arithmetic; gradients of an arm are added up before they join others.
_OF_COMPILERS: Final = 1e-4
_OF_GRADIENTS: Final = 1e-6


@shown("beginning to verify")
def verify(
    obj: Any,
    *args: Any,
    runs: int = 2,
    train: bool = False,
    backend: str = "eager",
    sides: str = "taken",
    seconds: float = 600.0,
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
        sides: "taken" for those that the calls take; "all" to have calls take each side of each
            mended branch and check as well, whatever its condition says, and loops make no turn,
            one, and one more than they do; then pairs of sides of sites that follow each other.
        seconds: after how many no more of these calls are made.

    Raises:
        UnsupportedObject: ``obj`` is nothing that can be patched, or a class.
        CallError: the arguments are not those of the object, ``runs`` or ``seconds`` is no positive
            number, ``sides`` is none of the two, or torch has no such back end.
        TrialError: the calls could not be made.
    """
    _require(runs, sides, seconds)
    subject = subject_of(obj, args, kwargs, backend=backend)
    way, is_copied = Way(backend, True, runs, train), makes_copies(goes_back=train)
    return _Trial(subject, way, is_copied).verdict(title_of(obj), sides == "all", float(seconds))


@dataclass(frozen=True, slots=True)
class _Trial:
    """What is verified: an object and a call of it, how it is called mended, and where."""

    subject: TriedCall
    way: Way
    is_copied: bool

    def verdict(self, title: str, takes_all_sides: bool, seconds: float) -> Verdict:
        way = self.way
        expected = self._calls("eager execution", replace(way, backend=None, is_mended=False))
        found = self._calls("mended", way)
        difference = first_of(expected.shown, found.shown, way.backend)
        if difference is not None:
            stock = self._calls("stock", replace(way, is_mended=False))
            in_stock = first_of(expected.shown, stock.shown, way.backend)
            difference = replace(difference, stock=in_stock is not None)
        sides = None
        if takes_all_sides and difference is not None:
            sides = none_of(found.sites, "the calls differ without that")
        elif takes_all_sides:
            sides = self._on_all_sides(found, seconds)
            difference = next(iter(sides.differences), None)
        return Verdict(
            title,
            torch.__version__,
            str(way.backend),
            way.runs,
            way.trains,
            self.is_copied,
            difference,
            found.sites,
            expected.raised,
            sides,
        )

    def _calls(self, name: str, way: Way) -> Calls:
        step(name)
        keeps_all = self.way.keeps_all
        return observed_apart(self.subject, way, keeps_all=keeps_all, is_copied=self.is_copied)

    def _on_all_sides(self, found: Calls, seconds: float) -> Sides:
        """Return what calls show that take the sides of what was mended, one after another."""
        begun = time.monotonic()
        program = asking(found.sites, found.codes, found.policy, is_copied=self.is_copied)
        step("all sides, eager execution")
        until = begun + seconds / 2  # the other half is for the compiled calls
        eager = explored(self.subject, program, self.way, until)
        why = _why_not_asked(eager)
        if why:
            return none_of(found.sites, why)
        step("all sides, mended")
        plans = [plan for plan, each in eager.runs.items() if not each.failed]
        until = begun + seconds
        mended = replayed(self.subject, program, self.way, eager, plans, until)
        differing = self._differences(eager, mended)
        if differing:
            step("all sides, stock")
            stock = replace(self.way, is_mended=False)
            as_stock = replayed(self.subject, program, stock, eager, list(differing), until)
            too = self._differences(eager, as_stock)
            differing = {plan: replace(each, stock=plan in too) for plan, each in differing.items()}
        return sides_of(found.sites, eager, mended, differing, time.monotonic() - begun)

    def _differences(self, eager: Explored, found: Mapping[Plan, Run]) -> dict[Plan, Difference]:
        """Return where a call shows first what eager execution does not, of each plan."""
        at = {
            plan: first_of([eager.runs[plan].shown], [run.shown], self.way.backend)
            for plan, run in found.items()
            if not run.failed
        }
        return {plan: each for plan, each in at.items() if each is not None}


def _why_not_asked(eager: Explored) -> str:
    """Return why a program whose jumps ask is not the same program; empty where it is."""
    asked, plain = eager.runs[()], eager.plain
    if asked.failed or plain.failed:
        return f"in eager execution: {plain.failed or asked.failed}"
    at = first_of([plain.shown], [asked.shown], None)
    if at is None:
        return ""
    return f"where jumps ask it does something else: {at.where} is {at.mended}, and was {at.eager}"


def _require(runs: object, sides: object, seconds: object) -> None:
    if not isinstance(runs, int) or runs < 1:
        raise CallError(f"verify(runs=...) takes a positive number of calls, got {runs!r}")
    if sides not in ("taken", "all"):
        raise CallError(f'verify(sides=...) takes "taken" or "all", got {sides!r}')
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise CallError(f"verify(seconds=...) takes a positive number of seconds, got {seconds!r}")


def first_of(
    expected: Sequence[Observed], found: Sequence[Observed], backend: str | None
) -> Difference | None:
    """Return where calls by a back end differ first from eager ones, or None."""
    is_exact = backend in (None, *EXACT)
    for call, (one, other) in enumerate(zip(expected, found, strict=True), 1):
        for aspect in ASPECTS:
            if aspect == "generators" and not is_exact:
                continue  # compilers draw in their own way
            share = _OF_GRADIENTS * (aspect == "gradients") if is_exact else _OF_COMPILERS
            at = first_difference_in(aspect, one, other, share=share, joins=not is_exact)
            if at is not None:
                return Difference(call, aspect, at.where, at.one, at.other, False)
    return None
