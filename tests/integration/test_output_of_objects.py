"""Output that shows objects of the program, whose text their own class makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
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


@pytest.mark.parametrize("timing", ["defer", "inline"])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_belongs_to_a_global_that_can_be_called_is_shown_as_it_was(
    timing: Any, fullgraph: bool
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

    def way(make: Callable[[], Any], options: Any) -> tuple[Any, Callable[..., Any]]:
        net = bcmend.patch(make(), policy=bcmend.Policy(output=timing))
        return net, torch.compile(net, **options)

    calls = [call(torch.ones(3)), call(torch.ones(3))]
    assert_equivalent(
        Net, lambda: calls, fullgraph=fullgraph, graphs=None, recompiles=None, way=way
    )
