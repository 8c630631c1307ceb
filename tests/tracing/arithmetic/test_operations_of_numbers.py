"""What Python does with numbers, with numbers out of tensors and with ones that calls are given.

Each operation on numbers stands in a `try`: what torch does not know of is an error of Python's to
it.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

_Operation = Callable[[int, float, int, float], Any]


def _inserted(place: int) -> list[int]:
    items = [1, 2, 3]
    items.insert(place, 9)
    return items


def _rotated(places: int) -> list[int]:
    items = collections.deque([1, 2, 3])
    items.rotate(places)
    return list(items)


#: Of two integers ``n`` and ``m``, and two floats ``v`` and ``w``.
OPERATIONS: dict[str, _Operation] = {
    "quotient": lambda n, v, m, w: v / w,
    "quotient of a constant": lambda n, v, m, w: 7 / m,
    "quotient of a float": lambda n, v, m, w: 7.3 / w,
    "quotient of integers": lambda n, v, m, w: n / m,
    "whole quotient": lambda n, v, m, w: v // w,
    "whole quotient of integers": lambda n, v, m, w: n // m,
    "remainder": lambda n, v, m, w: v % w,
    "remainder of integers": lambda n, v, m, w: -7 % m,
    "divmod": lambda n, v, m, w: divmod(n, m),
    "divmod of floats": lambda n, v, m, w: divmod(v, w),
    "power of two": lambda n, v, m, w: 2**m,
    "power of integers": lambda n, v, m, w: n**m,
    "power": lambda n, v, m, w: v**w,
    "large power": lambda n, v, m, w: v**2000,
    "root": lambda n, v, m, w: v**0.5,
    "power of a negative": lambda n, v, m, w: (-0.5) ** v,
    "shift": lambda n, v, m, w: n << m,
    "shift to the right": lambda n, v, m, w: n >> m,
    "exponential": lambda n, v, m, w: math.exp(v * 300),
    "logarithm": lambda n, v, m, w: math.log(v),
    "arc sine": lambda n, v, m, w: math.asin(w),
    "range": lambda n, v, m, w: len(range(n)),
    "item of a range": lambda n, v, m, w: range(5)[n],
    "in a range": lambda n, v, m, w: 2 in range(n),
    "percent": lambda n, v, m, w: "%d %.2f" % (n, v),  # noqa: UP031
    "one percent": lambda n, v, m, w: "%d" % n,  # noqa: UP031
    "format": lambda n, v, m, w: format(v, ".3f"),
    "format of an integer": lambda n, v, m, w: format(n, "04d"),
    "format without one": lambda n, v, m, w: format(v),
    "format of a constant": lambda n, v, m, w: format(2.5, ".3f"),
    "f-string": lambda n, v, m, w: f"{n!r}-{v:.2f}",
    "text": lambda n, v, m, w: str(n),
    "representation": lambda n, v, m, w: repr(v),
    "texts together": lambda n, v, m, w: "a" + str(n) + ",".join([str(v), repr(m)]),
    "length of a text": lambda n, v, m, w: len(str(n)),
    "text as a key": lambda n, v, m, w: {"2": "two"}.get(str(n), "other"),
    "text of text": lambda n, v, m, w: int(str(n)),
    "text in a text": lambda n, v, m, w: "2" in str(n),
    "part of its text": lambda n, v, m, w: str(v)[0],
    "hexadecimal": lambda n, v, m, w: hex(n),
    "filled": lambda n, v, m, w: "a".ljust(n),
    "split": lambda n, v, m, w: "a b c d".split(" ", n),
    "repeated text": lambda n, v, m, w: "ab" * n,
    "repeated bytes": lambda n, v, m, w: b"ab" * n,
    "character": lambda n, v, m, w: "abcdef"[n],
    "part of a text": lambda n, v, m, w: "abcdef"[:n],
    "bytes": lambda n, v, m, w: n.to_bytes(2, "big"),
    "rounded to tens": lambda n, v, m, w: round(n, -1),
    "rounded": lambda n, v, m, w: round(v, 1),
    "rounded to whole": lambda n, v, m, w: round(v),
    "smaller of two kinds": lambda n, v, m, w: min(n, v),
    "larger of two kinds": lambda n, v, m, w: max(v, n),
    "inserted": lambda n, v, m, w: _inserted(n),
    "rotated": lambda n, v, m, w: _rotated(n),
    "repeated": lambda n, v, m, w: list(itertools.repeat(1, n)),
    "counted": lambda n, v, m, w: list(enumerate("ab", n)),
    "in pieces": lambda n, v, m, w: [list(range(6))[i : i + n] for i in range(0, 6, n)],
    "fraction": lambda n, v, m, w: v.as_integer_ratio(),
    "kinds": lambda n, v, m, w: (type(n) is int, type(v).__name__, isinstance(n * v, float)),
}

#: Of two truths.
OF_TRUTHS: dict[str, Callable[[bool, bool], Any]] = {
    "is true": lambda b, d: b is True,
    "is false": lambda b, d: b is False,
    "is not true": lambda b, d: b is not True,
    "is the other": lambda b, d: b is d,
    "is not the other": lambda b, d: b is not d,
    "is nothing": lambda b, d: b is None,
    "is a number": lambda b, d: b is 0,  # type: ignore[comparison-overlap]  # noqa: F632
    "one of three": lambda b, d: "a" if b is True else "b" if d is False else "c",
    "number": lambda b, d: (int(b), b + d, -b, b * 3, float(b)),
    "operators": lambda b, d: (b & d, b | d, b ^ d, not b),
    "compared": lambda b, d: (b == 1, b == d, b < d, b >= d),
    "chosen": lambda b, d: (b and 5, b or d, (b and d) or "z"),
    "smaller": lambda b, d: (min(b, d), max(b, d)),
    "key": lambda b, d: {True: "a", False: "b"}[b],
    "place": lambda b, d: ["no", "yes"][b],
    "text": lambda b, d: f"{b} {d!r}",
    "texts": lambda b, d: str(b) + repr(d),
    "kind": lambda b, d: (isinstance(b, bool), type(b).__name__, type(b + d).__name__),
    "together": lambda b, d: (any([b, d]), all([b, d]), sum([b, d, b]), [b, d].count(True)),
    "repeated": lambda b, d: ([1] * b, "ab" * d, list(range(b))),
    "first": lambda b, d: next((name for name, each in (("b", b), ("d", d)) if each), "none"),
}


def _of_truths(operation: Callable[[bool, bool], Any]) -> Callable[..., Any]:
    def program(x: Tensor, one: Tensor, other: Tensor) -> Any:
        found = operation(one.item(), other.item())  # type: ignore[arg-type]
        return (x + 1 if x.sum() > 0 else x * 2), found

    return program


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("operation", OF_TRUTHS.values(), ids=OF_TRUTHS)
def test_what_truths_give(operation: Callable[[bool, bool], Any], fullgraph: bool) -> None:
    rows = itertools.product([True, False], repeat=2)
    calls = [tuple(torch.tensor(each) for each in row) for row in rows]
    program = _of_truths(operation)
    compiled = torch.compile(bcmend.patch(fresh(program)), backend="eager", fullgraph=fullgraph)
    assert _outcomes(compiled, calls) == _outcomes(program, calls)


_HANDLED = (ArithmeticError, AttributeError, IndexError, TypeError, ValueError)

#: No more than torch compiles for; all that can fail does in one of them.
_NUMBERS = [(3, 1.5, 2, 0.5), (2, 2.0, 5, 3.0), (0, 0.0, 0, 0.0), (-2, -1.5, -1, -3.0)]
_IN_OTHER_ORDER = [_NUMBERS[3], _NUMBERS[0], (-3, -2.5, -2, 1.25), _NUMBERS[1]]


def _given(operation: _Operation) -> Callable[..., Any]:
    def program(x: Tensor, n: int, v: float, m: int, w: float) -> Any:
        try:
            found = operation(n, v, m, w)
        except _HANDLED as error:
            found = type(error).__name__
        return (x + 1 if x.sum() > 0 else x * 2), found

    return program


def _taken(operation: _Operation) -> Callable[..., Any]:
    def program(x: Tensor, one: Tensor, v: Tensor, other: Tensor, w: Tensor) -> Any:
        n, m = int(one.item()), int(other.item())
        try:
            found = operation(n, v.item(), m, w.item())
        except _HANDLED as error:
            found = type(error).__name__
        return (x + 1 if x.sum() > 0 else x * 2), found

    return program


def _outcomes(program: Callable[..., Any], calls: Sequence[Any]) -> list[str]:
    return [_outcome(program, position, numbers) for position, numbers in enumerate(calls)]


def _outcome(program: Callable[..., Any], position: int, numbers: Any) -> str:
    """Return what a call gives; the side of the branch takes turns."""
    x = torch.full((2,), 1.0 - 2 * (position % 2))
    result, number = program(x, *numbers)
    return f"{result.tolist()} {type(number)} {number!r}"


def _calls(numbers: Sequence[Any], make: Any) -> list[Any]:
    if make is _given:
        return list(numbers)
    return [tuple(torch.tensor(each, dtype=torch.float64) for each in row) for row in numbers]


@pytest.mark.parametrize("numbers", [_NUMBERS, _IN_OTHER_ORDER], ids=["positive", "negative"])
@pytest.mark.parametrize("make", [_given, _taken])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_what_it_gives_and_raises(
    operation: _Operation, make: Callable[..., Any], numbers: Sequence[Any]
) -> None:
    calls, program = _calls(numbers, make), make(operation)
    expected = _outcomes(program, calls)
    compiled = torch.compile(bcmend.patch(fresh(program)), backend="eager")
    assert _outcomes(compiled, calls) == expected


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_in_one_graph_it_is_the_same_or_an_error_of_torch(operation: _Operation) -> None:
    calls, program = _calls(_NUMBERS, _taken), _taken(operation)
    expected = _outcomes(program, calls)
    compiled = torch.compile(bcmend.patch(fresh(program)), backend="eager", fullgraph=True)
    for position, (call, wanted) in enumerate(zip(calls, expected, strict=True)):
        try:
            found = _outcome(compiled, position, call)
        except RuntimeError:  # as all of torch's own
            continue
        assert found == wanted
