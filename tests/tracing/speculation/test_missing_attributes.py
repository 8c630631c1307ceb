"""An attribute that an object of a builtin class lacks raises where it is read, on that side."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.speculation import missing_attributes
from tests.differences_of_torch import MISSING_ATTRIBUTES_OF_SLICES_FAIL
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

MAKERS: dict[str, Callable[[int], Any]] = {
    "an int": lambda n: n,
    "a float": lambda n: n + 0.5,
    "a list": lambda n: [n],
    "a tuple": lambda n: (n, 2),
    "a dict": lambda n: {"a": n},
    "a set": lambda n: {n},
    "a frozenset": lambda n: frozenset([n]),
    "a range": range,
    "a size": lambda n: torch.Size([n]),
    "a deque": lambda n: collections.deque([n]),
    "a str": str,
}
if not MISSING_ATTRIBUTES_OF_SLICES_FAIL:
    MAKERS["a slice"] = slice


def _program(x: Tensor, found: Any) -> Any:
    if x.sum() > 0:
        found = found.missing
    if x.max() > 50:
        raise ValueError("too large")
    return x * 2, found


def _handled(x: Tensor, found: Any) -> Any:
    try:
        if x.sum() > 0:
            found = found.missing
    except AttributeError as error:
        return x - 1, str(error)
    return x * 2, found


def _with_a_default(x: Tensor, found: Any) -> Any:
    if x.sum() > 0:
        found = getattr(found, "missing", 3)
    return x * 2, found


def _below_another(x: Tensor, found: Any) -> Any:
    for _ in range(2):
        if x.sum() > 0:
            found = found.real
    if x.sum() > 5:
        found = found.missing
    return x * 2, found


def _calls(make: Callable[[int], Any], values: tuple[float, ...]) -> Callable[[], list[Call]]:
    return lambda: [
        call(torch.tensor([value]), make(count)) for count, value in enumerate(values, start=2)
    ]


@pytest.mark.parametrize("values", [(1.0, -1.0, 3.0, -4.0, 60.0), (-1.0, 1.0, -60.0, 60.0)])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_error_is_that_of_the_side_that_reads(kind: str, values: tuple[float, ...]) -> None:
    calls = _calls(MAKERS[kind], values)
    assert_equivalent(lambda: _program, calls, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize("program", [_handled, _with_a_default, _below_another])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_what_the_program_makes_of_it(program: Callable[..., Any], backend: str) -> None:
    values = (1.0, -1.0, 6.0, -4.0, 60.0)
    calls = _calls(MAKERS["an int"], values)
    assert_equivalent(
        lambda: program, calls, backend=backend, fullgraph=False, graphs=None, recompiles=None
    )


@pytest.mark.parametrize("owner", [collections.deque([1]), torch.Size([1]), [1], 1])
def test_a_class_is_named_as_in_messages_of_python(owner: Any) -> None:
    with pytest.raises(AttributeError) as raised:
        owner.missing  # noqa: B018
    name = missing_attributes._name_in_messages(type(owner))
    assert str(raised.value) == f"'{name}' object has no attribute 'missing'"


class _WithAttributes(list[int]):
    pass


@pytest.mark.parametrize("kind", [_WithAttributes, type, Exception])
def test_a_class_whose_objects_have_attributes_of_their_own_says_too_little(kind: type) -> None:
    class Model:
        def realize(self) -> Model:
            return self

        def python_type(self) -> type:
            return kind

    assert missing_attributes._builtin_class(Model()) is None  # type: ignore[arg-type]


class Slotted:
    __slots__ = ("kept",)


class Holder:
    def __init__(self, *, is_there: bool) -> None:
        self.slotted = Slotted()
        if is_there:
            self.slotted.kept = 1


@pytest.mark.parametrize("is_there", [False, True])
def test_an_attribute_of_slots_is_deleted_once(is_there: bool) -> None:
    def program(holder: Holder, x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() > 0:
            del holder.slotted.kept
        return y

    def outcomes(called: Callable[..., Tensor]) -> list[Any]:
        holder, found = Holder(is_there=is_there), list[Any]()
        for sign in (1.0, -1.0, 1.0):
            try:
                result = called(holder, torch.full((2,), sign)).tolist()
            except AttributeError as error:
                result = str(error)
            found.append((result, hasattr(holder.slotted, "kept")))
        return found

    expected = outcomes(program)
    assert outcomes(torch.compile(bcmend.patch(program), backend="eager")) == expected
