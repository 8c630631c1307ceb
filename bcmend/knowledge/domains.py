"""Domains: with which arguments a call is captured, as text from which programs are made.

A domain is data. ``bcmend.trials.captures`` makes programs of it, in which the call stands on its
own, in arms, loops and handlers, and compares them with eager execution; the values are those at
which implementations differ: NaN, infinities, zeros of both signs, the limits of integers, nothing,
one item, memory with gaps.
"""

from __future__ import annotations

import ast
import enum
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bcmend.errors import CallError


class Place(enum.Enum):
    """How a value comes into a program."""

    GIVEN = "an argument of the program"
    CONSTANT = "written into the program"
    READ = "a number that the program reads out of a tensor that it is given"
    MADE = "a tensor that the program computes of one that it is given"


@dataclass(frozen=True, slots=True)
class Values:
    """What one argument of a call may be, as expressions over ``torch``, ``numpy`` and ``math``.

    ``of_kinds`` are groups of values among which the calls of one program change: Dynamo traces
    another type, or another number of dimensions, anew.
    """

    place: Place
    of_kinds: tuple[tuple[str, ...], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """All values, in order."""
        return tuple(itertools.chain.from_iterable(self.of_kinds))

    def __or__(self, other: Values) -> Values:
        """Return what may be one of these or of those; they come into a program the same way."""
        if other.place is not self.place:
            raise CallError(f"{self.place.value} is not {other.place.value}")
        return Values(self.place, self.of_kinds + other.of_kinds)


@dataclass(frozen=True, slots=True)
class Domain:
    """The arguments with which a call is captured, and the call.

    Attributes:
        call: an expression over the names of ``arguments``, what ``setup`` defines, ``x``, a tensor
            of six floating numbers, and ``target``, the callable itself.
        arguments: what the call is given, by name.
        setup: lines of Python in front of the programs.
        is_whole: whether the call is captured where ``fullgraph=True`` is asked for alone.
    """

    call: str
    arguments: Mapping[str, Values]
    setup: str
    is_whole: bool


def unchecked_domain(
    call: str, setup: str = "", *, is_whole: bool = False, **arguments: Values
) -> Domain:
    """Return what `domain` does, without a look at it: a table of them is read at each start."""
    return Domain(call, MappingProxyType(arguments), setup.strip("\n"), is_whole)


def domain(call: str, setup: str = "", *, is_whole: bool = False, **arguments: Values) -> Domain:
    """Return the domain of a call, such as ``domain("target(x, n)", n=constants("1", "2"))``.

    Args:
        call: an expression over ``target``, ``x`` (a tensor of six floating numbers) and the names
            of the arguments; or over what ``setup`` defines.
        setup: lines of Python in front of the program, which has ``math``, ``random``, ``numpy``,
            ``torch``, ``nan`` and ``inf``.
        is_whole: whether the call is captured where ``fullgraph=True`` is asked for alone.
        arguments: what each argument may be: `tensors`, `made_tensors`, `arrays`, `given`,
            `constants` or `read`.

    Raises:
        CallError: one of them is nothing such.
    """
    for text, mode in ((call, "eval"), (setup, "exec")):
        try:
            ast.parse(text, mode=mode)
        except (SyntaxError, TypeError) as error:
            raise CallError(f"domain(...) takes Python, got {text!r}: {error}") from error
    for name, values in arguments.items():
        if not isinstance(values, Values) or not all(values.of_kinds):
            raise CallError(f"domain({name}=...) takes tensors(...) and the like, got {values!r}")
    return unchecked_domain(call, setup, is_whole=is_whole, **arguments)


#: What tensors and arrays hold, by kind of dtype: at the borders of what it has.
_FLOATS: Final = ("[0.5, -1.25, 3.0]", "[nan, 2.0, -0.0]", "[inf, -inf, 1e-40]")
_CONTENTS: Final = {
    "float64": _FLOATS,
    "float32": _FLOATS,
    "float16": ("[0.5, -1.25, 3.0]", "[nan, 65504.0, -0.0]"),
    "bfloat16": ("[0.5, -1.25, 3.0]", "[nan, inf, -0.0]"),
    "complex64": ("[0.5, -1.25j, 3 + 1j]",),
    "int64": ("[3, -1, 0]", "[2**63 - 1, -2**63, 1]"),
    "int32": ("[3, -1, 0]", "[2**31 - 1, -2**31, 1]"),
    "uint8": ("[3, 255, 0]",),
    "bool": ("[True, False, True]", "[False, False, False]"),
}
#: What is made of three values, by number of dimensions: a list, and what follows behind it.
_SHAPES: Final = {
    0: (("{0}[0]", ""), ("{0}[1]", "")),
    1: (("{0}", ""), ("{0}[:1]", ""), ("{0}[:0]", ""), ("{0} + {0}", "[::2]")),
    2: (("[{0}, {0}]", ""), ("[{0}, {0}[::-1]]", ".T"), ("[{0}]", "[:0]")),
}


def tensors(
    dtypes: str = "float32", dims: Iterable[int] = (0, 1, 2), *, grads: bool = False
) -> Values:
    """Return tensors that the program is given, of these dtypes and numbers of dimensions."""
    ending = ".requires_grad_()" if grads else ""
    return Values(Place.GIVEN, tuple(_filled(dtypes, dims, "torch.tensor", "torch.", ending)))


def made_tensors(dtypes: str = "float32", dims: Iterable[int] = (0, 1, 2)) -> Values:
    """Return tensors that the program computes: new ones, with memory of their own."""
    return Values(Place.MADE, tuple(_filled(dtypes, dims, "torch.tensor", "torch.", "")))


def arrays(dtypes: str = "float64", dims: Iterable[int] = (0, 1, 2)) -> Values:
    """Return arrays of numpy that the program is given."""
    return Values(Place.GIVEN, tuple(_filled(dtypes, dims, "numpy.array", "numpy.", "")))


def _filled(
    dtypes: str, dims: Iterable[int], make: str, space: str, ending: str
) -> Iterable[tuple[str, ...]]:
    for dtype, count in itertools.product(dtypes.split(), dims):
        if dtype not in _CONTENTS or count not in _SHAPES:
            known = f"{', '.join(_CONTENTS)} and {', '.join(map(str, _SHAPES))} dimensions"
            raise CallError(f"a domain has {known}; got {dtype!r} and {count!r}")
        yield tuple(
            f"{make}({items.format(content)}, dtype={space}{dtype}){behind}{ending}"
            for (items, behind), content in itertools.product(_SHAPES[count], _CONTENTS[dtype])
        )


def given(*texts: str) -> Values:
    """Return values that the program is given; all of them are of one kind."""
    return Values(Place.GIVEN, (texts,))


def made(*texts: str) -> Values:
    """Return tensors that the program computes, of one kind."""
    return Values(Place.MADE, (texts,))


def constants(*texts: str) -> Values:
    """Return values that are written into the program."""
    return Values(Place.CONSTANT, tuple((each,) for each in texts))


def read(*texts: str) -> Values:
    """Return numbers that the program reads out of tensors without dimensions."""
    return Values(Place.READ, (texts,))
