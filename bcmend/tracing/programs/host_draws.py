"""Draws from the generators of Python and numpy, made before the graph in the order of a program.

A later one may depend on what earlier ones have given, and on what the call is given:
``random.randrange(0, len(x) - width)`` has a bound that was drawn, and what is drawn in an arm is
drawn where its side is taken. Both are computed by slices of the graph that is to come. Where an
argument cannot be computed, or the function fails on it, nothing of the call has happened yet: it
is made in plain Python, and fails there at its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx.node import map_aggregate

from bcmend.dynamo import compat, frames
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.knowledge.interruptions import is_interruption
from bcmend.names import DRAWN
from bcmend.tracing.deopt.side_exits import SideExit
from bcmend.tracing.effects import random_draws
from bcmend.tracing.programs.program_slices import Input, ProgramSlice
from bcmend.tracing.programs.straight_code import Joined, Scope
from bcmend.tracing.search.calls import CURRENT


def given_by(place: int) -> Input:
    """Return the step that is what the draw at a place has given."""
    return Input(f"L[{DRAWN!r}][{place}]", torch.Tensor)


def _variables(drawn: dict[int, torch.Tensor]) -> Scope:
    """Return the variables of the call, with what was drawn.

    Raises:
        NotComputed: no boundary makes the call.
    """
    if CURRENT.variables is None:
        raise NotComputed
    body, arguments = CURRENT.variables
    scope = Scope.of_call(frames.arguments_of(body.__code__), body, arguments)
    scope.local[DRAWN] = drawn
    return scope


class Later:
    """A number that is computed of earlier draws and of what the call is given."""

    def __init__(self, program: ProgramSlice) -> None:
        self._joined = Joined([program])
        #: The inputs of the program; some are what draws have given.
        self.inputs = {each for each in program.steps if isinstance(each, Input)}

    def value(self, drawn: dict[int, torch.Tensor]) -> Any:
        """Return it, given what was drawn.

        Raises:
            NotComputed: an operation fails.
        """
        scope, found = _variables(drawn), list[Any]()
        with torch.no_grad():
            self._joined.numbers(scope.local, scope.space, found)
        if found[0] is None:
            raise NotComputed
        return found[0]


class NotComputed(Exception):
    """An argument of a draw, or whether it is made, cannot be computed before the graph."""


class _Drawn(threading.local):
    """What the draws of a frame have given in this thread, by their places."""

    def __init__(self) -> None:
        self.numbers: dict[int, torch.Tensor] = {}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a branch, and the truth for which a draw in it is made."""

    number: Later
    truth: bool


class HostDraw:
    """A draw among the random calls of a frame; it is called without arguments.

    Attributes:
        example: what it gives where its side is not taken; nothing reads that.
        is_dropped: whether it was met in an arm that was refused, and is not made.
        is_read: whether a later draw may depend on it.
        later: the numbers that it depends on itself.
    """

    def __init__(
        self,
        output: compat.OutputGraph,
        site_key: str,
        draw: Callable[[Sequence[Any], dict[str, Any]], torch.Tensor],
        given: tuple[tuple[Any, ...], dict[str, Any]],
        conditions: Sequence[Condition],
    ) -> None:
        self._drawn, self._place = _DRAWN_BY.of(output), len(output.random_calls)
        self._site_key, self._draw, self._given = site_key, draw, given
        self._conditions = tuple(conditions)
        self.example: torch.Tensor | None = None
        self.is_dropped, self.is_read = False, True
        leaves = compat.tree_leaves(list(given))
        self.later = [each for each in leaves if isinstance(each, Later)]
        self.later += [each.number for each in conditions]

    def __call__(self) -> torch.Tensor | None:
        """Return what is drawn.

        Raises:
            SideExit: the call has to be made in plain Python.
        """
        if self.is_dropped:
            return None
        if not self.later:
            return self.made()
        try:
            return self.made()
        except Exception as error:
            # A function of Python or numpy fails on what was drawn before, or gives something of
            # another form. The call in plain Python raises what eager execution does.
            if is_interruption(error):
                raise
            random_draws.restore_states()
            raise SideExit(self._site_key, lasting=True) from None

    def made(self) -> torch.Tensor:
        """Return what is drawn, or raise what that raises."""
        drawn = self._drawn.numbers
        made = self.example
        if all(each.number.value(drawn) is each.truth for each in self._conditions) or made is None:
            positional, named = map_aggregate(self._given, lambda each: _value(each, drawn))
            made = self._draw(positional, named)
            kept = self.example
            if kept is not None and (made.shape != kept.shape or made.dtype is not kept.dtype):
                raise NotComputed
        if self.is_read:
            drawn[self._place] = made
        return made

    def try_now(self) -> None:
        """Draw while the call is traced; where that fails the example stands for the number."""
        try:
            self.made()
        except Exception as error:
            # As in a call of it: what was drawn before is nothing for the function of Python.
            if is_interruption(error) or not self.later:
                raise
            assert self.example is not None
            self._drawn.numbers[self._place] = self.example

    def is_among(self, inputs: Collection[Input]) -> bool:
        """Return whether inputs of programs have what this gives."""
        return given_by(self._place) in inputs


def _value(given: Any, drawn: dict[int, torch.Tensor]) -> Any:
    return given.value(drawn) if isinstance(given, Later) else given


_DRAWN_BY: Final[Slot[_Drawn]] = Slot(_Drawn, rolls_back=False)
#: The draws that are made: those in arms that are refused are taken back.
_MADE: Final[Slot[list[HostDraw]]] = Slot(list, rolls_back=True)
_IS_NOTED: Final[Slot[bool]] = Slot(bool, rolls_back=False)


def add(output: compat.OutputGraph, draw: HostDraw) -> None:
    """Have a draw made before the graph, behind those that are."""
    output.random_calls.append((draw, (), {}))
    _MADE.of(output).append(draw)
    if not _IS_NOTED.of(output):
        _IS_NOTED.put(output, True)
        at_the_end(output, Phase.CHECK, lambda _: _drop(output))


def _drop(output: compat.OutputGraph) -> None:
    """Have no draw made that is taken back, and no number kept that no draw depends on."""
    made = _MADE.of(output)
    inputs = {given for each in made for number in each.later for given in number.inputs}
    for function, _, _ in output.random_calls:
        if isinstance(function, HostDraw):
            function.is_dropped = not any(function is each for each in made)
            function.is_read = function.is_among(inputs)


def are_draws(calls: Sequence[Any]) -> bool:
    """Return whether random calls are draws, which are dropped where their arm is refused."""
    return all(isinstance(each[0], HostDraw) for each in calls)


def drawn_so_far(output: compat.OutputGraph) -> None:
    """Make the draws up to here as the call being traced will make them.

    The caller puts the generators back. One that fails will have the call made in plain Python.
    """
    made = _MADE.of(output)
    for function, positional, named in output.random_calls:
        if not isinstance(function, HostDraw):
            if (getattr(function, "__module__", None) or "").partition(".")[0] != "torch":
                function(*positional, **named)
        elif any(function is each for each in made):
            function.try_now()
