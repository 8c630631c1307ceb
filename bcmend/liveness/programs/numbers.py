"""Numbers and truths that are taken out of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bcmend.dynamo.models import methods
from bcmend.liveness.program import Arguments, beside, program

Function = Callable[..., Any]


@program(
    "TensorVariable.method_item",
    "TensorVariable.call_method:item",
    "Tensor.item",
    "SymNodeVariable.as_tensor",
)
def a_number() -> Function:
    def program(x: Tensor) -> Any:
        number = x.sum().item()
        if number > 0:
            x = x + 1
        return x * number, number, number / 3

    return program


@program("parts of symbolic numbers")
def parts_of_a_number() -> Function:
    def program(x: Tensor) -> Any:
        number = x.sum().item()
        if number > 0:
            x = x + 1
        return x * number.real, number.imag, number == number.real

    return program


@program("TensorVariable.method_tolist", "TensorVariable.call_method:tolist", "Tensor.tolist")
def a_list() -> Function:
    def program(x: Tensor) -> Any:
        first, second, third = x.tolist()
        return (x + third if first > second else x - 1), [first, third]

    return program


@program("BuiltinVariable.call_not_")
def not_a_number() -> Function:
    def program(x: Tensor) -> Any:
        return (x + 1 if not (x[0] - 1).item() else x - 1), not (x > 0).all().item()

    return program


@program("SymNodeVariable.create")
def a_number_less_itself() -> Function:
    def program(x: Tensor) -> Any:
        number = x.sum().item()
        return (x + 1 if number - number == 0 else x - 1), number * 0

    return program


@program("BuiltinVariable._handle_insert_op_in_graph:not_")
def not_a_tensor() -> Function:
    def program(x: Tensor) -> Any:
        return (x + 1 if not x.sum() > 0 else x - 1), not x.sum() > 0

    return program


@program("BuiltinVariable.call_float")
def a_truth_made_a_fraction() -> Function:
    def program(x: Tensor) -> Any:
        level = float((x.sum() > 0).item())
        return x * 2 if level < 0.5 else x * level

    return program


@program("BuiltinVariable._comparison_with_symnode")
def truths_compared() -> Function:
    def program(x: Tensor) -> Any:
        truth = (x.sum() > 0).item()
        return (x + 1 if truth == 1 else x - 1), truth == True, truth < 1  # noqa: E712

    return program


@program(
    *(f"object_protocol.binary_op1:{each}" for each in sorted(methods.BINARY_NUMBER_SLOTS)),
    *(f"SymNodeVariable.{each}" for each in methods.UNARY_NUMBER_SLOTS),
    f"object_protocol.binary_op1:{methods.EXCLUSIVE_OR_SLOT}",
)
def truths_in_arithmetic() -> Function:
    def program(x: Tensor) -> Any:
        truth = (x.sum() > 0).item()
        parts = truth + 1, truth * 3, 2 - truth, truth / 2, truth // 2, truth % 2
        return x * (truth + 1), parts, -truth, +truth, abs(truth), int(truth), truth ^ True

    return program


@program("arithmetic with two forms", "attributes of values in two forms")
def a_total_of_some_turns() -> Function:
    def program(x: Tensor) -> Tensor:
        total: Any = 0
        for each in (x, -x, x * 2):
            if each.sum() > 0:
                total = total + each.sum()
        return total.sqrt() if x.sum() != 0 else x.sum()

    return program


@program("BuiltinVariable._call_min_max_seq")
def the_most_of_nothing() -> Function:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            x = x + 1
        try:
            most: float = max([float(x.dim()), 1.5])
            most = max(())
        except ValueError:
            most = 2.0
        return x * most

    return program


@program(*(f"SymNodeVariable.{each}" for each in methods.UNARY_NUMBER_SLOTS))
def signs_of_numbers() -> Function:
    def program(x: Tensor) -> Any:
        number = x.sum().item()
        small = x.argmax().item()
        return x + abs(number), -number, +number, abs(-number), -small, +small, int(small)

    return program


@program("`pow` of tensors and of symbolic numbers")
def a_power() -> Function:
    def program(x: Tensor) -> Any:
        number = x.sum().item()
        return pow(x, 2) if number > 0 else -x, pow(number, 2)

    return program


@program("`~` and `round` of symbolic numbers", "methods of numbers out of tensors")
def methods_of_numbers() -> Function:
    def program(x: Tensor) -> Any:
        place = int(x.argmax())
        return x[~place], place.bit_length(), (x.sum().item() / 2).is_integer()

    return program


@program("`divmod` of symbolic numbers")
def a_row_and_a_column() -> Function:
    def program(x: Tensor) -> Any:
        row, column = divmod(int(x.argmax()), 2)
        return x * row + column

    return program


@program()
def conversions_of_numbers() -> Function:
    def program(x: Tensor) -> Any:
        number = x.sum().item()
        y = x + int(x[0]) if bool(number) and float(x[1]) > 0 else x - round(number)
        return y, int(number), number**2, number // 2, number % 2

    return program


def extreme_numbers() -> list[Arguments]:
    """Calls with vectors of which some begin with what is no number, or is below zero."""
    return [*beside()(), (torch.tensor([math.nan, 1, 2]),), (torch.tensor([-3.0, math.nan, 2]),)]


@program("BuiltinVariable._call_min_max_binary", inputs=extreme_numbers)
def extremes() -> Function:
    def program(x: Tensor) -> Any:
        number = x[0].item()
        others = max(0.5, number), max(0.0, number * 0.0), min(number * 0.0, 0.0)
        return x + max(number, 0.5), min(number, x[1].item()), others

    return program


def with_a_number() -> Sequence[Arguments]:
    """Calls with a vector and an integer that differs."""
    return [(*each, at) for each, at in zip(beside()(), (6, 4, 5), strict=True)]


@program(inputs=with_a_number)
def a_number_beside_a_tensor() -> Function:
    def program(x: Tensor, number: int) -> Any:
        return (x + number if number > x.sum() else x - 1), number > x, number == x

    return program


@program("a number compared with a tensor", fullgraph=False)
def a_number_and_a_tensor_in_tuples() -> Function:
    def program(x: Tensor) -> Any:
        return x + 1 if (x.argmax().item(), 1) == (x[0], 1) else x - 1

    return program


@program("BaseListVariable.getitem_const")
def an_item_at_a_truth() -> Function:
    def program(x: Tensor) -> Any:
        truth = (x.sum() > 0).item()
        return x + truth * 2, [10, 20][truth], (x, x + 1)[truth] * 2

    return program


@program("object_protocol.generic_richcompare_bool")
def numbers_in_containers() -> Function:
    def program(x: Tensor) -> Any:
        at = x.argmax().item()
        return (
            (x + 1 if (at, 1) == (0, 1) else x - 1),
            at in (1, 2),
            [at] == [2],
        )

    return program


@program("object_protocol.generic_richcompare_bool")
def a_number_and_an_integer_tensor_in_tuples() -> Function:
    def program(x: Tensor) -> Any:
        return x + 1 if (x.argmax().item(), 1) == (x.argmin(), 1) else x - 1

    return program


def rows() -> Sequence[Arguments]:
    """Calls with vectors of several lengths and a scale."""
    return [(torch.arange(1.0, 1 + size), size) for size in (3, 4, 6)]


@program("SymNodeVariable.evaluate_expr", "ShapeEnv.evaluate_expr", inputs=rows)
def sizes() -> Function:
    def program(x: Tensor, size: int) -> Any:
        positive = x[x > 2]
        if positive.shape[0] > 2 and size > 3:
            positive = positive + 1
        return positive, len(positive)

    return program


def scaled() -> Sequence[Arguments]:
    """Calls with a vector and a float that differs."""
    vectors = (each for (each,) in beside()())
    return list(zip(vectors, (0.5, 0.25, 2.0), strict=True))


class _Counter(torch.nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return x + self.calls if x.sum() > 0 else x - 1


@program("builder.is_dynamic_source")
def a_counter() -> Function:
    return _Counter()


@program("VariableBuilder.wrap_symfloat", inputs=scaled)
def a_float_in_an_arm() -> Function:
    def program(x: Tensor, scale: float) -> Any:
        if x.sum() > 0:
            x = x * scale
        return x + 1

    return program


def _counts() -> Sequence[Arguments]:
    """Calls with a vector and an integer that differs, once zero."""
    return [(*each, count) for each, count in zip(beside()(), (2, 3, 0), strict=True)]


@program("arithmetic that may raise in a `try`", inputs=_counts, fullgraph=False)
def an_average_of_nothing() -> Function:
    def program(x: Tensor, count: int) -> Any:
        try:
            share = 6 / count
        except ZeroDivisionError:
            share = -1.0
        if x.sum() > 0:
            x = x * 2
        return x + 1, share

    return program


@program("functions of `math` that may raise in a `try`", inputs=scaled, fullgraph=False)
def an_angle_that_is_none() -> Function:
    def program(x: Tensor, sine: float) -> Any:
        try:
            angle = math.asin(sine)
        except ValueError:
            angle = -1.0
        if x.sum() > 0:
            x = x * 2
        return x + 1, angle

    return program


@program("items of ranges of symbolic numbers", inputs=_counts, fullgraph=False)
def ranges_of_counts() -> Function:
    def program(x: Tensor, count: int) -> Any:
        if x.sum() > 0:
            x = x * 2
        return x + 1, range(5)[count], 2 in range(count), [*range(0, 6, count + 1)]

    return program
