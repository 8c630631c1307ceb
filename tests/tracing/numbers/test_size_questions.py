"""Unbacked sizes: captured, and never something else than in eager execution."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import bcmend
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.shape_env import is_of_arm, of_extremes, traced_again
from bcmend.tracing.numbers import size_questions
from corpus.patterns.dynamic.sizes import PATTERNS
from corpus.patterns.pattern import Pattern, run, wrong_with
from tests.equivalence import (
    Call,
    Comparison,
    assert_equivalent,
    call,
    compare,
    fresh,
    leave_unpatched,
    run_compiled,
)
from tests.tracing.plain_trace import traced

Program = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _vectors(*rows: Sequence[float]) -> Callable[[], list[Call]]:
    return lambda: [call(torch.tensor(row)) for row in rows]


MANY, NONE, ONE = [1.0, -2.0, 3.0], [-1.0, -2.0, -3.0], [-1.0, 2.0, -3.0]


def _compared(program: Program, calls: Callable[[], list[Call]], **options: Any) -> Comparison:
    found = compare(lambda: program, calls, **options)
    assert (found.eager_differences, found.differences) == ((), ())
    return found


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda each: each.name)
def test_one_graph_without_being_asked_for(pattern: Pattern) -> None:
    assert wrong_with(pattern, run(pattern, fullgraph=False), training=False) == []


def test_the_configuration_of_torch_stays_as_it_is() -> None:
    def program(x: Tensor) -> Tensor:
        return x[x > 0] * 2

    before = run_compiled(lambda: program, _vectors(MANY), fullgraph=False, way=leave_unpatched)
    assert before.graphs != 1, "stock Dynamo breaks the graph here"
    assert _compared(program, _vectors(MANY, NONE), fullgraph=False).graphs == 1
    assert not torch._dynamo.config.capture_dynamic_output_shape_ops
    after = run_compiled(lambda: program, _vectors(MANY), fullgraph=False, way=leave_unpatched)
    assert after.graphs == before.graphs


def _squeezed(x: Tensor) -> Tensor:
    return x[x > 0].squeeze() + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_size_that_is_assumed_not_to_be_one(backend: str, fullgraph: bool) -> None:
    calls = _vectors(MANY, ONE, NONE, ONE, MANY)
    found = _compared(_squeezed, calls, backend=backend, fullgraph=fullgraph)
    assert (found.graphs == 1) is fullgraph, "where graphs may break, they do from then on"


@pytest.mark.parametrize("dimension", [0, -1])
def test_a_dimension_that_is_assumed_not_to_be_one(dimension: int) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.squeeze(x[x > 0][:, None], dimension) * 2

    _compared(program, _vectors(MANY, ONE, NONE))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("reduce", [torch.max, torch.argmin, lambda x: x.amax(0)])
def test_nothing_to_reduce_is_an_error(reduce: Callable[[Tensor], Tensor], backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        return reduce(x[x > 0])

    _compared(program, _vectors(MANY, ONE, NONE), backend=backend)


@pytest.mark.slow
def test_nothing_to_reduce_is_an_error_with_inductor() -> None:
    def program(x: Tensor) -> Tensor:
        return x[x > 0].max()

    _compared(program, _vectors(MANY, NONE), backend="inductor")


def test_a_graph_that_cannot_be_thrown_away_assumes_nothing() -> None:
    def make() -> Program:
        def program(x: Tensor, large: Tensor) -> Tensor:
            large.add_(1)
            return _squeezed(x)

        return program

    def calls() -> list[Call]:
        return [call(torch.tensor(row), torch.zeros(2**17)) for row in (MANY, ONE, NONE)]

    found = compare(make, calls, fullgraph=False)
    assert (found.eager_differences, found.differences) == ((), ())
    assert found.graphs > 1


def test_a_number_that_is_no_size_is_an_error() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.zeros(int(x.sum())) + 1

    _compared(program, _vectors([2.0, 1.0], [0.0, 0.0], [-1.0, -1.0]))


def test_what_the_condition_of_an_arm_says_of_a_size() -> None:
    def program(x: Tensor) -> Tensor:
        kept = x[x > 0]
        if len(kept) > 0:
            convolved = functional.conv1d(kept.view(-1, 1, 1), torch.ones(2, 1, 1))
            x = x + (convolved.mean() if len(kept) else x.sum())
        return x * 2

    found = _compared(program, _vectors(MANY, ONE, NONE))
    assert found.report is not None
    assert len(found.report.mended) == 1, "the second question has its answer"


def test_what_a_check_says_of_a_size() -> None:
    def program(x: Tensor) -> Tensor:
        kept = x[x > 0]
        if len(kept) == 0:
            raise ValueError("nothing is left")
        return functional.conv1d(kept.view(-1, 1, 1), torch.ones(2, 1, 1))

    _compared(program, _vectors(MANY, ONE, NONE), fullgraph=False)


def test_a_list_of_sizes_is_compared_with_numbers_in_tensors() -> None:
    def program(x: Tensor) -> Tensor:
        count = (x > 0).sum()
        found = torch.zeros(count, 2)
        assert list(found.shape) == [count, 2]
        if x.sum() > 0:
            found = found + 1
        return found.sum() + x

    _compared(program, _vectors(MANY, ONE, NONE))


def test_a_size_beside_a_number_in_a_tensor_is_a_tensor() -> None:
    def program(x: Tensor) -> Tensor:
        kept = x[x > 0]
        return (kept.shape[0] > x.sum()) | (kept.shape[0] == x.sum().long())

    _compared(program, _vectors(MANY, ONE, NONE))


def test_a_size_that_an_arm_finds_out_is_not_merged() -> None:
    def program(x: Tensor) -> Tensor:
        places = torch.zeros(1, dtype=torch.int64)
        if x.sum() > 0:
            places = x.nonzero()[:, 0]
        return x[places] * 2

    found = _compared(program, _vectors(MANY, ONE, NONE), fullgraph=False)
    assert found.report is not None
    assert any(site.status == "refused" for site in found.report.sites)


def _compared_with(tx: Any, number: Any, comparison: Any, other: int) -> Any:
    proxy = tx.output.create_proxy("call_function", comparison, (number.as_proxy(), other), {})
    return compat.wrap_fx_proxy(tx, proxy)


def _with_a_number(check: Callable[[Any, Any], None]) -> None:
    """Call `check` in a trace, with an unbacked number."""

    def step(tx: Any, x: Any) -> Any:
        number = fx_graph.function(tx, torch.add, x, 1).call_method(tx, "item", [], {})
        check(tx, number)
        return x

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        traced(step, torch.tensor(3))


def test_in_an_arm_the_condition_holds_and_what_follows_from_it() -> None:
    def check(tx: Any, number: Any) -> None:
        above_two = _compared_with(tx, number, operator.gt, 2)
        above_one = _compared_with(tx, number, operator.gt, 1)
        above_five = _compared_with(tx, number, operator.gt, 5)
        is_zero = _compared_with(tx, number, operator.eq, 0)
        for truth, implied in ((True, [above_two, above_one, is_zero]), (False, [above_two])):
            with size_questions.holding(tx, above_two, truth):
                assert all(map(size_questions.is_implied, implied))
                assert not size_questions.is_implied(above_five) or not truth
                assert size_questions.is_implied(above_one) is truth
            assert not any(map(size_questions.is_implied, implied)), "the arm has ended"

    _with_a_number(check)


def test_a_fact_that_is_noted_lasts() -> None:
    def check(tx: Any, number: Any) -> None:
        is_zero = _compared_with(tx, number, operator.eq, 0)
        size_questions.note_fact(tx, is_zero, False)
        assert size_questions.is_implied(is_zero)
        assert not size_questions.is_implied(_compared_with(tx, number, operator.gt, 0))

    _with_a_number(check)


def test_the_truth_of_a_number_is_that_it_is_not_zero() -> None:
    def check(tx: Any, number: Any) -> None:
        with size_questions.holding(tx, number, True):
            assert size_questions.is_implied(_compared_with(tx, number, operator.eq, 0))

    _with_a_number(check)


def test_questions_of_the_same_form_are_one() -> None:
    environment = compat.ShapeEnv()
    one, two = (environment.create_unbacked_symint().node.expr for _ in range(2))
    assert size_questions._form(one > 3) == size_questions._form(two > 3)
    assert size_questions._form(one > 3) != size_questions._form(two > 4)
    assert size_questions._form(one > two) != size_questions._form(two > one)


def test_a_size_is_only_ruled_out_where_that_is_known() -> None:
    def check(tx: Any, number: Any) -> None:
        assert size_questions.rule_out(tx, 3, 1), "a size that is no symbol has guards"
        size = number.sym_num
        assert not size_questions.rule_out(tx, size, 1), "nothing may be asserted here"
        with size_questions.holding(tx, _compared_with(tx, number, operator.gt, 1), True):
            assert size_questions.rule_out(tx, size, 1)
            assert not size_questions.rule_out(tx, size, 2)

    _with_a_number(check)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (lambda n, least, most: most(1, n) >= n, True),
        (lambda n, least, most: n <= most(1, n), True),
        (lambda n, least, most: n >= least(5, n), True),
        (lambda n, least, most: least(5, n) > n, False),
        (lambda n, least, most: n > most(n, 3), False),
        (lambda n, least, most: most(1, n) >= n + 1, None),
        (lambda n, least, most: least(n, n + 2) >= n - 1, True),
        (lambda n, least, most: most(1, n) >= 2, None),
    ],
)
def test_what_is_certain_of_the_greatest_and_the_least_of_some_numbers(
    question: Callable[..., Any], expected: bool | None
) -> None:
    environment = compat.ShapeEnv()
    symbol = environment.create_unbacked_symint().node.expr
    asked = question(symbol, compat.Min, compat.Max)
    found = of_extremes(environment, asked)
    assert (None if found is None else bool(found)) is expected


def test_what_an_arm_says_of_its_own_numbers_it_says_again_in_later_stages() -> None:
    environment = compat.ShapeEnv()
    outer = environment.create_unbacked_symint().node.expr
    assert not is_of_arm(environment, outer)
    with traced_again(environment):
        assert not is_of_arm(environment, outer)
        own = environment.create_unbacked_symint().node.expr
        assert is_of_arm(environment, own)
        with traced_again(environment):
            assert not is_of_arm(environment, own)
        assert is_of_arm(environment, own)
    assert not is_of_arm(environment, own)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_side_that_reads_a_size_twice_is_traced_again_with_gradients(backend: str) -> None:
    def program(x: Tensor, counts: Tensor) -> Tensor:
        if x.sum() > 0:
            most = int(counts.max())
            rows = torch.arange(most) < counts.unsqueeze(-1)
            padded = x.new_zeros(counts.numel(), most)
            x = x * (padded + rows).sum()
        return x * 2

    def outcome(called: Callable[..., Tensor]) -> list[Tensor]:
        found = []
        for sign in (1.0, -1.0):
            x = (torch.ones(3) * sign).requires_grad_()
            result = called(x, torch.tensor([2, 3]))
            result.sum().backward()
            assert x.grad is not None
            found += [result.detach(), x.grad]
        return found

    torch._dynamo.reset()
    expected = outcome(program)
    found = outcome(torch.compile(bcmend.patch(program), backend=backend, fullgraph=True))
    bcmend.unpatch()
    torch.testing.assert_close(found, expected)


def _rows_joined(x: Tensor) -> Tensor:
    first = x[:, 0]
    if (first == 0).any():
        raise ValueError("a zero")
    places = torch.cat([(first > 0).nonzero().flatten(), (first < 0).nonzero().flatten()])
    return torch.relu(x[places].reshape(-1, 4)).sum(0)


def test_rows_of_a_number_that_the_data_decide_are_joined_with_inductor() -> None:
    def calls() -> Iterator[Call]:
        x = torch.arange(16.0).reshape(8, 2) - 7
        yield from (call(each) for each in (x, -x, x + 30, x - 30))

    assert_equivalent(lambda: fresh(_rows_joined), calls, backend="inductor")
