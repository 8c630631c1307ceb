"""Output of objects whose text is made of what they do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from corpus.patterns.output.shown_objects import Described
from corpus.patterns.pattern import OUTPUT, WHERE, pattern, patterns_among, refused, signs

Program = Callable[..., Any]


@pattern(
    signs,
    refused("cannot-snapshot"),
    graphs=None,
    only_writes=True,
    because="The text is made of a list that the object does not hold, and that is changed later.",
)
def object_that_shows_a_list_of_others() -> Program:
    entries: list[str] = []

    class Registry:
        def __repr__(self) -> str:
            return f"{len(entries)} entries"

    registry = Registry()

    def program(x: Tensor) -> Tensor:
        print("before", registry)
        entries.append("x")
        print("behind", registry)
        entries.clear()
        return x * 2

    return program


@pattern(signs, OUTPUT, WHERE)
def object_that_shows_a_list_that_stays() -> Program:
    entries = ["a"]

    class Registry:
        def __repr__(self) -> str:
            return f"{len(entries)} entries"

    registry, other = Registry(), Described()

    def program(x: Tensor) -> Tensor:
        y = x * 2
        print("before", registry)
        if x.sum() > 0:
            y = y + 1
            print(f"positive {registry}")
        other.count = len(entries)
        return y

    return program


PATTERNS = patterns_among(list(vars().values()))
