"""Programs of their own, of operations behind tensors of a graph (see ``numbers/slices``).

A step has a place among the results of all. It is given those of the steps before it, and equal
steps give equal results, so that several programs are run as one (see ``straight_code``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch.fx.node import map_aggregate


class Step(Protocol):
    """One step of a program; equal ones give equal results."""

    def needs(self) -> Sequence[int]:
        """Return the places of the results without which it gives nothing."""

    def text(self, bound: Callable[[Any], str]) -> str:
        """Return an expression for what it gives.

        It is over the locals ``L`` and globals ``G`` of a call, results as ``name_of`` has them,
        and objects that were ``bound`` to names.
        """

    def moved(self, places: Sequence[int]) -> Step:
        """Return the same step, of results that are at other places."""


def name_of(place: int) -> str:
    """Return the name of the result of the step at a place."""
    return f"result_{place}"


@dataclass(frozen=True, slots=True)
class Result:
    """In the arguments of a step: the result of an earlier one."""

    place: int

    def moved(self, places: Sequence[int]) -> Result:
        return Result(places[self.place])


@dataclass(frozen=True, slots=True)
class Input:
    """A value of the call, by an expression over its locals ``L`` and globals ``G``.

    ``holder`` is the place of what it is an item or an attribute of: nothing is read of an object
    of another class, which may do something then.
    """

    expression: str
    kind: type
    holder: int | None = None

    def needs(self) -> Sequence[int]:
        return () if self.holder is None else (self.holder,)

    def text(self, bound: Callable[[Any], str]) -> str:
        return f"{bound(_of_class)}({self.expression}, {bound(self.kind)})"

    def moved(self, places: Sequence[int]) -> Input:
        """Return the same value, of a holder that is at another place."""
        return self if self.holder is None else replace(self, holder=places[self.holder])


@dataclass(frozen=True, slots=True)
class Constant:
    """Another argument; ``1``, ``1.0`` and ``True`` are not the same."""

    kind: type
    text: str
    value: Any = field(compare=False)

    @classmethod
    def of(cls, value: Any) -> Constant:
        """Return the argument that a value is."""
        return cls(type(value), repr(value), value)


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of a function, or of the method of the first argument that has a name."""

    target: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def needs(self) -> Sequence[int]:
        places: list[int] = []

        def add(given: Any) -> Any:
            if isinstance(given, Result):
                places.append(given.place)
            return given

        map_aggregate((self.arguments, dict(self.keywords)), add)
        return places

    def text(self, bound: Callable[[Any], str]) -> str:
        given = [_text(each, bound) for each in self.arguments]
        if isinstance(self.target, str):
            function = f"{given.pop(0)}.{self.target}"
        else:
            function = bound(self.target)
        if self.keywords:
            given.append(f"**{_text(self.keywords, bound)}")
        return f"{function}({', '.join(given)})"

    def moved(self, places: Sequence[int]) -> Operation:
        """Return the same call, of results that are at other places."""

        def moved(given: Any) -> Any:
            return given.moved(places) if isinstance(given, Result) else given

        return Operation(
            self.target, map_aggregate(self.arguments, moved), map_aggregate(self.keywords, moved)
        )


@dataclass(frozen=True, slots=True)
class ProgramSlice:
    """The calls behind a tensor; each has a place among their results, as the tensor has.

    ``writes`` says whether some change the result of another. ``apart`` has pairs of places of
    inputs, such as those that are read and those that the call has changed before: none of the
    first may share memory with one of the second.
    """

    steps: tuple[Step, ...]
    place: int
    writes: bool
    apart: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def length(self) -> ProgramSlice:
        """Return the slice that gives the number of items of the tensor."""
        return self._followed_by(len)

    def truth(self) -> ProgramSlice:
        """Return the slice that gives the truth of the number."""
        return self._followed_by(bool)

    def size(self, dimension: int) -> ProgramSlice:
        """Return the slice that gives a size of the tensor."""
        return self._followed_by("size", dimension)

    def sum(self) -> ProgramSlice:
        """Return the slice that gives the sum of the numbers of the tensor."""
        return self._followed_by(torch.sum)

    def count(self) -> ProgramSlice:
        """Return the slice that gives how many numbers of the tensor are not zero."""
        return self._followed_by(torch.count_nonzero)

    def _followed_by(self, target: Callable[[Any], Any] | str, *rest: int) -> ProgramSlice:
        step = Operation(target, (Result(self.place), *map(Constant.of, rest)), {})
        return replace(self, steps=(*self.steps, step), place=len(self.steps))


def _text(given: Any, bound: Callable[[Any], str]) -> str:
    """Return an expression for an argument, in which there may be results of steps."""
    if isinstance(given, Result):
        return name_of(given.place)
    if isinstance(given, Constant):
        return bound(given.value)
    if isinstance(given, slice):
        return f"slice{_text((given.start, given.stop, given.step), bound)}"
    if isinstance(given, Mapping):
        return f"{{{', '.join(f'{key!r}: {_text(each, bound)}' for key, each in given.items())}}}"
    items = "".join(f"{_text(each, bound)}, " for each in given)
    return f"[{items}]" if isinstance(given, list) else f"({items})"


def _of_class(value: Any, kind: type) -> Any:
    """Return a value of a class; what is done to one of a subclass may have effects.

    Raises:
        TypeError: it is of another class.
    """
    if type(value) is not kind:
        raise TypeError(f"{type(value)} in place of {kind}")
    return value


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of an input, for steps that change it.

    Raises:
        ValueError: it has no memory of its own for each element, or more than that.
    """
    if not torch.ops.aten.is_non_overlapping_and_dense.default(tensor):
        raise ValueError("the memory of a tensor is not that of its elements")
    return tensor.clone()
