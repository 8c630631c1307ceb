"""Without a group of hooks that can be done without, a program does what it does in eager."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import hooks
from bcmend.dynamo.contract import aside, groups
from bcmend.patching import torch_check
from bcmend.tracing.speculation import unknown_models
from tests.equivalence import assert_equivalent, call

LOCK: Final = threading.Lock()
LOGGER: Final = logging.getLogger("tests.aside")


def _any(x: Tensor, number: float) -> Tensor:
    if x.sum() > 0:
        x = x * 2 if any([x[0] > 1, x[1] > 2]) else x + 1
    return x + 1 if all([x[0] > 0, x[1] > 0]) else x * number


class _Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(2, 2)

    def forward(self, x: Tensor, number: float) -> Tensor:
        if x.sum() > 0:
            x = self.layer(x[None])[0][0] * number
        return self.layer(x[None])[0][0]


def _loggers(x: Tensor, number: float) -> Tensor:
    if x.sum() > 0:
        LOGGER.warning("above %s", number)
        x = x * 2 if LOGGER.isEnabledFor(logging.WARNING) else x
    logging.getLogger("tests.aside").warning("end")
    return x + 1 if x.max() > 1 else x - 1


def _locks(x: Tensor, number: float) -> Tensor:
    if x.sum() > 0:
        with LOCK:
            x = x * number
    with LOCK:
        x = x + 1
    return x + 1 if x.max() > 1 else x - 1


def _places(x: Tensor, number: float) -> Tensor:
    choices = [x + 1, x * number]
    if x.sum() > 0:
        x = choices[int(x.argmax())]
    return choices[int((x > 1).any())]


def _ranges(x: Tensor, number: float) -> Tensor:
    if x.sum() > 0:
        for _ in range(int(x.sum())):
            x = x * 0.5
    for each in range(int((x > 0).sum())):
        x = x + each
    return x * number


def _floats(x: Tensor, number: float) -> Tensor:
    x = x * number + number if x.sum() > 0 else x - 1
    return x - number if x.max() > 1 else x


def _hooks(x: Tensor, number: float) -> Tensor:
    y = (x.detach() * number).requires_grad_()
    if x.sum() > 0:
        handle = y.register_hook(lambda gradient: gradient * 2)
        handle.remove()
    return y + 1 if x.max() > 1 else y - 1


def _items(x: Tensor, number: float) -> Iterator[Tensor]:
    yield x + number
    yield x * number


def _generators(x: Tensor, number: float) -> Tensor:
    if x.sum() > 0:
        x = next(_items(x, number))
    first, second = _items(x, number)
    return first if x.max() > 1 else second


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


def _backwards(x: Tensor, number: float) -> Tensor:
    x = _Scaled.apply(x) if x.sum() > 0 else x * number
    return _Scaled.apply(x)


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, one: Tensor, other: Tensor) -> Tensor:
        return x * one + other

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * 3, None, None


def _given_twice(x: Tensor, number: float) -> Tensor:
    mask = torch.full_like(x, number)
    x = _Twice.apply(x, mask, mask) if x.sum() > 0 else x * number
    return _Twice.apply(x, mask, mask)


def _classes(x: Tensor, number: float) -> Tensor:
    if x.sum() > 0:
        import math

        class Kind:
            factor = math.floor(1.5)

        x = x * Kind.factor
    return x + 1 if x.max() > 1 else x - 1


PROGRAMS: Final[dict[str, Callable[[], Any]]] = {
    "any and all over tensors": lambda: _any,
    "recurrent layers": _Recurrent,
    "questions to loggers": lambda: _loggers,
    "elided contexts": lambda: _locks,
    "items at data-dependent places": lambda: _places,
    "ranges of data-dependent length": lambda: _ranges,
    "numbers that are inputs": lambda: _floats,
    "hooks registered in arms": lambda: _hooks,
    "generators called in arms": lambda: _generators,
    "backward functions traced in arms": lambda: _backwards,
    "backward functions of a tensor given twice": lambda: _given_twice,
    "modules and classes made in arms": lambda: _classes,
}


def _inputs() -> list[Any]:
    numbers = ([2.0, 3.0], [-1.0, 0.5], [0.25, 0.5], [-3.0, 4.0])
    return [call(torch.tensor(each), 1.5 + at) for at, each in enumerate(numbers)]


def test_there_is_a_program_for_each_group() -> None:
    assert PROGRAMS.keys() == groups.OPTIONAL.keys()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("group", PROGRAMS)
def test_nothing_comes_out_otherwise(
    group: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_check.declare_hooks()
    monkeypatch.setattr(hooks.REGISTRY, "hooks", list(hooks.REGISTRY.hooks))
    for held in ("subclasses", "caches", "built"):  # by what other traces were compiled with
        monkeypatch.setattr(hooks.REGISTRY, held, {})
    # Torch says once in a process where numbers out of tensors break a graph.
    monkeypatch.setattr(logging.getLogger("torch._dynamo.variables.tensor"), "disabled", True)
    reached: list[str] = []

    def come_to(target: str) -> None:
        reached.append(target)
        unknown_models.come_to_changed(target)

    aside.set_aside(groups.OPTIONAL[group], come_to)
    assert_equivalent(
        PROGRAMS[group],
        _inputs,
        fullgraph=False,
        graphs=None,
        recompiles=None,
        training=training,
    )
    assert reached or (group.startswith("backward") and not training)
