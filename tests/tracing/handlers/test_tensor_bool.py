"""Questions about the data of tensors: the same answers, in one graph, and only in mended code."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.handlers import Call as HandlerCall
from bcmend.dynamo.values import constant
from bcmend.tracing.handlers import tensor_bool
from bcmend.tracing.numbers import scalars
from tests.equivalence import (
    Call,
    assert_equivalent,
    call,
    compare,
    leave_unpatched,
    run_compiled,
)
from tests.tracing.in_trace import computed_number, during_trace, trace

NAN, INFINITY = float("nan"), float("inf")
EDGES = (0.0, -0.0, 0.1, 2.0, -2.0, NAN, INFINITY, -INFINITY, 1e-320)
INTEGERS = (0, 3, -3, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
COMPARISONS = (operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne)


def _chosen_by(condition: Callable[..., bool]) -> Callable[[], Callable[..., Tensor]]:
    def make() -> Callable[..., Tensor]:
        def program(x: Tensor, *others: Tensor) -> Tensor:
            if condition(*others):
                return x + 1
            return x - 1

        return program

    return make


def _calls(*values: Tensor | tuple[Tensor, ...]) -> Callable[[], list[Call]]:
    def inputs() -> list[Call]:
        groups = (each if isinstance(each, tuple) else (each,) for each in values)
        return [call(torch.ones(2), *(each.clone() for each in group)) for group in groups]

    return inputs


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_float_out_of_a_tensor_is_compared_as_a_double(
    dtype: torch.dtype, compare: Callable[[Any, Any], bool], fullgraph: bool
) -> None:
    values = [torch.tensor([each], dtype=dtype) for each in EDGES]
    make = _chosen_by(lambda t: compare(t.item(), 0.1))
    assert_equivalent(make, _calls(*values), fullgraph=fullgraph)


@pytest.mark.parametrize("bound", [3, 2.5, 3.0, 2**53, float(2**53), -2.5])
@pytest.mark.parametrize("compare", COMPARISONS)
def test_an_integer_out_of_a_tensor_is_compared_exactly(
    compare: Callable[[Any, Any], bool], bound: float
) -> None:
    values = [torch.tensor([each, each]) for each in INTEGERS]
    make = _chosen_by(lambda t: compare(t.amax().item(), bound))
    mixed = isinstance(bound, float) and not bound.is_integer()
    if mixed and compare in (operator.eq, operator.ne):
        assert_equivalent(make, _calls(*values[:3]))  # by the number itself
        return
    assert_equivalent(make, _calls(*values))


def test_truth_of_numbers_and_their_negation() -> None:
    values = [torch.tensor([each]) for each in EDGES]
    for condition in (
        lambda t: t.item(),
        lambda t: not t.item(),
        lambda t: not t.item() > 1,
        lambda t: float(t),
        lambda t: bool(t),
        lambda t: t.sum().item() == t.amax().item(),
        torch.is_nonzero,
    ):
        assert_equivalent(_chosen_by(condition), _calls(*values), fullgraph=False)


PAIRS = [
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0001])),
    (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN])),
    (torch.tensor([INFINITY, 2.0]), torch.tensor([INFINITY, 2.0])),
    (torch.tensor([INFINITY, 2.0]), torch.tensor([-INFINITY, 2.0])),
    (torch.tensor([0.0, -0.0]), torch.tensor([-0.0, 1e-9])),
]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "condition",
    [
        torch.equal,
        lambda a, b: a.equal(b),
        torch.allclose,
        lambda a, b: torch.allclose(a, b, 1e-3, 1e-2, True),
        lambda a, b: a.allclose(b, atol=1e-3, equal_nan=True),
        lambda a, b: a.allclose(b[:1]),
        lambda a, b: not torch.equal(a[:0], b[:0]),
        lambda a, b: torch.equal(a, b[:1]) or torch.equal(a[None], b),
    ],
)
def test_equality_of_tensors(condition: Callable[..., bool], fullgraph: bool) -> None:
    assert_equivalent(
        _chosen_by(condition),
        _calls(*PAIRS),
        fullgraph=fullgraph,
        graphs=None,  # one, or none where the sizes decide
    )


def _rows_equal(a: Tensor, b: Tensor) -> bool:
    kept = ~a.isnan()
    return torch.equal(a[kept], b[kept])


def _rows_close(a: Tensor, b: Tensor) -> bool:
    rows = a[a > -1]
    return torch.allclose(rows, rows.clone().fill_(2), atol=1)


@pytest.mark.parametrize("condition", [_rows_equal, _rows_close])
def test_equality_of_tensors_of_one_size_that_the_data_decide(
    condition: Callable[..., bool],
) -> None:
    assert_equivalent(_chosen_by(condition), _calls(*PAIRS))


@pytest.mark.parametrize(
    "condition",
    [
        lambda a, b: torch.equal(a[a > 0], b[b > 1]),
        lambda a, b: a.unique().equal(b),
        lambda a, b: torch.equal(a[a > 0][None], b[b > 1]),
    ],
)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_equality_of_tensors_of_sizes_that_the_data_decide(
    condition: Callable[..., bool], backend: str
) -> None:
    assert_equivalent(_chosen_by(condition), _calls(*PAIRS), backend=backend)


def _rows_close_to_others(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a[a > 0], b[b > 1])


@pytest.mark.parametrize(
    "condition",
    [
        _rows_close_to_others,
        lambda a, b: torch.equal(a, b.double()),
        lambda a, b: torch.allclose(a, b.double()),
        lambda a, b: torch.allclose(a, torch.cat([b, b[:1]])),
        lambda a, b: a.equal(b, 1),
        lambda a, b: torch.allclose(a, b, rtol=-1.0),
    ],
)
def test_what_may_be_an_error_is_left_to_torch(condition: Callable[..., bool]) -> None:
    found = compare(_chosen_by(condition), _calls(*PAIRS[:2]), fullgraph=False)
    assert (found.eager_differences, found.differences) == ((), ())


def test_unpatched_programs_break_as_before() -> None:
    make = _chosen_by(torch.equal)
    before = run_compiled(make, _calls(*PAIRS[:2]), fullgraph=False, way=leave_unpatched)
    assert before.graphs > 1, "stock Dynamo stops at torch.equal"


def test_a_number_that_shapes_a_tensor_is_captured() -> None:
    def make() -> Callable[..., Tensor]:
        def program(x: Tensor, count: Tensor) -> Tensor:
            size = int(count.sum())
            if size > 1:
                x = x + 1
            return x[:size] * torch.ones(size)

        return program

    values = [torch.tensor([each, 0]) for each in (2, 1, 0, -1)]
    found = compare(make, _calls(*values), fullgraph=False)
    assert (found.eager_differences, found.differences) == ((), ())
    assert found.graphs == 1


def test_a_number_is_a_number_wherever_it_can_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Tensor) -> tuple[Tensor, dict[str, object]]:
        flag, total = (x > 2).any().item(), x.sum().item()
        if flag:
            x = x + 1
        return x, {"flag": flag, "total": total, "items": [total, not flag], "count": int(x.amax())}

    expected = program(torch.tensor([1.0, 3.0]))
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    try:
        result = compiled(torch.tensor([1.0, 3.0]))
    finally:
        bcmend.unpatch()
    assert result[1] == expected[1]
    assert repr(result[1]) == repr(expected[1])
    assert [type(each) for each in result[1].values()] == [bool, float, list, int]


def test_an_untaken_conversion_does_not_raise() -> None:
    def make() -> Callable[..., Tensor]:
        def program(x: Tensor, value: Tensor) -> Tensor:
            if torch.isfinite(value).all():
                if int(value) == 3:
                    return x * 2
                return x + 1
            return x - 1

        return program

    values = [torch.tensor([each]) for each in (3.0, NAN, INFINITY, 4.0)]
    for fullgraph in (True, False):
        assert_equivalent(make, _calls(*values), fullgraph=fullgraph)


def test_an_answer_inside_an_arm_decides_a_check() -> None:
    def make() -> Callable[..., Tensor]:
        def program(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
            if one.sum() > 0:
                if torch.equal(one, other):
                    raise ValueError("equal")
                x = x + 1
            return x

        return program

    assert_equivalent(make, _calls(*PAIRS[:2]), may_copy=True)


def test_no_number_is_taken_out_where_only_its_truth_is_read() -> None:
    targets: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        targets.extend(node.target for node in module.graph.nodes)
        return module

    def program(x: Tensor) -> Tensor:
        if x.sum().item() > 2 and not torch.equal(x, x + 1):
            return x + 1
        return x - 1

    try:
        torch.compile(bcmend.patch(program), backend=backend)(torch.ones(3))
    finally:
        bcmend.unpatch()
    assert "item" not in targets
    assert torch.where in targets


_SIDES: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "float": lambda x, number, mask: x[0].item(),
    "int": lambda x, number, mask: number.item(),
    "truth": lambda x, number, mask: mask[0].item(),
    "1": lambda x, number, mask: 1,
    "True": lambda x, number, mask: True,
    "0.5": lambda x, number, mask: 0.5,
}


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.ge])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("truth", "1"),
        ("1", "truth"),
        ("truth", "True"),
        ("truth", "0.5"),
        ("truth", "float"),
        ("float", "truth"),
        ("int", "truth"),
        ("truth", "truth"),
        ("int", "True"),
        ("True", "float"),
    ],
)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_truth_out_of_a_tensor_is_compared_as_a_number(
    compare: Callable[[Any, Any], Any], left: str, right: str, *, fullgraph: bool
) -> None:
    one, other = _SIDES[left], _SIDES[right]

    def program(x: Tensor, number: Tensor, mask: Tensor) -> Tensor:
        if compare(one(x, number, mask), other(x, number, mask)):
            return x + 1
        return x - 1

    inputs = [
        call(torch.tensor([float(number), 2.0]), torch.tensor(number), torch.tensor([truth, True]))
        for number in (1, 0, -1)
        for truth in (True, False)
    ]
    assert_equivalent(lambda: program, lambda: inputs, fullgraph=fullgraph, graphs=None)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_truths_are_numbers_in_arithmetic(backend: str) -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor) -> tuple[Any, ...]:
            total, some = x.sum().item(), (x > 1).any().item()
            sign = (total > 0) - (total < 0)
            count = sum([some, total > 2, 3])
            print(f"{some} {some + 1} {-some}", some / 2, int(some) + 1)
            return x * sign, sign, count, some * 2.5, True + some, some % 2, x * some, abs(some)

        return program

    values = ([1.0, 1.5], [NAN, 1.0], [-5.0, 2.0], [0.0, -0.0])
    assert_equivalent(make, lambda: [call(torch.tensor(each)) for each in values], backend=backend)


def test_one_of_two_truths_alone() -> None:
    def make() -> Callable[[Tensor], Any]:
        def program(_: Tensor, x: Tensor) -> tuple[Any, ...]:
            one, other = bool(x[0] > 0), bool(x[1] > 0)
            either = one ^ True
            either ^= other
            y = x + 1 if one ^ other else x * 2
            return y, either, False ^ other, one ^ False, (x > 0).sum().item() ^ int(one)

        return program

    assert_equivalent(
        make, _calls(*(torch.tensor([a, b]) for a in (1.0, -1.0) for b in (2.0, -2.0)))
    )


@pytest.mark.parametrize("kind", [float, int])
def test_a_truth_is_made_a_number(kind: type[float]) -> None:
    def program(x: Tensor) -> Any:
        level = kind((x > 0)[0].item())
        while level < 4:
            level = level * 2 + 1
        return x * level

    values = ([1.0, 1.5], [-5.0, -2.0])
    assert_equivalent(
        lambda: program,
        lambda: [call(torch.tensor(each)) for each in values],
        graphs=None,
        recompiles=None,
    )


def test_a_truth_is_a_place_in_a_list() -> None:
    def program(x: Tensor) -> Any:
        return [x + 1, -x][x.sum().item() > 0], (10, 20)[(x > 1).any().item()]

    values = ([1.0, 1.5], [-5.0, -2.0])
    assert_equivalent(
        lambda: program,
        lambda: [call(torch.tensor(each)) for each in values],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


# The handlers, called directly

NAN = float("nan")


def _asked(tx: Any, compute: Any, *given: Any) -> Any:
    return tensor_bool._answered(compute, HandlerCall(tx, compute.__name__, None, given, {}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, 3.0]),
        ([NAN], [NAN]),
        ([1.0], [[1.0]]),
        ([], []),
        ([1.0], [1.0, 1.0]),
    ],
)
def test_equal_is_answered_as_by_torch(one: Any, other: Any) -> None:
    given = torch.tensor(one), torch.tensor(other)
    found = trace(lambda tx, x, y: _asked(tx, tensor_bool._equal, x, y), *given)
    assert found is torch.equal(*given)


def test_equal_of_two_dtypes_is_passed_on() -> None:
    given = torch.ones(2), torch.ones(2, dtype=torch.int64)
    assert during_trace(lambda tx, x, y: _asked(tx, tensor_bool._equal, x, y), *given) is PASS


@pytest.mark.parametrize("options", [(), (0.5,), (0.0, 0.2), (0.0, 0.0, True)])
def test_allclose_is_answered_as_by_torch(options: Any) -> None:
    given = torch.tensor([1.0, 2.0, NAN]), torch.tensor([1.0, 2.1, NAN])
    for count in (2, 3):
        pair = given[0][:count], given[1][:count]
        found = trace(
            lambda tx, x, y: _asked(tx, tensor_bool._allclose, x, y, *map(constant, options)), *pair
        )
        assert found is torch.allclose(*pair, *options)


@pytest.mark.parametrize(("shape", "options"), [((2,), (-1.0,)), ((2,), (0.0, -1.0)), ((3,), ())])
def test_allclose_that_fails_is_passed_on(shape: Any, options: Any) -> None:
    def body(tx: Any, x: Any, y: Any) -> Any:
        return _asked(tx, tensor_bool._allclose, x, y, *map(constant, options))

    assert during_trace(body, torch.ones(2), torch.ones(shape)) is PASS


@pytest.mark.parametrize("number", [0.0, 2.0, NAN])
def test_is_nonzero_is_answered_as_by_torch(number: float) -> None:
    x = torch.tensor([number])
    found = trace(lambda tx, x: _asked(tx, tensor_bool._is_nonzero, x), x)
    assert found is torch.is_nonzero(x)


def test_questions_that_fail_or_are_not_mended_are_passed_on() -> None:
    def body(tx: Any, x: Any) -> Any:
        return [_asked(tx, tensor_bool._is_nonzero, *each) for each in ((x,), (), (constant("a"),))]

    assert during_trace(body, torch.ones(2)) == [PASS] * 3
    assert during_trace(body, torch.ones(1), is_mended=False) == [PASS] * 3


def _method(tx: Any, handler: Any, tensor: Any, *args: Any) -> Any:
    return handler(HandlerCall(tx, "method", tensor, args, {}))


@pytest.mark.parametrize("value", [2.5, -3, True, [1.5], [[2]]])
def test_item_is_the_number(value: Any) -> None:
    x = torch.tensor(value)
    found = trace(lambda tx, x: _method(tx, tensor_bool._item, x), x)
    assert found == x.item() and type(found) is type(x.item())


@pytest.mark.parametrize("value", [2, [1, 2], [[1], [2]], []])
def test_tolist_is_a_list_of_numbers(value: Any) -> None:
    found = trace(lambda tx, x: _method(tx, tensor_bool._tolist, x), torch.tensor(value))
    assert found == value


def test_long_lists_and_calls_with_arguments_are_passed_on() -> None:
    def body(tx: Any, x: Any) -> Any:
        return [
            _method(tx, tensor_bool._item, x),
            _method(tx, tensor_bool._item, x, constant(0)),
            _method(tx, tensor_bool._tolist, x),
            _method(tx, tensor_bool._tolist, x, constant(0)),
        ]

    assert during_trace(body, torch.ones(tensor_bool._LISTED_AT_MOST + 1)) == [PASS] * 4


def test_truths_are_zero_and_one() -> None:
    def body(tx: Any, x: Any, y: Any) -> Any:
        given = [scalars.take(tx, x), scalars.take(tx, y), constant(True), constant(2.5)]
        return compat.TupleVariable([tensor_bool._as_number(tx, each) for each in given])

    found = trace(body, torch.tensor(True), torch.tensor(7))
    assert list(map(repr, found)) == ["1", "7", "1", "2.5"]


@pytest.mark.parametrize("value", [0, 3, True, False, 0.0])
def test_not_of_a_number(value: Any) -> None:
    def body(tx: Any, x: Any) -> Any:
        return tensor_bool._not(_unexpected, None, tx, computed_number(tx, x))

    assert trace(body, torch.tensor(value)) is (not value)


def _unexpected(*given: Any) -> Any:
    raise AssertionError("left to Dynamo")


def test_a_number_beside_a_tensor_gives_a_tensor() -> None:
    def body(tx: Any, x: Any, y: Any) -> Any:
        return tensor_bool._comparison(_unexpected, computed_number(tx, x), tx, y, "__lt__")

    found = trace(body, torch.tensor(2), torch.tensor([1, 2, 3]))
    assert found.tolist() == [False, False, True]
