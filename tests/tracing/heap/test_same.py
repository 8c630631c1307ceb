"""What is equal and can be told apart is two values, wherever an arm puts it.

Each pair stands in each place: what a branch leaves, attributes, items, keys and members.
"""

from __future__ import annotations

import ast
import enum
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import Tensor

import bcmend


class Number(enum.IntEnum):
    """Equal to numbers."""

    ONE = 1


class Text(str):
    """Equal to texts."""

    __slots__ = ()


class Whole(int):
    """Equal to numbers."""


class Row(tuple[Any, ...]):
    """Equal to tuples."""

    __slots__ = ()


@dataclass(frozen=True)
class Frozen:
    """Equal to those that hold what is equal."""

    held: object


Named = namedtuple("Named", "held")
Other = namedtuple("Other", "held")

PAIRS: Final[list[tuple[Any, Any]]] = [
    (0.0, -0.0),
    (1, True),
    (0, False),
    (1, 1.0),
    ("a", Text("a")),
    (1, Whole(1)),
    (1, Number.ONE),
    (Number.ONE, True),
    (0j, complex(0, -0.0)),
    (1 + 0j, 1),
    ((1,), (True,)),
    ((0.0,), (-0.0,)),
    ((1,), Row((1,))),
    ((1,), Named(1)),
    (Named(1), Other(1)),
    (Named(0.0), Named(-0.0)),
    (frozenset({1}), frozenset({True})),
    (frozenset({0.0}), frozenset({-0.0})),
    (range(0, 3, 2), range(0, 4, 2)),
    (range(0), range(1, 1)),
    (torch.Size([1, 2]), (1, 2)),
    (Decimal("1.0"), Decimal("1.00")),
    (Fraction(1), 1),
    (Frozen(1), Frozen(True)),
    (Frozen(0.0), Frozen(-0.0)),
    (b"a", bytearray(b"a")),
    ({1, 2}, frozenset({1, 2})),
    ([1], [True]),
    ([0.0], [-0.0]),
    ({1: 2}, {True: 2}),
    ({1: 2}, {1: 2.0}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (deque([1], maxlen=3), deque([1], maxlen=2)),
    (OrderedDict(a=1), {"a": 1}),
    (defaultdict(int, a=1), defaultdict(float, a=1)),
    (Counter("a"), {"a": 1}),
]
HASHABLE = [each for each in PAIRS if all(isinstance(one, Hashable) for one in each)]


class Holder:
    """What programs of one pair change."""

    def __init__(self, one: Any) -> None:
        self.kept = one
        self.items: list[Any] = [None]
        self.named: dict[Any, Any] = {}
        self.members: set[Any] = set()
        self.keyed = {one: 5} if isinstance(one, Hashable) else {}
        self.held = {one} if isinstance(one, Hashable) else set()


def _left(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        found = one if x.sum() > 0 else other
        return x + 1, found

    return program


def _in_a_tuple(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        return (one, x * 2) if x.sum() > 0 else (other, x * 3)

    return program


def _of_a_loop(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        found = one
        while x.sum() < 5:
            found, x = other, x + 1
        return x, found

    return program


def _an_attribute(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        if x.sum() > 0:
            holder.kept = one
        else:
            holder.kept = other
        return x + 1

    return program


def _over_an_attribute(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        if x.sum() > 0:
            holder.kept = other
        return x + 1

    return program


def _over_an_item(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        holder.items[0] = one
        if x.sum() > 0:
            holder.items[0] = other
        return x + 1, holder.items[0]

    return program


def _appended(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        holder.items.append(one if x.sum() > 0 else other)
        return x + 1

    return program


def _a_key(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        if x.sum() > 0:
            holder.named[one] = x * 2
        else:
            holder.named[other] = x * 3
        return x + 1

    return program


def _another_key(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        if x.sum() > 0:
            del holder.keyed[one]
            holder.keyed[other] = 5
        return x + 1, len(holder.keyed)

    return program


def _a_new_dictionary(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        made = {one: x} if x.sum() > 0 else {other: x * 2}
        made["more"] = x
        return made

    return program


def _a_member(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        if x.sum() > 0:
            holder.members.add(one)
        else:
            holder.members.add(other)
        return x + 1

    return program


def _another_member(one: Any, other: Any) -> Callable[..., Any]:
    def program(holder: Holder, x: Tensor) -> Any:
        if x.sum() > 0:
            holder.held.discard(one)
            holder.held.add(other)
        return x + 1

    return program


PLACES = (
    _left,
    _in_a_tuple,
    _of_a_loop,
    _an_attribute,
    _over_an_attribute,
    _over_an_item,
    _appended,
)
PLACES_OF_KEYS = (_a_key, _another_key, _a_new_dictionary, _a_member, _another_member)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _seen(value: Any) -> Any:
    """Return what tells a value from others that are equal."""
    kind = type(value)
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return kind, sorted(map(str, map(_seen, value)))
    if isinstance(value, dict):
        more = getattr(value, "default_factory", None)
        return kind, more, [(_seen(key), _seen(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return kind, getattr(value, "maxlen", None), list(map(_seen, value))
    if isinstance(value, Frozen):
        return kind, _seen(value.held)
    return kind, repr(value)


def _outcomes(program: Callable[..., Any], one: Any) -> list[Any]:
    found = []
    for sign in (1.0, -1.0, 3.0):
        holder = Holder(one)
        result = program(holder, torch.full((2,), sign))
        found.append((_seen(result), _seen(vars(holder))))
    return found


def _require_told_apart(make: Callable[..., Any], pairs: list[tuple[Any, Any]]) -> None:
    wrong = []
    for pair in (*pairs, *(each[::-1] for each in pairs)):
        torch._dynamo.reset()
        expected = _outcomes(make(*pair), pair[0])
        mended = torch.compile(bcmend.patch(make(*pair)), backend="eager")
        found = _outcomes(mended, pair[0])
        both = zip(expected, found, strict=True)
        wrong += [f"{pair}: {one} is {two}" for one, two in both if one != two]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("make", PLACES)
def test_what_is_equal_is_not_the_same(make: Callable[..., Any], half: int) -> None:
    _require_told_apart(make, PAIRS[half::2])


@pytest.mark.parametrize("make", PLACES_OF_KEYS)
def test_keys_that_are_equal_are_not_the_same(make: Callable[..., Any]) -> None:
    pairs = HASHABLE
    if make is _another_member:  # stock loses what is done to a set of other members
        pairs = [pair for pair in pairs if all(type(each) in PLAIN for each in pair)]
    _require_told_apart(make, pairs)


#: Of such members Dynamo has models of sets.
PLAIN: Final = (int, bool, float, complex, str, bytes, tuple, frozenset, types.NoneType)


def _compares_constants(path: Path) -> bool:
    """Return whether a module compares what two models stand for, or the classes of two values."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            sides = [ast.unparse(each) for each in (node.left, node.comparators[0])]
            for end in (".as_python_constant()", ".value"):
                if all(side.endswith(end) for side in sides):
                    return True
            if all(side.startswith("repr(") for side in sides):
                return True
    return False


#: Modules that compare such for another end.
OTHERS: Final = {
    "tracing/merging/live_outs.py",  # flags, which are True or False
    "tracing/opaque/script_graphs.py",  # arguments of operators in the text of a graph
}


def test_no_other_module_says_what_is_the_same() -> None:
    package = Path(bcmend.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for folder in ("tracing", "dynamo")
        for path in sorted((package / folder).rglob("*.py"))
        if _compares_constants(path)
    }
    assert found == {"dynamo/models/constants.py", *OTHERS}
