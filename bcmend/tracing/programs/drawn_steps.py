"""Steps of a program that draw random numbers as the graph will, and leave them to be drawn.

What the generator of the CPU gives depends on all that was drawn before. So such a program draws,
in order, whatever the graph draws up to the number that is wanted. It does so from a generator of
its own that begins in the state of torch's: the call finds that as it was, and the graph draws the
same numbers once more. Each step is given the state that the one before it has left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from bcmend.tracing.programs.program_slices import Operation, ProgramSlice, Result, name_of

#: Numbers that are drawn at once. They are drawn again by the graph, which also computes with them.
_NUMBERS: Final = 2**26


#: In place of a method: fills a tensor with a permutation of its indices.
PERMUTATION: Final = "randperm"


@dataclass(frozen=True, slots=True)
class Filling:
    """What fills a tensor of the CPU with random numbers, by a method with a name.

    Attributes:
        method: the name, or ``PERMUTATION``.
        numbers: its arguments.
        size, stride, dtype: the form of the tensor.
    """

    method: str
    numbers: tuple[float, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def filled(self, generator: torch.Generator) -> torch.Tensor:
        """Return such a tensor.

        Raises:
            ValueError: it is too large.
        """
        if math.prod(self.size) > _NUMBERS:
            raise ValueError("many random numbers")
        empty = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device="cpu")
        if self.method == PERMUTATION:
            return torch.randperm(len(empty), generator=generator, out=empty)
        filled: torch.Tensor = getattr(empty, self.method)(*self.numbers, generator=generator)
        return filled


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What a step has drawn last, and the state behind it."""

    state: torch.Tensor
    numbers: torch.Tensor | None = None


def numbers_of(drawn: Drawn) -> torch.Tensor | None:
    """Return the numbers; a step of their own makes them a tensor like any other."""
    return drawn.numbers


def draws_read(program: ProgramSlice) -> frozenset[int]:
    """Return which draws a program reads the numbers of, counted among all its draws."""
    steps, found, pending = program.steps, set[int](), [program.place]
    read = set(pending)
    while pending:
        step = steps[pending.pop()]
        if not isinstance(step, Operation):
            continue
        given = step.needs()
        if step.target is numbers_of:
            found.update(given)
            continue
        pending.extend(each for each in given if each not in read)
        read.update(given)
    draws = [at for at, each in enumerate(steps) if isinstance(each, Draw | DrawOfSide)]
    return frozenset(map(draws.index, found))


@dataclass(frozen=True, slots=True)
class Start:
    """The state of torch's generator when the call begins."""

    def needs(self) -> Sequence[int]:
        return ()

    def text(self, bound: Callable[[Any], str]) -> str:
        return f"{bound(_started)}()"

    def moved(self, places: Sequence[int]) -> Start:
        return self


@dataclass(frozen=True, slots=True)
class Draw:
    """Some fillings, behind what the step at a place has drawn.

    Attributes:
        behind: that place.
        fillings: one after the other.
        keeps: whether the last tensor is asked for.
    """

    behind: Result
    fillings: tuple[Filling, ...]
    keeps: bool

    def needs(self) -> Sequence[int]:
        return (self.behind.place,)

    def text(self, bound: Callable[[Any], str]) -> str:
        draw = partial(_drawn, fillings=self.fillings, keeps=self.keeps)
        return f"{bound(draw)}({name_of(self.behind.place)})"

    def moved(self, places: Sequence[int]) -> Draw:
        return Draw(self.behind.moved(places), self.fillings, self.keeps)


@dataclass(frozen=True, slots=True)
class DrawOfSide:
    """What the one or the other side of a branch draws, by the truth of a tensor."""

    behind: Result
    predicate: Result
    sides: tuple[tuple[Filling, ...], tuple[Filling, ...]]

    def needs(self) -> Sequence[int]:
        return self.behind.place, self.predicate.place

    def text(self, bound: Callable[[Any], str]) -> str:
        behind, predicate = map(name_of, self.needs())
        return f"{bound(self._drawn)}({behind}, {predicate})"

    def _drawn(self, before: Drawn, truth: torch.Tensor) -> Drawn:
        return _drawn(before, self.sides[0 if truth else 1], keeps=False)

    def moved(self, places: Sequence[int]) -> DrawOfSide:
        return DrawOfSide(self.behind.moved(places), self.predicate.moved(places), self.sides)


def _started() -> Drawn:
    return Drawn(torch.default_generator.get_state())


def _drawn(before: Drawn, fillings: Sequence[Filling], *, keeps: bool) -> Drawn:
    generator = torch.Generator()
    generator.set_state(before.state)
    numbers = None
    for each in fillings:
        numbers = each.filled(generator)
    return Drawn(generator.get_state(), numbers if keeps else None)
