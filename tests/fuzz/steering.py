"""Programs that are likely to show a bug of one function: variations of those that came to it.

Reads in which ways programs came to functions: with arguments of which types, and what came of
it. Each way that a function was come to is as likely to be gone again as any other, so that what
happens seldom is looked at as well.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fuzz.grammar import Choices

#: How a function was come to: the types of its arguments, and what it returned.
Way = tuple[Any, ...]
Ways = dict[str, set[Way]]

_STEERED: Final = 0.75  # of the programs, once something came to the function
_NEWEST: Final = 12  # programs of a way, which are varied
_PLAIN: Final = (bool, int, float, str, bytes, tuple, list, dict, set, type(None))


@contextmanager
def visited(
    places: Sequence[str],
    replaced: Callable[[str, Callable[[Any], Any]], AbstractContextManager[None]],
) -> Iterator[Ways]:
    """Yield a table that gets the ways in which functions are come to.

    Args:
        places: of the functions.
        replaced: replaces what is at a place for the length of a block.
    """
    ways: Ways = {}

    def noting(place: str) -> Callable[[Any], Any]:
        def wrap(right: Any) -> Any:
            @functools.wraps(right, updated=())
            def noted(*arguments: Any, **keywords: Any) -> Any:
                ways.setdefault(place, set())
                result = right(*arguments, **keywords)
                ways[place].add(_way(arguments, result))
                return result

            return noted

        return wrap

    with ExitStack() as stack:
        for place in places:
            stack.enter_context(replaced(place, noting(place)))
        yield ways


def _way(arguments: tuple[Any, ...], result: Any) -> Way:
    kinds = tuple(type(each).__name__ for each in arguments)
    is_given = any(result is each for each in arguments)
    says = bool(result) if isinstance(result, _PLAIN) else None
    return kinds, type(result).__name__, is_given, says


@dataclass(slots=True)
class Pool:
    """What came to functions: by place and way, the oracle and the choices behind programs."""

    known: dict[str, dict[Way, list[tuple[str, Choices]]]] = field(default_factory=dict)

    def copy(self) -> Pool:
        return Pool(
            {
                place: {way: [*each] for way, each in ways.items()}
                for place, ways in self.known.items()
            }
        )

    def add(self, oracle: str, choices: Choices, ways: Mapping[str, set[Way]]) -> None:
        for place, found in ways.items():
            for way in found or [()]:
                self.known.setdefault(place, {}).setdefault(way, []).append((oracle, choices))

    def next(
        self, source: random.Random, place: str, oracle: Callable[[], str]
    ) -> tuple[str, Choices]:
        """Return the oracle and the choices for another program.

        Args:
            source: of random numbers.
            place: where it should come; empty if it does not matter.
            oracle: chooses one for a program that has nothing to do with any before it.
        """
        ways = self.known.get(place)
        if not ways or source.random() > _STEERED:
            return oracle(), Choices(source)
        programs = ways[source.choice(list(ways))]
        name, parent = source.choice(programs[-_NEWEST:])
        return name, parent.varied(source)
