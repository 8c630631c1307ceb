"""Decorated methods of objects that a call makes keep what their decorators hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bcmend.dynamo import compat
from bcmend.dynamo.models.functions import _functions_of, _was_there_before
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.in_trace import during_trace

Program = Callable[..., Any]


def _inputs() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([1.0, 2, 3], [-1.0, -2, -3], [4.0, -1, 0.5])]


def scaled(by: float) -> Callable[[Program], Program]:
    """Return a decorator with an argument, and with a list that the wrapper adds to."""

    def decorate(function: Program) -> Program:
        calls: list[float] = []

        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            calls.append(by)
            return function(*arguments, **keywords) * by + len(calls)

        return wrapper

    return decorate


def counted(method: Program) -> Program:
    """Return a method that does not know the name of the one inside, and that counts."""
    count = 0

    def wrapper(self: Any, y: Tensor) -> Any:
        nonlocal count
        count += 1
        return method(self, y) * count

    return wrapper


class Below:
    @torch.no_grad()
    def inherited(self, y: Tensor) -> Tensor:
        return y + 1


class Made(Below):
    """What the programs make; `total` is state of the object."""

    def __init__(self) -> None:
        self.total: Any = 0

    @torch.no_grad()
    def plain(self, y: Tensor) -> Tensor:
        self.total = self.total + y.sum()
        return y * 2

    @staticmethod
    @torch.no_grad()
    def of_none(y: Tensor) -> Tensor:
        return y - 1

    @classmethod
    @torch.no_grad()
    def of_class(cls, y: Tensor) -> Tensor:
        return y - len(cls.__name__)

    @torch.enable_grad()
    @torch.no_grad()
    def twice(self, y: Tensor) -> Tensor:
        return y.cos()

    @torch.no_grad()
    def __call__(self, y: Tensor) -> Tensor:
        return y - 3

    @property
    @torch.no_grad()
    def doubled(self) -> Any:
        return self.total * 2

    @torch.no_grad()
    def inherited(self, y: Tensor) -> Tensor:
        return super().inherited(y) * 2

    @torch.no_grad()
    def other(self, y: Tensor, *, by: float = 2.0) -> Tensor:
        inner = Made()
        found = inner.plain(y) * by
        self.total = inner.total
        return found

    @torch.no_grad()
    def fails(self, y: Tensor) -> Tensor:
        self.total = y
        raise ValueError("it fails")


def _state(y: Tensor) -> Any:
    made = Made()
    found = made.plain(y) + made.plain(y + 1)
    return found + y, made.total, made.doubled


def _escapes(y: Tensor) -> Any:
    made = Made()
    return y + made.plain(y), made


def _arm(y: Tensor) -> Any:
    made = Made()
    if y.sum() > 0:
        return made.plain(y) + y, made.total
    return made.twice(y) + y, made.total


def _caught(y: Tensor) -> Any:
    made = Made()
    try:
        made.fails(y)
    except ValueError as error:
        return y * 2, str(error), made.total
    return y


PROGRAMS: dict[str, Program] = {
    "method": lambda y: Made().plain(y) + y,
    "static method": lambda y: Made().of_none(y) + y,
    "class method": lambda y: Made().of_class(y) + y,
    "two decorators": lambda y: Made().twice(y) + y,
    "call": lambda y: Made()(y) + y,
    "super": lambda y: Made().inherited(y) + y,
    "an object of an object": lambda y: Made().other(y, by=0.5) + y,
    "state": _state,
    "escapes": _escapes,
    "arm": _arm,
    "caught": _caught,
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_methods_under_contexts(name: str, training: bool) -> None:
    assert_equivalent(lambda: PROGRAMS[name], _inputs, training=training)


@pytest.mark.parametrize("name", ["method", "state", "arm"])
def test_with_inductor(name: str) -> None:
    assert_equivalent(lambda: PROGRAMS[name], _inputs, training=True, backend="inductor")


@pytest.mark.parametrize("name", PROGRAMS)
def test_where_the_graph_may_break(name: str) -> None:
    assert_equivalent(
        lambda: PROGRAMS[name],
        _inputs,
        training=True,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


def _wrapped(name: str) -> Program:
    class Local:
        @scaled(2.0)
        def wraps(self, y: Tensor) -> Tensor:
            return y.cos()

        @counted
        @torch.no_grad()
        def counts(self, y: Tensor) -> Tensor:
            return y.sin()

    def program(y: Tensor) -> Any:
        made = Local()
        if name == "both":
            return made.wraps(y) + made.counts(y) + y
        return getattr(made, name)(y) + y

    return program


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", ["wraps", "counts", "both"])
def test_what_wrappers_count_stays(training: bool, fullgraph: bool, name: str) -> None:
    assert_equivalent(
        lambda: _wrapped(name),
        _inputs,
        training=training,
        fullgraph=fullgraph,
        graphs=None,
        recompiles=None,
    )


class Module(nn.Module):
    """Makes a module with a decorated method in each call."""

    class Loss(nn.Module):
        def __init__(self, weight: float) -> None:
            nn.Module.__init__(self)
            self.weight = weight
            self.register_buffer("scale", torch.ones(3) * weight)

        @torch.no_grad()
        def match(self, y: Tensor) -> Tensor:
            return y.argsort()

        def forward(self, y: Tensor) -> Any:
            return y[self.match(y)] * self.weight * self.scale

    def forward(self, y: Tensor) -> Any:
        loss = self.Loss(0.5)
        return loss(y), loss.training, loss.scale


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_loss_that_matches(training: bool, fullgraph: bool) -> None:
    graphs = 1 if fullgraph else None
    assert_equivalent(Module, _inputs, training=training, fullgraph=fullgraph, graphs=graphs)


def test_functions_that_are_not_known() -> None:
    def body_of(tx: Any, x: Any) -> list[bool]:
        made = compat.VariableTracker.build(tx, x)

        def inner() -> Any:
            return made

        functions: list[Any] = [_inputs, inner]
        return [_was_there_before(each, [made]) for each in functions]

    assert during_trace(body_of, torch.ones(2)) == [True, False]
    assert [callable(each) for each in _functions_of(vars(Made)["doubled"])] == [True, False, False]
    assert _functions_of("text") == ()
