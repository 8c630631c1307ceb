"""What an operation of an arm says of a size holds where the arm is taken, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Proxy
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.functions import FloorDiv, Max, Min, TruncToInt
from torch.utils._sympy.value_ranges import ValueRanges

from bcmend.dynamo import shape_env
from bcmend.tracing.entry import primitives  # noqa: F401  # the second one installs the first
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _is_known(number: Any, lower: int) -> bool:
    return bool(number.node.shape_env.bound_sympy(number.node.expr).lower >= lower)


def test_an_assertion_is_taken_back_and_made_again() -> None:
    environment = ShapeEnv()
    number = environment.create_unbacked_symint()
    with shape_env.taken_back(environment) as found:
        torch._check(number >= 5)
        assert _is_known(number, 5)
    assert len(found) == 1
    assert not _is_known(number, 5)
    assert not any(environment.deferred_runtime_asserts.values())
    tx = SimpleNamespace(output=SimpleNamespace(shape_env=environment))
    shape_env.assert_again(tx, found)
    assert _is_known(number, 5)
    assert any(environment.deferred_runtime_asserts.values())


def test_a_number_that_was_asserted_to_be_one_is_unknown_again() -> None:
    environment = ShapeEnv()
    number = environment.create_unbacked_symint()
    with shape_env.taken_back(environment):
        torch._check(number == 12)
        assert number.node.expr == 12  # which the number itself remembers
    assert number.node.expr.is_Symbol
    with pytest.raises(GuardOnDataDependentSymNode):
        bool(number == 12)


def test_what_was_asserted_before_stays() -> None:
    environment = ShapeEnv()
    number = environment.create_unbacked_symint()
    torch._check(number >= 2)
    with shape_env.taken_back(environment) as found:
        torch._check(number >= 1)
    assert found == []
    assert _is_known(number, 2)


def test_what_is_asserted_of_a_number_of_the_block_stays() -> None:
    environment = ShapeEnv()
    with shape_env.taken_back(environment) as found:
        number = environment.create_unbacked_symint()
        torch._check(number >= 3)
    assert found == []
    assert _is_known(number, 3)


def test_everything_is_taken_back_also_of_numbers_made_since() -> None:
    environment = ShapeEnv()
    older = environment.create_unbacked_symint()
    knowledge = shape_env.Knowledge(environment)
    newer = environment.create_unbacked_symint()
    torch._check(older >= 5)
    torch._check(newer >= 3)
    knowledge.take_back_all()
    assert not any(environment.deferred_runtime_asserts.values())
    assert environment.num_deferred_runtime_asserts == 0
    assert not _is_known(older, 5)


def test_only_what_was_asserted_since_is_returned() -> None:
    environment = ShapeEnv()
    number = environment.create_unbacked_symint()
    torch._check(number >= 2)
    knowledge = shape_env.Knowledge(environment)
    assert knowledge.take_back_older() == []
    torch._check(number >= 5)
    (found,) = knowledge.take_back_older()
    assert found.expr.free_symbols == {number.node.expr}
    assert found.expr.subs(number.node.expr, 5) and not found.expr.subs(number.node.expr, 4)
    assert _is_known(number, 2) and not _is_known(number, 3)


def test_facts_do_not_hold_inside_a_block_and_do_behind_it() -> None:
    environment = SimpleNamespace()
    shape_env.FACTS.put(environment, ["fact"])
    with pytest.raises(KeyError), shape_env.without_facts(environment):
        assert shape_env.FACTS.of(environment) == []
        raise KeyError
    assert shape_env.FACTS.of(environment) == ["fact"]


def test_symbols_of_numbers_tensors_and_several_of_them() -> None:
    environment = ShapeEnv()
    one, other = (environment.create_unbacked_symint() for _ in range(2))
    symbols = {one.node.expr, other.node.expr}
    assert shape_env.symbols_in(one) == {one.node.expr}
    assert shape_env.symbols_in((one, [other, 3, None])) == symbols
    assert shape_env.symbols_in(one + other) == symbols
    assert shape_env.symbols_in(torch.ones(2)) == shape_env.symbols_in("text") == set()
    with FakeTensorMode(shape_env=environment):
        assert shape_env.symbols_in(torch.empty(one, 2)) == {one.node.expr}


@pytest.mark.parametrize(
    "of",
    [
        lambda number: math.ceil(torch.sym_float(number) / 2.5),
        lambda number: math.floor(number / 2),
        lambda number: math.trunc(number / 3),
        lambda number: round(number / 3),
        lambda number: math.ceil(torch.sym_float(number) / 4) * (number // 2),
    ],
)
def test_what_a_number_is_in_a_graph_is_what_it_is_in_python(of: Callable[[Any], Any]) -> None:
    number = ShapeEnv().create_unbacked_symint()
    graph = Graph()
    given = Proxy(graph.placeholder("given"), GraphAppendingTracer(graph))
    graph.output(shape_env.computed_of({number.node.expr: given}, of(number).node.expr).node)
    module = GraphModule({}, graph)
    for value in (1, 2, 3, 7):
        assert module(value) == of(value)
        assert shape_env.computed_of({number.node.expr: value}, of(number).node.expr) == of(value)


def _calls() -> list[Call]:
    rows = ([1.0, -2, 3, 4], [-1.0, -2, -3, -4], [-1.0, -2, 3, -4], [1.0, 2, 3, 4])
    return [call(torch.tensor(each)) for each in rows]


def _in_an_arm(x: Tensor) -> Tensor:
    places = torch.nonzero(x > 0)
    y = x * 2
    if len(places) > 1:
        y = y + places[1]
    if len(places) > 2:
        y = y * places[2] - places[0]
    return y


def _in_both_arms(x: Tensor) -> Tensor:
    places = torch.nonzero(x > 0)
    if len(places) > 1:
        return x + places[1]
    if len(places) == 1:
        return x - places[0]
    return x * 2


def _in_turns(x: Tensor) -> Tensor:
    places = torch.nonzero(x > 0)
    y = x * 2
    for turn in range(len(places)):
        y = y + places[turn] * (turn + 1)
    return y


def _by_a_flag(x: Tensor, flag: Tensor) -> Tensor:
    x.add_(1)  # of more bytes than are put back: the call cannot be made again
    places = torch.nonzero(x[:4] > 0)
    y = x[:4] * 2
    if flag > 0:
        y = y + places[1]
    return y


def _flags() -> list[Call]:
    rows = (([1.0, 1, 1, 1], 1), ([-2.0, -2, -2, -2], 0), ([-2.0, 1, -2, -2], 0))
    return [call(torch.tensor([*row, *[0.0] * 2**20]), torch.tensor(flag)) for row, flag in rows]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_arm_that_says_more_than_its_condition(backend: str) -> None:
    assert_equivalent(lambda: _by_a_flag, _flags, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", [_in_an_arm, _in_both_arms, _in_turns])
def test_nothing_is_asserted_where_the_arm_is_not_taken(
    program: Callable[..., Any], backend: str
) -> None:
    assert_equivalent(lambda: program, _calls, backend=backend)


SIZE = sympy.Symbol("u", integer=True)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (SIZE > 1, True),
        (SIZE >= 2, True),
        (SIZE >= 0, True),
        (sympy.Lt(1, SIZE), True),
        (SIZE < 1, False),
        (SIZE <= 1, False),
        (sympy.Gt(2, SIZE), False),
        (sympy.Ne(SIZE, 7), True),
        (sympy.Eq(SIZE, 7), False),
        (SIZE > 2, None),
        (SIZE < 3, None),
        (SIZE - 5 >= 0, None),
        (SIZE - 1 >= 1, True),
        (SIZE - 1 >= 0, True),
        (SIZE + 8 >= 1, True),
        (2 * SIZE + sympy.Symbol("w", integer=True) + 8 < 1, False),
        (8 - SIZE >= 1, None),
        (SIZE + 8 <= 5, False),
        (SIZE * sympy.Symbol("w", integer=True) > 0, True),
        (sympy.Symbol("v", integer=True) > SIZE, None),
        (sympy.Symbol("v") > 1, None),
        (sympy.true, None),
    ],
)
def test_what_is_assumed_of_a_comparison(question: Any, answer: bool | None) -> None:
    assert shape_env.holds_for_most(question) is answer


OTHER: Any = sympy.Symbol("w", integer=True)
TRUNCATED = TruncToInt(sympy.Symbol("f", real=True))


@pytest.mark.parametrize(
    ("known", "question", "answer"),
    [
        ([TRUNCATED + 5 >= 0], sympy.Eq(TRUNCATED + 8, 0), False),
        ([TRUNCATED + 5 >= 0], sympy.Ne(TRUNCATED + 8, 0), True),
        ([TRUNCATED + 5 >= 0], sympy.Eq(TRUNCATED + 4, 0), None),
        ([TRUNCATED + 5 >= 0], TRUNCATED + 4 >= 0, None),
        ([TRUNCATED + 5 > 0], TRUNCATED + 4 >= 0, True),
        ([SIZE + OTHER + 7 >= 0], SIZE + OTHER + 8 > 0, True),
        ([SIZE + OTHER + 7 >= 0], SIZE + OTHER < -7, False),
        ([SIZE + OTHER + 7 >= 0], SIZE + OTHER < -6, None),
        ([SIZE + 7 >= 0, OTHER + 4 >= 0], (SIZE + 8) * (OTHER + 5) > 0, True),
        ([SIZE + 7 >= 0, OTHER + 4 >= 0], (SIZE + 8) * (OTHER + 5) > 1, None),
        ([SIZE + 7 >= 0], FloorDiv(SIZE + 9, 2) >= 1, True),
        ([sympy.Ne(SIZE - OTHER, 0)], sympy.Eq(OTHER, SIZE), False),
        ([sympy.Ne(SIZE, 0)], SIZE > 0, None),
        ([sympy.Le(SIZE, OTHER)], SIZE <= OTHER + 1, True),
        ([sympy.Eq(SIZE, OTHER + 2)], SIZE > OTHER, True),
        ([SIZE < 3, SIZE > 5], sympy.Eq(SIZE, OTHER), None),
        ([], sympy.Eq(Min(10, Max(SIZE, OTHER)) - SIZE, Max(0, OTHER - SIZE)), None),
        (
            [],
            sympy.Eq(
                FloorDiv(Min(10, Max(SIZE, OTHER)) - Min(10, SIZE), 2),
                FloorDiv(Max(0, Min(10, OTHER) - Min(10, SIZE)), 2),
            ),
            True,
        ),
        ([SIZE + 7 >= 0], sympy.Symbol("v", real=True) + SIZE > -7, None),
        ([], sympy.true, None),
    ],
)
def test_what_follows_from_comparisons(
    known: list[Any], question: Any, answer: bool | None
) -> None:
    ranges = {each: ValueRanges.unknown_int() for each in (SIZE, OTHER)}
    ranges |= {each: ValueRanges.unknown() for each in TRUNCATED.free_symbols}
    found = shape_env.follows_from(known, question, ranges)
    assert found == answer
    assert (found is None) is (answer is None)
