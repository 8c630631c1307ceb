"""Programs of their own, of operations behind tensors of a graph (see ``numbers/slices``).

A step has a place among the results of all. It is given those of the steps before it, and equal
steps give equal results, so that several programs are run as one.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType
from typing import Any, Final, Protocol

import torch
from torch.fx.node import map_aggregate

from bcmend.tracing.effects.operator_runs import called


class Step(Protocol):
    """One step of a program; equal ones give equal results."""

    def value(self, scope: Scope, results: list[Any]) -> Any:
        """Return what it gives, in a call with some variables, behind steps with ``results``."""

    def moved(self, places: Sequence[int]) -> Step:
        """Return the same step, of results that are at other places."""


@dataclass(frozen=True, slots=True)
class Result:
    """In the arguments of a step: the result of an earlier one."""

    place: int

    def value(self, results: Sequence[Any]) -> Any:
        """Return the result. Raises ``ValueError``: the step has failed."""
        found = results[self.place]
        if found is FAILED:  # `bool` and `==` would take it for a value
            raise ValueError("a step before has failed")
        return found

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

    def value(self, scope: Scope, results: list[Any]) -> Any:
        if self.holder is not None and results[self.holder] is FAILED:
            raise TypeError("of another class")
        found = scope.value(self.expression)
        if type(found) is not self.kind:  # what is done to a subclass may have effects
            raise TypeError(f"{type(found)} in place of {self.kind}")
        return found

    def moved(self, places: Sequence[int]) -> Input:
        """Return the same value, of a holder that is at another place."""
        return self if self.holder is None else replace(self, holder=places[self.holder])


@dataclass(frozen=True, slots=True)
class Constant:
    """Another argument; ``1``, ``1.0`` and ``True`` are not the same."""

    kind: type
    text: str
    value: Any = field(compare=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of a function, or of the method of the first argument that has a name."""

    target: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def value(self, scope: Scope, results: list[Any]) -> Any:
        def value(given: Any) -> Any:
            return given.value(results) if isinstance(given, Result) else given.value

        arguments = map_aggregate(self.arguments, value)
        keywords = map_aggregate(self.keywords, value) if self.keywords else {}
        _require_small([each for each in arguments if isinstance(each, torch.Tensor)])
        return called(self.target, arguments, keywords)

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
        given = (Constant(int, repr(each), each) for each in rest)
        step = Operation(target, (Result(self.place), *given), {})
        return replace(self, steps=(*self.steps, step), place=len(self.steps))


class Joined:
    """Slices that are run one after the other; what is in several is computed once."""

    def __init__(self, slices: Sequence[ProgramSlice]) -> None:
        self._steps: list[Step] = []
        #: For each slice: how many steps are behind it, the place of its tensor, and pairs of
        #: places of inputs that must not share memory.
        self._ends: list[tuple[int, int, list[list[list[int]]]]] = []
        shared: dict[Any, list[int]] = {}
        for each in slices:
            places: list[int] = []
            for step in each.steps:
                places.append(self._place(step, places, {} if each.writes else shared))
            apart = [[[places[given] for given in some] for some in pair] for pair in each.apart]
            self._ends.append((len(self._steps), places[each.place], apart))

    def _place(self, step: Step, places: Sequence[int], shared: dict[Any, list[int]]) -> int:
        """Return the place of a step among the steps of all slices."""
        step = step.moved(places)
        alike = shared.setdefault(step.target if isinstance(step, Operation) else step, [])
        for place in alike:
            if self._steps[place] == step:
                return place
        alike.append(len(self._steps))
        self._steps.append(step)
        return len(self._steps) - 1

    def __len__(self) -> int:
        """Return the number of slices."""
        return len(self._ends)

    def numbers(self, scope: Scope, found: list[Any]) -> None:
        """Append to ``found`` the numbers of each slice; ``None`` for one of which a step fails."""
        results: list[Any] = []
        for end, place, apart in self._ends:
            for step in self._steps[len(results) : end]:
                results.append(_value_or_failure(step, scope, results))
            is_found = results[place] is not FAILED and all(
                _are_apart(*([results[each] for each in some] for some in pair)) for pair in apart
            )
            found.append(_numbers_in(results[place]) if is_found else None)


#: Elements of a result. In a call that takes another path a slice may be given anything.
_ELEMENTS: Final = 2**22


def _require_small(tensors: Sequence[torch.Tensor]) -> None:
    """Require that what is computed of tensors, number by number, is not large.

    Raises:
        ValueError: it is.
    """
    counts = [each.numel() for each in tensors]
    if math.prod(counts) <= _ELEMENTS >= sum(counts):
        return
    if sum(counts) > _ELEMENTS:
        raise ValueError("large arguments")
    if len(tensors) > 1 and max(counts) > 2:
        most = max(each.dim() for each in tensors)
        sizes = [(1,) * (most - each.dim()) + tuple(each.shape) for each in tensors]
        if math.prod(max(each) for each in zip(*sizes, strict=True)) > _ELEMENTS:
            raise ValueError("a large result")


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of an input, for steps that change it.

    Raises:
        ValueError: it has no memory of its own for each element, or more than that.
    """
    if not torch.ops.aten.is_non_overlapping_and_dense.default(tensor):
        raise ValueError("the memory of a tensor is not that of its elements")
    return tensor.clone()


def _are_apart(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether no tensor shares memory with one of others; not if one was not found."""
    if not (some and others):
        return True
    if not all(isinstance(each, torch.Tensor) for each in (*some, *others)):
        return False
    taken = list(map(_memory_of, others))
    return not any(
        start < other_end and other_start < end
        for start, end in map(_memory_of, some)
        for other_start, other_end in taken
    )


def _memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where the memory of a tensor begins and ends; two storages may have the same."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


#: In place of the result of a step that has failed; a step that is given it fails as well.
FAILED: Final = object()


def _value_or_failure(step: Step, scope: Scope, results: list[Any]) -> Any:
    try:
        return step.value(scope, results)
    except Exception:  # whatever the operation raises, the program will raise in its turn
        return FAILED


class Scope:
    """The variables of one call of a frame."""

    def __init__(self, local: dict[str, Any], space: dict[str, Any]) -> None:
        self._tables = {"L": local, "G": space, "__builtins__": builtins}

    def value(self, expression: str) -> Any:
        """Evaluate what Dynamo calls a value."""
        return eval(_compiled(expression), self._tables)


@lru_cache(1024)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<input>", "eval")


def _numbers_in(value: Any) -> Any:
    """Return the numbers of a tensor as tuples in tuples, or the number of one without sizes."""
    return _fixed(value.tolist()) if isinstance(value, torch.Tensor) else value


def _fixed(listed: Any) -> Any:
    return tuple(map(_fixed, listed)) if isinstance(listed, list) else listed
