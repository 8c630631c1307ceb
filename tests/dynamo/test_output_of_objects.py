"""Output that shows objects of the program, whose text their own class makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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
