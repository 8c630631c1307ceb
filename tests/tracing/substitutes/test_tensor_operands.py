"""Operators on an object of the program and a tensor."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

Program = Callable[[Tensor], Any]
NAMES = "add sub mul matmul truediv floordiv mod pow lshift rshift and_ or_ xor".split()
IN_PLACE = [f"i{name.rstrip('_')}" for name in NAMES]


def _inputs() -> list[Call]:
    vectors = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [0.5, -1.0, 2.5])
    return [call(torch.tensor(vector)) for vector in vectors]


class Scaled:
    """Knows tensors, numbers and its own kind, on both sides of an operator."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def _of(self, other: Any) -> Any:
        return other.scale if isinstance(other, (Scaled, Layer)) else other

    def __mul__(self, other: Any) -> Scaled:
        return Scaled(self.scale * self._of(other))

    def __truediv__(self, other: Any) -> Scaled:
        return Scaled(self.scale / self._of(other))

    def __pow__(self, other: Any) -> Scaled:
        return Scaled(self.scale.abs() ** self._of(other))

    def __rmul__(self, other: Any) -> Scaled:
        return Scaled(other - self.scale)

    def __rsub__(self, other: Any) -> Scaled:
        return Scaled(other / self.scale)

    def __matmul__(self, other: Any) -> Any:
        return self.scale @ other

    def __and__(self, other: Any) -> Any:
        return self.scale > other

    def __iadd__(self, other: Any) -> Scaled:
        self.scale = self.scale + other
        return self

    def __radd__(self, other: Any) -> Any:
        return other * 3 + self.scale


class Layer(nn.Module):
    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.register_buffer("scale", scale)

    __mul__ = Scaled.__mul__
    __rsub__ = Scaled.__rsub__
    _of = Scaled._of


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def __sub__(self, other: Any) -> Any:
        return self.scale - other


class Declining(Scaled):
    def __mul__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Tensor) else Scaled(self.scale * other)


class Branching(Scaled):
    def __mul__(self, other: Any) -> Any:
        if other.sum() > 0:
            return Scaled(self.scale * other)
        return Scaled(self.scale - other)

    def __rtruediv__(self, other: Any) -> Any:
        return other * 2 if other.max() > 2 else other / self.scale


def _object_first(x: Tensor) -> Any:
    one = Scaled(x + 1)
    return (one * x).scale, (one / x).scale, (one**x).scale, one @ x, one & x, (one * one).scale


def _tensor_first(x: Tensor) -> Any:
    one = Scaled(x + 4)
    return (x * one).scale, (x - one).scale, x + one, (2 - one).scale


def _modules(x: Tensor) -> Any:
    one = Layer(x + 4)
    return (one * x).scale, (x - one).scale


def _slots(x: Tensor) -> Any:
    return Slotted(x * 2) - x


def _in_place(x: Tensor) -> Any:
    one = Scaled(x * 2)
    same = one
    one += x
    one *= x
    y = x + 1
    y += one
    return one.scale, same.scale, one is same, y


def _powers_by_function(x: Tensor) -> Any:
    return pow(Scaled(x), x).scale


def _branches_in_methods(x: Tensor) -> Any:
    one = Branching(x + 5)
    return (one * x).scale, x / one


def _in_arms(x: Tensor) -> Any:
    one = Scaled(x + 5)
    return (one * x).scale if x.sum() > 0 else (x - one).scale


def _numbers_out_of_tensors(x: Tensor) -> Any:
    return (Scaled(x) * x.sum().item()).scale, (x.max().item() - Scaled(x)).scale


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "program",
    [
        _object_first,
        _tensor_first,
        _modules,
        _slots,
        _in_place,
        _powers_by_function,
        _branches_in_methods,
        _in_arms,
        _numbers_out_of_tensors,
    ],
    ids=lambda program: program.__name__,
)
def test_the_methods_of_the_object_are_called(program: Program, fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _inputs, fullgraph=fullgraph)


@pytest.mark.parametrize("program", [_object_first, _branches_in_methods], ids=lambda f: f.__name__)
def test_gradients_flow_through_the_methods(program: Program) -> None:
    assert_equivalent(lambda: program, _inputs, backend="aot_eager", training=True)


def test_an_object_of_the_arguments_and_of_the_model() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = Scaled(torch.tensor([2.0, 3.0, 4.0]))

        def forward(self, x: Tensor, given: Scaled) -> Any:
            given += x
            return (self.factor * x).scale, (x * given).scale

    def inputs() -> list[Call]:
        return [call(torch.ones(3) * sign, Scaled(torch.arange(3.0))) for sign in (1, -1)]

    assert_equivalent(Model, inputs)


def test_what_no_method_answers_is_an_error() -> None:
    def program(x: Tensor) -> Any:
        y = x + 1
        try:
            return Declining(x) * y
        except TypeError as error:
            return y, str(error)

    assert_equivalent(lambda: program, _inputs, fullgraph=False, graphs=None, recompiles=None)


def test_the_other_operand_is_asked_where_the_first_declines() -> None:
    def program(x: Tensor) -> Any:
        return (x * Declining(x + 1)).scale, (Declining(x) * 2).scale

    assert_equivalent(lambda: program, _inputs)


class Overriding(Scaled):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] + 10 if isinstance(args[0], Tensor) else 10


def test_what_overrides_functions_of_torch_is_left_to_torch() -> None:
    def program(x: Tensor) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        return y * Overriding(x)

    assert_equivalent(lambda: program, _inputs, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize("name", [*NAMES, *IN_PLACE])
def test_tensors_leave_a_stranger_to_the_other_operand(name: str) -> None:
    method = f"__{name.rstrip('_')}__"
    mirrored = (
        f"__r{name.rstrip('_').removeprefix('i') if name in IN_PLACE else name.rstrip('_')}__"
    )

    class Answers:
        pass

    setattr(Answers, mirrored, lambda self, other: "answered")
    assert getattr(operator, name)(torch.ones(2), Answers()) == "answered"
    found = getattr(torch.Tensor, method, lambda *operands: NotImplemented)
    assert found(torch.ones(2), object()) is NotImplemented
