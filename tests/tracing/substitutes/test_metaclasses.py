"""Classes whose objects are made by a method of their metaclass, which Dynamo passes by."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from typing import Any, Required, TypedDict

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import assert_equivalent, call


def _inputs() -> list[Any]:
    return [call(torch.ones(2)), call(-torch.ones(2))]


class Finished(type):
    """Stores an attribute when an object is complete, over a default of its class."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        made = super().__call__(*args, **keywords)
        made.extra = made.scale * 10
        return made


class Scale(metaclass=Finished):
    extra = 1

    def __init__(self, scale: int, *, more: int = 0) -> None:
        self.scale = scale + more


class Twice(Finished):
    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        made = super().__call__(*args, **keywords)
        made.extra = made.extra + 1
        return made


class OfTwice(Scale, metaclass=Twice):
    pass


class ByHand(abc.ABCMeta):
    def __call__(cls, *args: Any) -> Any:
        made = cls.__new__(cls)
        made.__init__(*args)
        made.extra = 7
        return made


class OfByHand(metaclass=ByHand):
    extra = 1

    def __init__(self, scale: int) -> None:
        self.scale = scale


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Layer(nn.Module, metaclass=Finished):
    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale


class Options(TypedDict, total=False):
    scale: Required[int]
    offset: Any


class Tagged(type):
    __call__ = tuple  # called without the class


class OfTuple(metaclass=Tagged):
    pass


def _branch(made: Any, x: Tensor) -> Tensor:
    return x + made.extra if x.sum() > 0 else x - made.extra * made.scale


def _scale(x: Tensor) -> Tensor:
    return _branch(Scale(2, more=1), x)


def _twice(x: Tensor) -> Tensor:
    return _branch(OfTwice(2), x)


def _by_hand(x: Tensor) -> Tensor:
    return _branch(OfByHand(3), x)


def _in_an_arm(x: Tensor) -> Tensor:
    return x + Scale(2).extra if x.sum() > 0 else x - Scale(3).extra


def _of_an_enumeration(x: Tensor) -> Tensor:
    return x + Colour(2).value if x.sum() > 0 else x - Colour(1).value


def _of_a_typed_dictionary(x: Tensor) -> Any:
    default = Options(scale=2, offset=x + 1)
    chosen = Options({"scale": 3}, offset=-x) if x.sum() > 0 else default
    chosen["offset"] = chosen["offset"] * default["scale"]
    return Options(chosen), type(default) is dict


def _of_a_typed_dictionary_in_arms(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * Options(scale=2)["scale"]
    return x - Options(scale=4).get("offset", x)


def _of_a_class_in_place_of_the_call(x: Tensor) -> Tensor:
    first, second = OfTuple([x + 1, x - 1])
    return first * 2 if x.sum() > 0 else second


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "program",
    [
        _scale,
        _twice,
        _by_hand,
        _in_an_arm,
        _of_an_enumeration,
        _of_a_typed_dictionary,
        _of_a_typed_dictionary_in_arms,
        _of_a_class_in_place_of_the_call,
    ],
    ids=lambda f: f.__name__,
)
def test_the_metaclass_is_called(program: Callable[[Tensor], Tensor], fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _inputs, fullgraph=fullgraph)


def test_one_object_of_a_class() -> None:
    class Single(type):
        def __call__(cls, *args: Any) -> Any:
            if cls not in made:
                made[cls] = super().__call__(*args)
            return made[cls]

    class One(metaclass=Single):
        def __init__(self, scale: int) -> None:
            self.scale = scale

    made: dict[type, Any] = {}

    def program(x: Tensor) -> Tensor:
        first, second = One(3), One(4)
        x = x + first.scale if x.sum() > 0 else x - first.scale
        return x * second.scale

    assert_equivalent(lambda: program, _inputs, fullgraph=False, graphs=None, recompiles=None)
    assert made[One].scale == 3


def test_a_module_made_while_it_is_traced() -> None:
    def program(x: Tensor) -> Tensor:
        x = x + 1 if x.sum() > 0 else x - 1
        return x * Layer(2).extra

    assert_equivalent(lambda: program, _inputs, fullgraph=False, graphs=None, recompiles=None)
