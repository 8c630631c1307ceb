"""``min``, ``max``, ``math.isnan`` and its kin of numbers out of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.handlers import Call as HandlerCall
from bcmend.dynamo.values import constant
from bcmend.tracing.arithmetic import ordering
from bcmend.tracing.handlers import tensor_bool
from bcmend.tracing.numbers import scalars
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import computed_number, during_trace, trace

VALUES = (
    [math.nan, 1.0], [1.0, 1.5], [-0.0, -0.0], [0.0, -0.0], [math.inf, -1.0], [-5.0, 2.0],
)  # fmt: skip


def _calls() -> list[Any]:
    return [call(torch.tensor(each)) for each in VALUES]


def _make() -> Callable[..., Any]:
    def program(x: Tensor) -> tuple[Any, ...]:
        total, most = x.sum().item(), x.max().item()
        print(min(2.0, total), max(total, 2.0))
        lowest = min(total, most, 0.5)
        x = x * max(lowest, -1.0) if max(-0.0, total) > 1 else x + 1
        return x, min(total, 2.0), max(2.0, total), max(0.0, total), max(-0.0, most), lowest

    return program


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_first_is_returned_unless_a_later_one_is_beyond_it(backend: str) -> None:
    assert_equivalent(_make, _calls, backend=backend)


#: Reads of a number that is an integer or a float, as the data decide.
READS = {
    "returned": lambda x, total, count: (max(0, total), min(1, total), max(count, total)),
    "multiplied": lambda x, total, count: x * max(0, total) / min(count, 1.5),
    "nested": lambda x, total, count: x * max(0, min(1, total)) + max(total, x[0].item(), 1),
    "made an integer": lambda x, total, count: x * int(max(0, min(total, 3))),
    "compared": lambda x, total, count: x + 1 if max(0, total) > 1 else x - 1,
    "asked for its type": lambda x, total, count: (isinstance(max(0, total), int), max(1, count)),
    "in a list": lambda x, total, count: {"all": [max(0, total), max([total, count, 2])], "x": x},
    "truths": lambda x, total, count: (max(True, total), min(total, True), max(True, count)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_extreme_of_two_types_has_the_type_of_what_it_is(
    read: Callable[..., Any], backend: str
) -> None:
    values = [[1.0, 1.5], [-0.0, -0.0], [0.25, 0.5], [-5.0, 2.0], [2.5, 0.5]]
    if read is not READS["made an integer"]:
        values += [[math.nan, 1.0], [math.inf, -1.0]]

    def make() -> Callable[..., Any]:
        def program(x: Tensor) -> Any:
            return read(x, x.sum().item(), int((x > 0).sum()))

        return program

    assert_equivalent(make, lambda: [call(torch.tensor(each)) for each in values], backend=backend)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_an_extreme_of_two_types_scales_a_gradient(fullgraph: bool) -> None:
    def program(x: Tensor) -> Tensor:
        factor = min(1, 2.0 / (x.detach().norm().item() + 1e-6))
        if x.sum() > 0:
            x = x * max(0, x.detach().mean().item())
        return x * factor

    def calls() -> list[Any]:
        return [call(torch.tensor(each)) for each in ([1.0, 0.5], [3.0, 4.0], [-1.0, -9.0])]

    assert_equivalent(
        lambda: program, calls, backend="aot_eager", fullgraph=fullgraph, training=True
    )


def test_code_that_cannot_be_traced_for_two_types_has_the_number_in_front_of_the_graph() -> None:
    def program(x: Tensor) -> Any:
        return str([max(0, x.sum().item())])

    def calls() -> list[Any]:
        return [call(torch.tensor(each)) for each in ([1.0, 0.5], [-1.0, 0.5], [3.0, 2.0])]

    assert_equivalent(lambda: program, calls, graphs=3, recompiles=None)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_code_that_cannot_be_traced_for_two_types_breaks_the_graph(fullgraph: bool) -> None:
    weight = torch.ones(2, requires_grad=True)  # nothing is computed of it in front of the graph

    def program(x: Tensor) -> Any:
        return str([max(0, (x * weight).sum().item())])

    if not fullgraph:
        assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)
        return
    with pytest.raises(Unsupported, match="two types"):
        bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_number_is_nan_or_infinite_as_its_tensor_is(backend: str) -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor) -> tuple[Any, ...]:
            total, count = x.sum().item(), int((x > 0).sum())
            if math.isnan(total) or math.isinf(x.max().item()):
                x = torch.zeros_like(x)
            if not math.isfinite(total):
                print("not finite")
            print(math.isnan(total / 2), math.isfinite(count), math.isinf(2.0))
            return x + 1, math.isfinite(total)

        return program

    assert_equivalent(make, _calls, backend=backend)


def test_a_check_that_a_number_is_finite_raises() -> None:
    def program(x: Tensor) -> Tensor:
        if not math.isfinite(x.sum().item()):
            raise FloatingPointError(f"{x.sum().item()}")
        return x * 2

    assert_equivalent(lambda: program, _calls)


def test_the_best_of_several_numbers_is_found() -> None:
    def program(x: Tensor) -> Any:
        best = math.inf
        for each in x:
            if each.item() < best:
                best = each.item()
        return x * best

    assert_equivalent(lambda: program, _calls, recompiles=None)


def test_a_number_is_compared_with_infinity_before_what_cannot_be_traced() -> None:
    def program(x: Tensor) -> Tensor:
        if x[1].item() > math.inf:
            while x.untyped_storage().data_ptr() == 0:
                pass
        return x + 1

    assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)


# The handler, called directly


def _picked(tx: Any, function: Any, one: Any, other: Any) -> Any:
    owner = SimpleNamespace(fn=function)
    return ordering._pick(HandlerCall(tx, function.__name__, owner, (one, other), {}))


FLOATS = (math.nan, 1.0, -0.0, 0.0, math.inf)


@pytest.mark.parametrize("function", [min, max])
def test_the_handler_picks_as_python_does(function: Any) -> None:
    pairs = [(one, other) for one in FLOATS for other in FLOATS]

    def body(tx: Any, x: Any) -> Any:
        numbers = tensor_bool._listed(tx, x)
        assert isinstance(numbers, compat.ListVariable)
        items = {repr(each): number for each, number in zip(FLOATS, numbers.items, strict=True)}
        found = [_picked(tx, function, items[repr(a)], items[repr(b)]) for a, b in pairs]
        return compat.TupleVariable(found)

    found = trace(body, torch.tensor(FLOATS, dtype=torch.float64))
    assert list(map(repr, found)) == [repr(function(one, other)) for one, other in pairs]


def test_the_handler_picks_from_a_number_and_a_constant() -> None:
    def body(tx: Any, x: Any) -> Any:
        return _picked(tx, max, scalars.take(tx, x), constant(2.0))

    assert [trace(body, torch.tensor(each)) for each in (1.0, 3.0)] == [2.0, 3.0]


@pytest.mark.parametrize(("one", "other"), [(0, 1.0), (True, 1), (2.5, 1)])
def test_the_handler_keeps_two_numbers_of_two_types(one: Any, other: Any) -> None:
    def body(tx: Any, x: Any, y: Any) -> Any:
        found = _picked(tx, max, computed_number(tx, x), computed_number(tx, y))
        again = _picked(tx, max, found, constant(2))
        return compat.TupleVariable([*found.parts.items, *again.parts.items[1:]])

    is_second, second, first, *again = trace(body, torch.tensor(one), torch.tensor(other))
    assert (is_second, first, second) == (other > one, one, other)
    assert [*map(type, (first, second))] == [*map(type, (one, other))]
    assert again == [max(other, 2), max(one, 2)]


def test_the_handler_passes_on_what_is_known_or_no_number() -> None:
    def body(tx: Any, x: Any) -> Any:
        number = scalars.take(tx, x)
        pairs = [(constant(1.0), constant(2.0)), (number, x), (None, constant(1))]
        return [_picked(tx, min, *pair) for pair in pairs]

    assert during_trace(body, torch.ones(())) == [PASS, PASS, PASS]


def test_the_handler_passes_on_integers() -> None:
    def body(tx: Any, x: Any) -> Any:
        return _picked(tx, min, computed_number(tx, x), constant(2))

    assert during_trace(body, torch.tensor(3)) is PASS


#: What is sorted, and by what: names or numbers tell each two tuples apart.
SORTED = {
    "items of keywords": lambda x, n: sorted({"b": x, "a": x * 2, "none": None}.items()),
    "numbers": lambda x, n: sorted([(2, x), (True, x + 1), (-1, n)], reverse=True),
    "behind equal ones": lambda x, n: sorted([("a", 2, x), ("a", 1, x + 1), ("b", x)]),
    "one": lambda x, n: sorted([(x, 1)]),
    "numbers out of tensors": lambda x, n: sorted([("b", n), ("a", n + 1)]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("sort", SORTED.values(), ids=SORTED)
def test_tuples_are_sorted_by_what_tells_them_apart(sort: Callable[..., Any], backend: str) -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor, changed: list[Any]) -> Any:
            found = sort(x, int((x > 0).sum()))
            changed[:] = [("z", x), ("y", x * 3)]
            changed.sort()
            return (found, x + 1) if x.sum() > 0 else (found, x - 1)

        return program

    def calls() -> list[Any]:
        return [
            call(torch.full((size,), sign, requires_grad=True), list(range(size)))
            for size, sign in ((2, 1.0), (2, -1.0), (2, 1.0), (3, 1.0))
        ]

    assert_equivalent(make, calls, backend=backend, graphs=None, recompiles=None)


#: What is sorted by the tensors, by numbers with no order, or with an exception.
NOT_SORTED = {
    "equal names": lambda x: sorted([("a", x.sum()), ("a", x.sum() - 1)]),
    "no names": lambda x: sorted([(x.sum(),), (x.sum() - 1,)]),
    "names and numbers": lambda x: sorted([("a", x), (1, x)]),
    "a key": lambda x: sorted([("b", x), ("a", x)], key=lambda pair: pair[1].sum()),
    "tuples of several values": lambda x: sorted([("a", x), ("a", x + 1)]),
}


@pytest.mark.parametrize("sort", NOT_SORTED.values(), ids=NOT_SORTED)
def test_what_tensors_decide_breaks_the_graph(sort: Callable[..., Any]) -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor) -> Any:
            y = x + 1 if x.sum() > 0 else x - 1
            return sort(y)

        return program

    calls = [call(torch.full((2,), sign)) for sign in (1.0, -1.0, 1.0)]
    assert_equivalent(make, lambda: calls, fullgraph=False, graphs=None, recompiles=None)


def _of_one_item() -> list[Any]:
    numbers = [(1.0, 2.0), (2.0, 1.0), (1.5, 1.5), (math.nan, 1.0), (1.0, math.nan), (-0.0, 0.0)]
    return [call(*(torch.tensor(each, requires_grad=True) for each in pair)) for pair in numbers]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_of_two_tensors_the_first_is_returned_unless_the_other_is_beyond_it(backend: str) -> None:
    def make() -> Callable[..., Any]:
        def program(one: Tensor, other: Tensor) -> Any:
            print(one.detach())
            items = [one * 2, other * 3, one * 3]
            most, least = max(one * 2, other * 2), min(one * 2, other * 2)
            return most, least, max(items) + 1, min(*items) + 1

        return program

    assert_equivalent(make, _of_one_item, backend=backend)


@pytest.mark.parametrize(
    "pair",
    [
        (torch.ones(2), torch.zeros(2)),
        (torch.tensor(1), torch.tensor(0.5)),
        (torch.ones(1), torch.tensor(0.5)),
    ],
    ids=["several items", "two types", "two shapes"],
)
def test_two_tensors_without_a_common_form_break_the_graph(pair: tuple[Tensor, Tensor]) -> None:
    def program(one: Tensor, other: Tensor) -> Tensor:
        print(one.sum())
        return max(one, other)

    with pytest.raises(Unsupported, match="an extreme of two tensors"):
        bcmend.compile(program, backend="eager", fullgraph=True)(*pair)
