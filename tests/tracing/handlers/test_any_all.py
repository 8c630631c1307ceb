"""``any`` and ``all`` over tensors: the same answers and the same effects, in one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.handlers import Call as HandlerCall
from bcmend.dynamo.values import constant
from bcmend.tracing.handlers import any_all
from tests.equivalence import Call, assert_equivalent, call, compare
from tests.tracing.in_trace import during_trace, trace

NAN = float("nan")
ROWS = (
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    [[-1.0, 2.0], [-3.0, 1.0], [5.0, 6.0]],
    [[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]],
    [[NAN, 1.0], [0.0, 0.0], [1.0, 1.0]],
)

Program = Callable[[Tensor], Any]


def _inputs() -> list[Call]:
    return [call(torch.tensor(rows)) for rows in ROWS]


def _in_a_generator_expression(x: Tensor) -> Tensor:
    return x * 2 if any(row.sum() > 0 for row in x) else x - 1


def _all_in_a_generator_expression(x: Tensor) -> Tensor:
    return x * 2 if all(row.sum() > 0 for row in x) else x - 1


def _in_a_list(x: Tensor) -> Tensor:
    sums = [row.max() > 5.5 for row in x]
    if any(sums):
        x = x.tanh()
    return x + 1


def _in_a_tuple(x: Tensor) -> Tensor:
    if not all((x[0].isfinite().all(), x[1].sum() > -2)):
        return x.nan_to_num()
    return x * 3


def _over_the_rows_of_a_tensor(x: Tensor) -> Tensor:
    return x + 1 if any(x[:, 0]) and not all(x[:, 1]) else x - 1


def _over_a_map(x: Tensor) -> Tensor:
    return x + 1 if all(map(torch.all, x > 0)) else x - 1


def _beside_constants(x: Tensor) -> Tensor:
    if any((False, None, 0, x.sum() > 0, "")):
        x = x + 1
    if any((x.sum() > 3, 1)):
        x = x + 2
    if all((True, "word", x.sum() > 3)):
        x = x + 4
    if all((x.sum() > 3, [], x.sum() > 4)):
        x = x + 8
    return x


def _numbers_out_of_tensors(x: Tensor) -> Tensor:
    return x + 1 if any(row.sum().item() > 4 for row in x) else x - 1


def _or_in_each_item(x: Tensor) -> Tensor:
    return x * 0 if any(row.isnan().any() or row.sum() < -10 for row in x) else x * 2


def _in_each_other(x: Tensor) -> Tensor:
    return x + 1 if all(any(value > 1 for value in row) for row in x) else x - 1


def _kept_and_tested_twice(x: Tensor) -> Tensor:
    is_positive = all(row.sum() > 0 for row in x)
    if is_positive:
        x = x + 1
    return x * 2 if not is_positive else x * 3


def _as_a_number(x: Tensor) -> Tensor:
    y = x + any(row.sum() > 0 for row in x)
    return y + 0 if all(row.sum() > 0 for row in y) else -y


def _in_an_arm(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2 if any(row.sum() > 6 for row in x) else x * 3
    return x + 0


def _in_a_condition_with_others(x: Tensor) -> Tensor:
    if x.numel() > 2 and any(row.sum() > 0 for row in x) and not x.isnan().any():
        return x + 1
    return x - 1


def _in_a_check(x: Tensor) -> Tensor:
    if any(row.isnan().any() for row in x):
        raise ValueError("not a number", 3)
    return x + 1


def _in_a_negated_check(x: Tensor) -> Tensor:
    if not all(row.sum() > -8 for row in x):
        raise AssertionError("too low")
    return x + 1


def _of_nothing(x: Tensor) -> Tensor:
    return x + 1 if any(row.sum() > 0 for row in x[:0]) else x - 1


@pytest.mark.parametrize(
    "program",
    [
        _in_a_generator_expression,
        _all_in_a_generator_expression,
        _in_a_list,
        _in_a_tuple,
        _over_the_rows_of_a_tensor,
        _over_a_map,
        _beside_constants,
        _numbers_out_of_tensors,
        _or_in_each_item,
        _in_each_other,
        _kept_and_tested_twice,
        _as_a_number,
        _in_an_arm,
        _in_a_condition_with_others,
        _in_a_check,
        _in_a_negated_check,
        _of_nothing,
    ],
    ids=lambda program: program.__name__,
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_the_answer_is_eagers(program: Program, backend: str, training: bool) -> None:
    found = assert_equivalent(lambda: program, _inputs, backend=backend, training=training)
    assert found.graphs == 1


def _with_effects_between(x: Tensor) -> tuple[Tensor, list[int]]:
    seen = []

    def is_high(number: int, row: Tensor) -> Tensor:
        seen.append(number)
        return row.sum() > 0

    found = any(is_high(number, row) for number, row in enumerate(x))
    return (x + 1 if found else x - 1), seen


def _may_fail_later(x: Tensor) -> Tensor:
    table = torch.arange(6)
    found = any(table[(row.sum() * 3).long().clamp(min=0)] > 1 for row in x)
    return x + 1 if found else x - 1


def _draws_random_numbers(x: Tensor) -> Tensor:
    return x + 1 if any((torch.rand(()) + row.sum()) > 2 for row in x) else x - 1


def _goes_on_with_the_rest(x: Tensor) -> tuple[Tensor, int]:
    rows = iter(x)
    found = any(row.sum() > 0 for row in rows)
    return (x + 1 if found else x - 1), len(list(rows))


def _an_item_of_two_elements(x: Tensor) -> Tensor:
    return x + 1 if any(row > 0 for row in x) else x - 1


def _prints(x: Tensor) -> Tensor:
    def is_high(row: Tensor) -> Tensor:
        print("looks")
        return row.sum() > 0

    return x + 1 if any(is_high(row) for row in x) else x - 1


@pytest.mark.parametrize(
    "program",
    [
        _with_effects_between,
        _may_fail_later,
        _draws_random_numbers,
        _goes_on_with_the_rest,
        _an_item_of_two_elements,
        _prints,
    ],
    ids=lambda program: program.__name__,
)
def test_what_cannot_be_drawn_in_advance_breaks_the_graph_as_before(program: Program) -> None:
    found = compare(lambda: program, _inputs, fullgraph=False)
    assert not found.eager_differences and not found.differences
    assert found.graphs != 1 or program is _prints  # where what comes before it is no graph


class _Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def _outputs(self, x: Tensor) -> Iterator[Tensor]:
        for layer in self.layers:
            x = layer(x)
            yield x

    def forward(self, x: Tensor) -> Tensor:
        if all(each.isfinite().all() for each in self._outputs(x)):
            return x + 1
        return x.nan_to_num() * 0


def test_a_generator_function_is_drawn_in_advance() -> None:
    assert assert_equivalent(_Stack, _inputs, training=True, zero_gradients=True).graphs == 1


def test_unpatched_code_is_left_to_dynamo() -> None:
    def helper(x: Tensor) -> Tensor:
        return x + 1 if any(row.sum() > 0 for row in x) else x - 1

    bcmend.patch(_in_a_list)
    try:
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(helper, backend="eager", fullgraph=True)(torch.ones(2, 2))
    finally:
        bcmend.unpatch(_in_a_list)


# The handler, called directly


def _handled(tx: Any, function: Any, *items: Any) -> Any:
    given = compat.TupleVariable(list(items))
    return any_all._call_function(
        HandlerCall(tx, "call_function", SimpleNamespace(fn=function), ([given], {}), {})
    )


@pytest.mark.parametrize("function", [any, all])
@pytest.mark.parametrize("numbers", [(0.0, 0.0), (0.0, 2.0), (NAN, 1.0), (1.0, 0.0)])
def test_the_handler_joins_the_truths_of_tensors(function: Any, numbers: Any) -> None:
    found = trace(
        lambda tx, *tensors: _handled(tx, function, *tensors), *map(torch.tensor, numbers)
    )
    assert found is function(numbers)


@pytest.mark.parametrize(("function", "sought"), [(any, True), (all, False)])
def test_the_handler_answers_with_a_constant_behind_a_tensor(function: Any, sought: bool) -> None:
    found = during_trace(lambda tx, x: _handled(tx, function, x, constant(sought)), torch.ones(()))
    assert found.as_python_constant() is sought


def test_constants_that_do_not_decide_are_left_out() -> None:
    def body(tx: Any, x: Any) -> Any:
        return _handled(tx, any, constant(0), x, constant(""))

    assert [trace(body, torch.tensor(each)) for each in (0.0, 3.0)] == [False, True]


@pytest.mark.parametrize(
    ("function", "items"),
    [
        (any, lambda x: [constant(0), constant(1)]),
        (any, lambda x: [constant(1), x]),
        (all, lambda x: []),
        (all, lambda x: [x, compat.ListVariable([x])]),
        (sum, lambda x: [x]),
    ],
    ids=["constants", "decided before a tensor", "nothing", "another kind of item", "another call"],
)
def test_the_handler_passes_on_what_needs_no_tensor_operation(function: Any, items: Any) -> None:
    assert during_trace(lambda tx, x: _handled(tx, function, *items(x)), torch.ones(())) is PASS


def test_the_handler_passes_on_a_tensor_of_several_elements() -> None:
    assert during_trace(lambda tx, x: _handled(tx, any, x), torch.ones(2)) is PASS


def test_the_handler_passes_on_calls_of_code_that_is_not_mended() -> None:
    found = during_trace(lambda tx, x: _handled(tx, any, x), torch.ones(()), is_mended=False)
    assert found is PASS
