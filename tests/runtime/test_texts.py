"""Texts that leave a graph are texts, whatever is in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def _returned(x: Tensor, number: int) -> tuple[Tensor, str]:
    if x.sum() > 0:
        x = x + 1
    return x * number, f"{number}"


def _with_a_form(x: Tensor, number: int) -> tuple[Tensor, list[str]]:
    if x.sum() > 0:
        x = x + 1
    return x * number, [f"{number:>4}", f"{number!r:>4}", f"{number!s}:", f"{number!a:<4}|"]


def _level(x: Tensor) -> int:
    if x.sum() > 4:
        return 2
    return 0


def _behind_a_break(x: Tensor, number: int) -> Tensor:
    sys.stderr.write(f"{_level(x * number)}")
    return x


@pytest.mark.parametrize("program", [_returned, _with_a_form, _behind_a_break])
def test_a_number_that_changes_from_call_to_call(program: Callable[..., object]) -> None:
    inputs = [call(torch.ones(3), number) for number in (1, 2, 5, 7)]
    assert_equivalent(
        lambda: program, lambda: inputs, fullgraph=False, graphs=None, recompiles=None
    )


def _tensor(x: Tensor) -> Tensor:
    message = f"as {x}"
    x.add_(1)
    print(message, x)
    return x


def _in_turns(x: Tensor) -> Tensor:
    for turn in range(3):
        message = f"{turn}: {x}"
        x.add_(turn)
        print(message)
    return x


def _list(x: Tensor) -> list[Tensor]:
    items = [x]
    message = f"{items}"
    items.append(x * 2)
    x.mul_(2)
    print(message, len(items))
    return items


def _in_an_arm(x: Tensor) -> Tensor:
    y = x * 1
    message = "none"
    if x.sum() > 0:
        message = f"{y}"
        y.add_(1)
        print(message)
    else:
        print(message, f"{y}")
        y.sub_(1)
    return y


def _raised(x: Tensor) -> Tensor:
    message = f"values {x}"
    x.mul_(2)
    if x.sum() > 5:
        raise ValueError(message)
    return x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_tensor, _in_turns, _list, _in_an_arm, _raised])
def test_a_text_shows_values_of_its_moment(program: Callable[..., object], backend: str) -> None:
    def inputs() -> list[object]:
        return [call(torch.full((2,), value)) for value in (1.0, -3.0, 7.0)]

    assert_equivalent(lambda: program, inputs, backend=backend)


class _Owner:
    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"Owner({self.count})"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_text_of_an_object_that_is_changed_later_breaks_the_graph(backend: str) -> None:
    def make() -> Callable[[Tensor], Tensor]:
        owner = _Owner()

        def program(x: Tensor) -> Tensor:
            message = f"{owner}: {x.sum():.1f}"
            owner.count += 1
            print(message, owner)
            return x * 2

        return program

    inputs = [call(torch.ones(3)), call(torch.zeros(3)), call(-torch.ones(3))]
    assert_equivalent(
        make, lambda: inputs, backend=backend, fullgraph=False, graphs=None, recompiles=None
    )


def test_an_exported_program_needs_no_text() -> None:
    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.owner = _Owner()

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = x * 2
            message = f"{self.owner}: {x.sum():.1f}"
            self.owner.count += 1
            print(message)
            return x + 1

    x = torch.ones(3)
    expected = Program()(x)
    with pytest.warns(bcmend.OutputDropped):
        exported = torch.export.export(bcmend.patch(Program()), (x,), strict=True)
    assert torch.equal(exported.module()(x), expected)
