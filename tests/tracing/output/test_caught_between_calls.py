"""Checks of a function that is captured by itself, inside of a call that catches what it raises.

The first call that raises is made again in plain Python, which finds that the exception is caught:
from then on the function is captured apart from what catches it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call

#: Of this many numbers no copies are made, so that the graph cannot be put back.
LARGE = 2**17

Step = Callable[[Tensor], Tensor]

COUNT = 0


class Steps(torch.nn.Module):
    """Does something once its check has passed."""

    def __init__(self, effect: str) -> None:
        super().__init__()
        self.effect = effect
        self.seen: list[int] = []
        self.counts: dict[str, int] = {}
        self.n = 0
        self.last: Tensor | None = None
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("large", torch.zeros(LARGE if effect == "large" else 2))

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 2.5:
            raise ValueError("too large")
        self.apply_effect(x)
        return x * 2

    def apply_effect(self, x: Tensor) -> None:
        global COUNT
        match self.effect:
            case "append":
                self.seen.append(1)
            case "item":
                self.counts["n"] = self.counts.get("n", 0) + 1
            case "attribute":
                self.n += 1
            case "global":
                COUNT += 1
                self.n = COUNT
            case "argument":
                x.add_(1)
            case "buffer":
                self.total.add_(x)
            case "large":
                self.large.add_(1)
                self.seen.append(2)
            case "random":
                self.last = torch.rand(2)
            case "tensor":
                self.last = x + 1


EFFECTS = [
    *("append", "item", "attribute", "global", "argument", "buffer", "large", "random", "tensor")
]


class Catching(torch.nn.Module):
    def __init__(self, effect: str = "append") -> None:
        super().__init__()
        global COUNT
        COUNT = 0
        self.steps = Steps(effect)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.steps(x)
        except ValueError:
            return -x


class Suppressing(Catching):
    def forward(self, x: Tensor) -> Tensor:
        y = -x
        with contextlib.suppress(ValueError):
            y = self.steps(x)
        return y


class Retrying(Catching):
    def forward(self, x: Tensor) -> Tensor:
        for attempt in range(3):
            try:
                return self.steps(x - 0.5 * attempt)
            except ValueError:
                self.steps.n += 10
        return -x


class CatchingBelow(Catching):
    def below(self, x: Tensor) -> Tensor:
        return self.steps(x) + 1

    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        try:
            y = self.below(x)
        except ValueError as error:
            y = -x * len(str(error))
        return y + 1


class Finishing(Catching):
    def forward(self, x: Tensor) -> Tensor:
        try:
            try:
                return self.steps(x)
            finally:
                self.steps.counts["seen"] = len(self.steps.seen) + self.steps.n
        except ValueError:
            return -x


class CatchingDisabled(Catching):
    def forward(self, x: Tensor) -> Tensor:
        return torch._dynamo.disable(self.inner, recursive=False)(x)

    def inner(self, x: Tensor) -> Tensor:
        try:
            return self.steps(x)
        except ValueError:
            return -x


class CatchingInAnotherGenerator(Catching):
    def items(self, x: Tensor) -> Iterator[Tensor]:
        yield self.steps(x)

    def first(self, items: Iterator[Tensor], x: Tensor) -> Tensor:
        try:
            return next(items)
        except ValueError:
            return -x

    def forward(self, x: Tensor) -> Tensor:
        return self.first(self.items(x), x)


def _calls() -> list[Any]:
    return [call(torch.full((2,), value)) for value in (1.0, 3.0, 3.0, 1.0, 3.0, 2.0)]


@pytest.mark.parametrize("effect", EFFECTS)
def test_nothing_behind_a_check_that_failed_is_done(effect: str) -> None:
    assert_equivalent(
        lambda: Catching(effect), _calls, fullgraph=False, graphs=None, recompiles=None
    )


@pytest.mark.parametrize(
    "kind",
    [
        *(Suppressing, Retrying, CatchingBelow, Finishing, CatchingDisabled),
        CatchingInAnotherGenerator,
    ],
)
@pytest.mark.parametrize("effect", ["append", "large"])
def test_whatever_catches_the_exception(kind: type[Catching], effect: str) -> None:
    assert_equivalent(lambda: kind(effect), _calls, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize("training", [False, True])
def test_with_a_back_end_that_takes_graphs_apart(training: bool) -> None:
    assert_equivalent(
        lambda: Catching("attribute"),
        _calls,
        backend="aot_eager",
        fullgraph=False,
        graphs=None,
        recompiles=None,
        training=training,
    )


class Sometimes(Catching):
    """Catches only where it is asked to; a check is deferred until then."""

    def forward(self, x: Tensor, catches: bool) -> Tensor:
        return torch._dynamo.disable(self.inner, recursive=False)(x, catches)

    def inner(self, x: Tensor, catches: bool) -> Tensor:
        if not catches:
            return self.steps(x)
        try:
            return self.steps(x)
        except ValueError:
            return -x


def test_what_was_compiled_without_a_handler_is_compiled_anew() -> None:
    small, large = torch.full((2,), 1.0), torch.full((2,), 3.0)
    assert_equivalent(
        lambda: Sometimes("large"),
        lambda: [
            *(call(small.clone(), False), call(small.clone(), False), call(small.clone(), True)),
            *(call(large.clone(), True), call(small.clone(), False), call(large.clone(), True)),
        ],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


class Writing(Catching):
    """Fails where the text of an output is made."""

    def __init__(self) -> None:
        super().__init__("large")

    def write(self, x: Tensor) -> Tensor:
        self.steps.large.add_(1)
        print("one over", 1 / int(x.max() - 3))
        self.steps.apply_effect(x)
        return x * 2

    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        try:
            return self.write(x)
        except ZeroDivisionError:
            return -x


def test_nothing_behind_output_that_failed_is_done() -> None:
    assert_equivalent(Writing, _calls, fullgraph=False, graphs=None, recompiles=None)


def test_a_check_that_nobody_catches_inside_is_mended_and_can_be_left() -> None:
    model = bcmend.patch(Catching("append"))
    compiled = torch.compile(model.steps, backend="eager")
    for value in (1.0, 3.0, 3.0, 1.0):
        with contextlib.suppress(ValueError):  # outside of the patched call
            compiled(torch.full((2,), value))
    assert model.steps.seen == [1, 1]
    (site,) = [each for each in bcmend.report(model).sites if each.kind == "guard"]
    assert site.status == "mended"
