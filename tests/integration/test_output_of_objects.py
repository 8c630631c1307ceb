"""Output that shows objects of the program, whose text their own class makes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.differences_of_torch import TEXTS_ARE_TRACED
from tests.equivalence import assert_equivalent, call


class Shown:
    """Shows what is stored to it."""

    def __init__(self) -> None:
        self.value: Any = 0

    def __repr__(self) -> str:
        return f"Shown({self.value})"


class WithoutText:
    """Its text is no text."""

    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class FailsInText:
    """Its text cannot be made."""

    def __repr__(self) -> str:
        raise KeyError("no text")


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("later", ["text", 3, None])
def test_an_object_is_stored_to_later_in_a_call_without_a_graph(
    later: object, fullgraph: bool
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shown = Shown()

        def forward(self, x: Tensor) -> None:
            print(self.shown)
            self.shown.value = later

    assert_equivalent(Net, lambda: [call(torch.ones(3))], fullgraph=fullgraph, graphs=None)


@pytest.mark.parametrize("kind", [WithoutText, FailsInText])
@pytest.mark.parametrize("is_formatted", [True, False])
def test_nothing_is_written_behind_an_object_that_has_no_text(
    kind: type, is_formatted: bool
) -> None:
    shown = kind()

    def make() -> Callable[..., Any]:
        def program(x: Tensor) -> Tensor:
            print("before")
            print(shown, x.sum().item())
            print("behind")
            return x + 1

        def formatted(x: Tensor) -> Tensor:
            print("before")
            print(f"{shown} {x.sum().item()}")
            print("behind")
            return x + 1

        return formatted if is_formatted else program

    assert_equivalent(make, lambda: [call(torch.ones(3))])


class Counted(nn.Module):
    """A module, which can be called as functions can."""


COUNTED = Counted()


class Settings:
    """A class with data."""

    calls = 0
    names: list[int] = []  # noqa: RUF012


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_belongs_to_a_global_that_can_be_called_is_shown_as_it_was(
    fullgraph: bool,
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            COUNTED._buffers.clear()
            Settings.calls, Settings.names = 0, []

        def forward(self, x: Tensor) -> Tensor:
            COUNTED.register_buffer("late", x)
            Settings.calls += 1
            Settings.names.append(Settings.calls)
            print(sorted(COUNTED._buffers), x.sum().item())
            print(f"{Settings.calls} {x.sum().item()}", str(Settings.names))
            COUNTED.register_buffer("later", x)
            Settings.calls += 1
            Settings.names.append(0)
            return x + 1

    calls = [call(torch.ones(3)), call(torch.ones(3))]
    assert_equivalent(Net, lambda: calls, fullgraph=fullgraph, graphs=None, recompiles=None)


LIST: list[int] = []
TENSOR = torch.zeros(2)
NUMBER = 0


class OfAList:
    """Shows a global list, which is no part of it."""

    def __repr__(self) -> str:
        return f"OfAList({len(LIST)})"


class OfANumber:
    """Shows a global variable by way of a function."""

    def __repr__(self) -> str:
        return f"OfANumber({_number()})"


def _number() -> int:
    return NUMBER


class OfATensor:
    """Shows a global tensor."""

    def __repr__(self) -> str:
        return f"OfATensor({TENSOR.tolist()})"


class OfItsClass:
    """Shows an attribute of its class."""

    count = 0

    def __repr__(self) -> str:
        return f"OfItsClass({self.count})"


def _append(shown: Any, x: Tensor) -> None:
    LIST.append(1)


def _remove(shown: Any, x: Tensor) -> None:
    LIST.append(2)
    LIST.append(3)
    del LIST[0]


def _count(shown: Any, x: Tensor) -> None:
    global NUMBER
    NUMBER += 1


def _add(shown: Any, x: Tensor) -> None:
    TENSOR.add_(1)


def _count_in_class(shown: Any, x: Tensor) -> None:
    type(shown).count += 1


def _replace_arguments(shown: Any, x: Tensor) -> None:
    shown.args = (shown.args[0] + 1,)


class _Named(NamedTuple):
    first: Any
    second: Any


@dataclass
class _Data:
    held: Any


_ALONE: list[tuple[Callable[[], Any], Callable[[Any, Tensor], None]]] = [
    (OfAList, _append),
    (OfAList, _remove),
    (OfANumber, _count),
    (OfATensor, _add),
    (OfItsClass, _count_in_class),
    (lambda: ValueError(1), _replace_arguments),
    (lambda: ValueError(OfAList()), _append),
    (lambda: _Data(OfAList()), _append),
    (lambda: _Named(1, OfAList()), _append),
    (lambda: [(OfAList(),)], _append),
    (lambda: {"a": OfAList()}, _append),
]


def _reset() -> None:
    global NUMBER
    NUMBER = OfItsClass.count = 0
    LIST.clear()
    TENSOR.zero_()


def _print(shown: Any) -> None:
    print("shown", shown)


def _print_a_text(shown: Any) -> None:
    print(f"{shown} {shown!r}", "%s" % (shown,), str(shown), "{}".format(shown))  # noqa: UP031, UP032


def _log(shown: Any) -> None:
    logging.getLogger(__name__).warning("%s", shown)


def _warn(shown: Any) -> None:
    warnings.warn(str(shown))  # noqa: B028


def _both_signs() -> list[Any]:
    return [call(torch.ones(3)), call(-torch.ones(3)), call(torch.ones(3))]


@pytest.mark.parametrize(("make_shown", "change"), _ALONE)
@pytest.mark.parametrize("show", [_print, _print_a_text, _log, _warn])
def test_what_a_text_shows_is_changed_later(
    make_shown: Callable[[], Any], change: Any, show: Any
) -> None:
    def make() -> Any:
        _reset()
        shown = make_shown()

        def program(x: Tensor) -> Tensor:
            show(shown)
            change(shown, x)
            show(shown)
            y = x * 2
            change(shown, x)
            return y

        return program

    assert_equivalent(make, _both_signs, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize(
    ("make_shown", "change", "backend"),
    [
        *((*each, backend) for each in _ALONE[:5] for backend in ("eager", "aot_eager")),
        (*_ALONE[0], "inductor"),
    ],
)
def test_what_a_text_shows_is_changed_in_an_arm_or_shown_in_one(
    make_shown: Callable[[], Any], change: Any, backend: str
) -> None:
    def make() -> Any:
        _reset()
        shown = make_shown()

        def program(x: Tensor) -> Tensor:
            print("before", shown)
            if x.sum() > 0:
                print("in an arm", shown)
                change(shown, x)
                y = x * 2
            else:
                y = x - 1
            print("behind", shown)
            change(shown, x)
            return y

        return program

    assert_equivalent(
        make, _both_signs, backend=backend, fullgraph=False, graphs=None, recompiles=None
    )


_OLD = "by an object, Dynamo reads an attribute of its class as it was before the call"
_OF_A_CLASS = pytest.param(
    *_ALONE[4], marks=pytest.mark.xfail(TEXTS_ARE_TRACED, reason=_OLD, strict=True)
)


@pytest.mark.parametrize(("make_shown", "change"), [*_ALONE[:3], _OF_A_CLASS, *_ALONE[6:]])
def test_a_text_made_before_is_that_of_its_moment(
    make_shown: Callable[[], Any], change: Any
) -> None:
    def make() -> Any:
        _reset()
        shown = make_shown()

        def program(x: Tensor) -> tuple[Tensor, str]:
            change(shown, x)
            text = f"{shown}"
            change(shown, x)
            if x.sum() > 0:
                print(text)
            return x * 2, text

        return program

    assert_equivalent(make, _both_signs, fullgraph=False, graphs=None, recompiles=None)


def test_a_variable_of_a_closure_and_a_list_of_the_call_are_shown_as_they_were() -> None:
    def make() -> Any:
        count, seen = 0, [0]

        class Local:
            def __repr__(self) -> str:
                return f"{count} {seen}"

        shown = Local()

        def program(x: Tensor) -> Tensor:
            nonlocal count
            print(shown)
            count += 1
            print(shown)
            seen.append(count)
            if x.sum() > 0:
                print("positive", shown)
            count += 1
            return x * 2

        return program

    assert_equivalent(make, _both_signs, fullgraph=False, graphs=None, recompiles=None)


def test_what_a_text_changes_is_seen_by_the_call() -> None:
    class Counts:
        def __repr__(self) -> str:
            LIST.append(1)
            return f"{len(LIST)}"

    def make() -> Any:
        _reset()
        shown = Counts()

        def program(x: Tensor) -> Tensor:
            print(shown)
            before = len(LIST)
            print(shown, before)
            return x * before

        return program

    assert_equivalent(make, _both_signs, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize("make_shown", [each for each, _ in _ALONE])
@pytest.mark.parametrize("show", [_print, _log, _warn])
def test_what_is_not_changed_later_is_one_graph(make_shown: Any, show: Any) -> None:
    other: list[int] = []

    def make() -> Any:
        _reset()
        other.clear()
        shown = make_shown()

        def program(x: Tensor) -> Tensor:
            show(shown)
            other.append(1)
            if x.sum() > 0:
                show(shown)
            return x * 2

        return program

    assert_equivalent(make, _both_signs, graphs=None, recompiles=None)
