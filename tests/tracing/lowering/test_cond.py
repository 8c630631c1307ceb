"""Only the arm taken runs, as an operator over two graphs; a trace calls the lowering directly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.models import objects
from bcmend.dynamo.values import constant, example_of
from bcmend.tracing.lowering.cond import by_cond, without_aliases
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.sites.refusal import Refusal
from tests.equivalence import assert_equivalent, call
from tests.tracing.plain_trace import arm, traced

YES, NO = torch.tensor(True), torch.tensor(False)
COND = torch.ops.higher_order.cond


def _row_or_double(tx: Any, predicate: Any, x: Any, index: Any) -> Any:
    then_arm = arm(tx, lambda: fx_graph.function(tx, torch.index_select, x, 0, index))
    else_arm = arm(tx, lambda: fx_graph.function(tx, torch.mul, x, 2))
    pairs = [Pair(then_arm.result, else_arm.result)]
    return by_cond(tx, predicate, then_arm, else_arm, pairs)[0]


def test_the_arm_that_is_not_taken_does_not_run() -> None:
    x, out_of_range = torch.tensor([1.0, 2.0]), torch.tensor([0, 9])
    found = traced(_row_or_double, NO, x, out_of_range)
    assert COND in found.targets
    assert torch.equal(found.run(NO, x, out_of_range)[0], 2 * x)
    assert torch.equal(found.run(YES, x, torch.tensor([1, 0]))[0], x.flip(0))
    with pytest.raises((IndexError, RuntimeError)):
        found.run(YES, x, out_of_range)


def test_a_side_without_a_value_returns_zeros_that_nobody_reads() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        then_arm = arm(tx, lambda: fx_graph.function(tx, torch.exp, x))
        else_arm = arm(tx, lambda: constant(None))
        return by_cond(tx, predicate, then_arm, else_arm, [Pair(then_arm.result, None)])[0]

    x = torch.ones(2)
    found = traced(step, YES, x)
    assert torch.equal(found.run(YES, x)[0], x.exp())
    assert torch.equal(found.run(NO, x)[0], torch.zeros(2))


def test_an_arm_may_return_what_it_was_given() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        then_arm, else_arm = arm(tx, lambda: x), arm(tx, lambda: fx_graph.method(tx, "exp", x))
        return by_cond(tx, predicate, then_arm, else_arm, [Pair(x, else_arm.result)])[0]

    x = torch.ones(2)
    found = traced(step, YES, x)
    (result,) = found.run(YES, x)
    assert torch.equal(result, x) and result.data_ptr() != x.data_ptr()


def test_integers_keep_their_dtype_while_gradients_are_recorded() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        then_arm = arm(tx, lambda: fx_graph.function(tx, torch.argsort, x))
        else_arm = arm(tx, lambda: fx_graph.method(tx, "long", x))
        pairs = [Pair(then_arm.result, else_arm.result)]
        return by_cond(tx, predicate, then_arm, else_arm, pairs)[0]

    x = torch.tensor([3.0, -1.0], requires_grad=True)
    found = traced(step, YES, x)
    assert found.run(YES, x)[0].tolist() == [1, 0]
    assert found.run(NO, x)[0].tolist() == [3, -1]
    assert found.run(NO, x)[0].dtype is torch.int64


def test_a_result_requires_gradients_only_if_one_side_does() -> None:
    flags = []

    def step(tx: Any, predicate: Any, x: Any) -> Any:
        def both(count: int) -> Any:
            product = fx_graph.function(tx, torch.mul, x, count)
            return compat.TupleVariable([product, fx_graph.method(tx, "detach", product)])

        then_arm, else_arm = arm(tx, lambda: both(2)), arm(tx, lambda: both(3))
        sides: Any = (then_arm.result, else_arm.result)
        pairs = [Pair(*each) for each in zip(*(side.items for side in sides), strict=True)]
        results = by_cond(tx, predicate, then_arm, else_arm, pairs)
        flags.extend(example_of(each).requires_grad for each in results)  # type: ignore[arg-type]
        return compat.TupleVariable(results)

    traced(step, YES, torch.ones(2, requires_grad=True))
    assert flags == [True, False]


def test_the_operator_reads_a_copy_of_what_is_changed_later() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 1)
        then_arm = arm(tx, lambda: fx_graph.method(tx, "add_", y, 1))
        else_arm = arm(tx, lambda: fx_graph.method(tx, "add_", y, 5))
        (outer,) = then_arm.effects.tensors
        pairs = [Pair(then_arm.result, else_arm.result)]
        (changed,) = by_cond(tx, predicate, then_arm, else_arm, pairs, [outer])
        return compat.TupleVariable([y, changed])

    x = torch.tensor([1.0, 2.0])
    found = traced(step, NO, x)
    assert torch.where in found.targets
    unchanged, changed = found.run(NO, x)
    assert torch.equal(unchanged, x) and torch.equal(changed, x + 5)


def test_a_size_that_an_arm_finds_out_is_refused() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        then_arm = arm(tx, lambda: fx_graph.function(tx, torch.nonzero, x))
        else_arm = arm(tx, lambda: constant(None))
        by_cond(tx, predicate, then_arm, else_arm, [Pair(then_arm.result, None)])

    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.raises(Refusal, match="size depends on data of the arm"),
    ):
        traced(step, YES, torch.ones(2))


def test_a_number_is_refused() -> None:
    def step(tx: Any, predicate: Any, x: Any) -> Any:
        size = objects.attribute_of(tx, x, "shape").items[0]
        assert isinstance(size, compat.SymNodeVariable)
        then_arm, else_arm = arm(tx, lambda: size), arm(tx, lambda: size)
        by_cond(tx, predicate, then_arm, else_arm, [Pair(size, size)])

    x = torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Refusal, match="a size computed inside an arm"):
        traced(step, YES, x)


@pytest.mark.parametrize("views", [1, 2])
def test_of_operands_that_share_memory_all_but_the_first_are_copied(views: int) -> None:
    given: list[Any] = []

    def step(tx: Any, x: Any, y: Any) -> Any:
        same = [fx_graph.method(tx, "view", x, -1).as_proxy() for _ in range(views)]
        given.extend(without_aliases(tx, [x.as_proxy(), y.as_proxy(), *same]))
        assert given[0] is not None and given[0].node is x.as_proxy().node
        return x

    x: Tensor = torch.ones(2)
    traced(step, x, torch.ones(2))
    assert [each.node.target for each in given[2:]] == ["clone"] * views
    assert given[1].node.op == "placeholder"


def test_an_arm_that_is_given_an_expression_compiles() -> None:
    def program(x: Tensor, labels: Tensor) -> Tensor:
        others = labels == 0
        count = min(3, int(others.sum().item()))
        hardest = x[others].topk(count).values if count > 0 else x[:1] * 0
        return hardest.sum()

    labels = [1, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]
    assert_equivalent(
        lambda: program,
        lambda: [call(torch.arange(6.0), torch.tensor(each)) for each in labels],
        training=True,
        backend="inductor",
    )
