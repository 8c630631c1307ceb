"""Programs in front of a graph as one function, that has a line for each of their steps.

It is called at each call of a body, between graphs that leave nothing of Python's in the caches of
the processor: what it costs is the code that it goes through, and this goes through little.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final

import torch

from bcmend.knowledge.static_lookup import captured
from bcmend.tracing.programs.program_slices import Operation, ProgramSlice, Step, name_of


class Joined:
    """Slices that are run one after the other; what is in several is computed once."""

    def __init__(self, slices: Sequence[ProgramSlice]) -> None:
        self._steps: list[Step] = []
        #: The lines of the function that computes all of them, and what it finds under names.
        self._lines: list[str] = []
        self._names: dict[str, Any] = {}
        self._count = len(slices)
        shared: dict[Any, list[int]] = {}
        for each in slices:
            places: list[int] = []
            for step in each.steps:
                places.append(self._place(step, places, {} if each.writes else shared))
            apart = [
                [[name_of(places[given]) for given in some] for some in pair] for pair in each.apart
            ]
            self._add_end(name_of(places[each.place]), apart)
        lines = ("def numbers(L, G, found):", *self._lines)
        exec("\n".join(lines), self._names)
        #: Given the locals and the globals of a call, append to a list the numbers of each slice;
        #: ``None`` for one of which a step fails.
        self.numbers: Callable[[dict[str, Any], dict[str, Any], list[Any]], None] = self._names[
            "numbers"
        ]

    def _place(self, step: Step, places: Sequence[int], shared: dict[Any, list[int]]) -> int:
        """Return the place of a step among the steps of all slices."""
        step = step.moved(places)
        alike = shared.setdefault(step.target if isinstance(step, Operation) else step, [])
        for place in alike:
            if self._steps[place] == step:
                return place
        alike.append(len(self._steps))
        self._steps.append(step)
        self._lines.extend(self._computed(step, name_of(alike[-1])))
        return alike[-1]

    def _bound(self, value: Any) -> str:
        """Return the name under which the function finds an object."""
        name = f"given_{id(value)}"
        self._names[name] = value
        return name

    def _computed(self, step: Step, name: str) -> Iterator[str]:
        """Yield what gives the result of a step its name; ``FAILED`` if it raises something.

        Whatever an operation raises, the program will raise in its turn.
        """
        needed = [name_of(each) for each in step.needs()]
        failed = self._bound(FAILED)
        yield f"  {name} = {failed}"
        condition = " and ".join(f"{each} is not {failed}" for each in needed) or "True"
        yield f"  if {condition}:"
        yield "    try:"
        if isinstance(step, Operation):
            yield f"      {self._bound(_require_small)}({_list(needed)})"
        yield f"      {name} = {step.text(self._bound)}"
        yield "    except Exception: pass"

    def _add_end(self, name: str, apart: list[list[list[str]]]) -> None:
        """Have the numbers of a slice found, of which pairs of inputs share no memory."""
        conditions = [f"{name} is not {self._bound(FAILED)}"]
        for pair in apart:
            conditions.append(f"{self._bound(_are_apart)}({', '.join(map(_list, pair))})")
        numbers = f"{self._bound(_numbers_in)}({name})"
        self._lines.append(f"  found.append({numbers} if {' and '.join(conditions)} else None)")

    def __len__(self) -> int:
        """Return the number of slices."""
        return self._count


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


#: In place of the result of a step that has failed; a step that is given it fails as well.
FAILED: Final = object()

#: Elements of a result. In a call that takes another path a slice may be given anything.
_ELEMENTS: Final = 2**22


def _require_small(given: Sequence[Any]) -> None:
    """Require that what is computed of tensors, number by number, is not large.

    Raises:
        ValueError: it is.
    """
    counts = [each.numel() for each in given if isinstance(each, torch.Tensor)]
    if math.prod(counts) <= _ELEMENTS >= sum(counts):
        return
    if sum(counts) > _ELEMENTS:
        raise ValueError("large arguments")
    if len(counts) > 1 and max(counts) > 2:
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        most = max(each.dim() for each in tensors)
        sizes = [(1,) * (most - each.dim()) + tuple(each.shape) for each in tensors]
        if math.prod(max(each) for each in zip(*sizes, strict=True)) > _ELEMENTS:
            raise ValueError("a large result")


def _are_apart(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether no tensor shares memory with one of others; not if one was not found."""
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


class Scope:
    """The variables of one call of a frame."""

    def __init__(self, local: dict[str, Any], space: dict[str, Any]) -> None:
        self.local, self.space = local, space

    @classmethod
    def of_call(cls, names: Sequence[str], body: FunctionType, arguments: Sequence[Any]) -> Scope:
        """Return the variables with which a call of a function begins."""
        local = dict(zip(names, arguments, strict=False))
        if body.__closure__:
            local.update(captured(body))
        return cls(local, body.__globals__)

    def value(self, expression: str) -> Any:
        """Evaluate what Dynamo calls a value."""
        tables = {"L": self.local, "G": self.space, "__builtins__": builtins}
        return eval(_compiled(expression), tables)


@lru_cache(1024)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<input>", "eval")


def _numbers_in(value: Any) -> Any:
    """Return the numbers of a tensor as tuples in tuples, or the number of one without sizes."""
    return _fixed(value.tolist()) if isinstance(value, torch.Tensor) else value


def _fixed(listed: Any) -> Any:
    return tuple(map(_fixed, listed)) if isinstance(listed, list) else listed
