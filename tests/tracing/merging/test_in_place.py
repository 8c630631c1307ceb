"""Changes in place inside arms: what is noticed of them, and that gradients survive them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

import bcmend
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import constant, example_of, fake_mode_of
from bcmend.tracing.effects.hazards import hazards_of
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.gradients.histories import saved_for_backward
from bcmend.tracing.merging.in_place import (
    InPlace,
    outer_form,
    plan_in_place,
    write_back,
)
from bcmend.tracing.sites.lifted_inputs import Entry
from bcmend.tracing.sites.refusal import Refusal
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.plain_trace import arm, traced

POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-3.0, 1.0, -2.0])


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def test_an_entry_notices_what_a_change_in_place_leaves() -> None:
    with FakeTensorMode():
        weight = torch.ones(3, requires_grad=True)
        plain, derived = torch.zeros(3), weight * 2
        entries = [Entry.of(plain), Entry.of(derived)]
        assert not any(each.history_changed or each.form_changed for each in entries)
        plain.add_(weight)
        assert entries[0].gained_gradients and entries[0].history_changed
        derived.unsqueeze_(0)
        assert entries[1].form_changed and not entries[1].gained_gradients


def test_a_change_without_gradients_leaves_the_history() -> None:
    with FakeTensorMode():
        derived = torch.ones(3, requires_grad=True) * 2
        entry = Entry.of(derived)
        with torch.no_grad():
            derived.mul_(2)
        assert not entry.history_changed


def test_what_a_backward_has_kept() -> None:
    x = torch.ones(3, requires_grad=True)
    kept, read = x * 1, x * 1
    result = kept.sin() + (read + 1)
    storages = {
        storage_of(each) for each in saved_for_backward([result.grad_fn]) if each is not None
    }
    assert storage_of(kept) in storages
    assert storage_of(read) not in storages
    with torch.no_grad():
        kept.add_(1)
    found = list(saved_for_backward([result.grad_fn]))
    assert storage_of(kept) in {storage_of(each) for each in found if each is not None}
    assert all(each is not None for each in found)


def test_what_a_backward_has_freed_is_not_known() -> None:
    result = torch.ones(3, requires_grad=True).sin()
    result.sum().backward()
    assert list(saved_for_backward([result.grad_fn])) == [None]


def test_what_a_backward_has_kept_of_a_list() -> None:
    places = torch.arange(3)
    result = torch.ones(2, 3, requires_grad=True)[:, places]
    places.add_(0)
    found = list(saved_for_backward([result.grad_fn]))
    kept = {None if each is None else storage_of(each) for each in found}
    assert kept == {None, storage_of(places)}  # that of the first dimension was not given


class Scaled(nn.Module):
    """Reads a buffer before, in and after the branch that changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        before = x * (self.scale * 2)
        if x.sum() > 0:
            x = x * (self.scale * 3)
            self.scale.mul_(1.5)
            x = x * (self.scale + 1)
        return before + x * (self.scale + 2)


class Normalised(nn.Module):
    """Uses one normalisation before and in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(torch.stack([x, x * x, x.sin()]))
        if x.sum() > 0:
            rows = self.norm(rows * rows + rows)
        return rows


def _gradients(program: nn.Module, call: object) -> list[Tensor]:
    """Call twice on each side and go backward once through all, as a siamese network does."""
    inputs = [each.clone().requires_grad_() for each in (POSITIVE, NEGATIVE, POSITIVE, NEGATIVE)]
    total = sum(call(each).square().sum() for each in inputs)  # type: ignore[operator]
    total.backward()
    return [*(each.grad for each in inputs), *(each.clone() for each in program.buffers())]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("make", [Scaled, Normalised])
def test_a_backward_reads_what_was_there_before_the_change(
    make: type[nn.Module], backend: str
) -> None:
    eager, mended = make(), make()
    call = bcmend.compile(mended, backend=backend, fullgraph=True)
    for one, other in zip(_gradients(eager, eager), _gradients(mended, call), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def _refusal(program: object, *inputs: Tensor) -> str:
    policy = bcmend.Policy(numbers="graph")  # else a graph is made for each truth of the condition
    bcmend.compile(program, policy=policy, backend="eager")(*inputs)
    (site,) = bcmend.report(program).sites
    return f"{site.refusal}: {site.detail}"


def _reads(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    head = y[:2]
    if x.sum() > 0:
        y.add_(1)
        x = x + head.sum()
    return x + y, head


def _changes_one_view_on_each_side(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    head, tail = y[:2], y[1:]
    if x.sum() > 0:
        head.add_(1)
    else:
        tail.mul_(2)
    return y, head, tail


def _changes_rows_and_columns(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clone().view(3, 1).expand(3, 2).contiguous()
    row, column = y[0], y[:, 1]
    if x.sum() > 0:
        row.zero_()
        z = column.clone()
    else:
        column.copy_(x)
        z = row.sum() + x
    return y, z, row + 1


def _transposes(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    across = y.view(3, 1).t()
    if x.sum() > 0:
        across.add_(1)
        y.mul_(2)
        z = across + y
    else:
        z = across * 1
    return z, y


def _changes_items_that_lie_between_one_another(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.cat([x, x, x])
    apart = y.as_strided((2, 2), (4, 3))
    if x.sum() > 0:
        apart.mul_(2.0)
    else:
        apart.add_(1.0)
    return apart * 1, y


def _signs() -> list[Call]:
    return [call(torch.tensor(row)) for row in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0])]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "program",
    [
        _reads,
        _changes_one_view_on_each_side,
        _changes_rows_and_columns,
        _changes_items_that_lie_between_one_another,
        _transposes,
    ],
)
def test_views_of_one_tensor_are_changed_through_it(
    program: object, backend: str, training: bool
) -> None:
    assert_equivalent(lambda: program, _signs, backend=backend, training=training)


def test_another_tensor_of_the_same_memory_is_refused_where_an_arm_leaves_it() -> None:
    def leaves(x: Tensor) -> Tensor:
        y = x * 2
        head = y[:3]
        z = x
        if x.sum() > 0:
            y.add_(1)
            z = head
        return z + y

    assert "leaves another of its memory" in _refusal(leaves, POSITIVE)


def test_a_tensor_that_overlaps_itself_is_refused() -> None:
    def program(x: Tensor) -> Tensor:
        y = (x[:1] * 2).expand(3)
        if x.sum() > 100:
            y.add_(1)
        return y + 1

    assert "overlaps itself" in _refusal(program, POSITIVE)


def test_a_view_of_a_parameter_is_changed_as_little_as_in_eager_execution() -> None:
    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            part = self.weight[:2]
            if x.sum() > 100:
                part.add_(1)
            return x * self.weight

    program = bcmend.compile(Program(), backend="eager", fullgraph=True)
    assert program(POSITIVE).equal(POSITIVE)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        program(POSITIVE * 100)


def _plan(tx: Any, *changes: Callable[[], Any]) -> tuple[tuple[Any, Any], list[InPlace]]:
    """Trace two arms and plan what they change in place."""
    arms = arm(tx, changes[0]), arm(tx, changes[1])
    hazards = [hazards_of(each.graph.nodes, fake_mode_of(tx)) for each in arms]
    return arms, plan_in_place(tx, arms, hazards)


def _add(tx: Any, target: Any, result: Any = None) -> Callable[[], Any]:
    """Return an arm that adds one to a tensor in place, and returns `result`."""

    def compute() -> Any:
        fx_graph.method(tx, "add_", target, 1)
        return constant(None) if result is None else result

    return compute


def _nothing() -> Any:
    return constant(None)


def test_a_change_on_one_side_is_planned_with_what_each_side_leaves() -> None:
    def step(tx: Any, x: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 2)
        arms, changes = _plan(tx, _add(tx, y), _nothing)
        (change,) = changes
        assert change.outer.node is y.as_proxy().node
        assert change.pair.then_value.as_proxy().node.graph is arms[0].graph
        assert change.pair.else_value.as_proxy().node is y.as_proxy().node
        assert change.counted and not change.in_history
        return x

    traced(step, POSITIVE)


def test_arms_that_change_nothing_need_no_plan() -> None:
    def step(tx: Any, x: Any) -> Any:
        _, changes = _plan(tx, lambda: fx_graph.function(tx, torch.sin, x), _nothing)
        assert changes == []
        return x

    traced(step, POSITIVE)


def test_what_was_planned_is_written_back_as_a_copy() -> None:
    def step(tx: Any, x: Any, z: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 2)
        _, changes = _plan(tx, _add(tx, y), _nothing)
        write_back(tx, changes, [z])
        return compat.TupleVariable([x, y, z])

    found = traced(step, POSITIVE, NEGATIVE)
    assert found.targets.count("copy_") == 1
    assert found.result[1].equal(NEGATIVE)


def test_data_is_changed_without_being_counted() -> None:
    def step(tx: Any, x: Any, z: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 2)

        def change() -> Any:
            data = fx_graph.function(tx, compat._get_data_attr, y)
            fx_graph.method(tx, "add_", data, 1)
            return constant(None)

        _, changes = _plan(tx, change, _nothing)
        assert [each.counted for each in changes] == [False]
        before = example_of(y)._version
        write_back(tx, changes, [z])
        assert example_of(y)._version > before, "what watches the tensor has to notice"
        return compat.TupleVariable([x, y, z])

    found = traced(step, POSITIVE, NEGATIVE)
    assert found.result[1].equal(NEGATIVE)


def test_a_tensor_that_a_backward_has_saved_is_refused() -> None:
    def step(tx: Any, x: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 2)
        fx_graph.function(tx, torch.sin, y)  # saves y
        with pytest.raises(Refusal, match="an earlier operation has kept"):
            _plan(tx, _add(tx, y), _nothing)
        with torch.no_grad():
            assert len(_plan(tx, _add(tx, y), _nothing)[1]) == 1
        return x

    traced(step, POSITIVE.clone().requires_grad_())


def test_a_change_of_form_is_refused() -> None:
    def step(tx: Any, x: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 2)

        def change() -> Any:
            fx_graph.method(tx, "unsqueeze_", y, 0)
            return constant(None)

        with pytest.raises(Refusal, match="another form in place"):
            _plan(tx, change, _nothing)
        return x

    traced(step, POSITIVE)


def test_leaving_another_tensor_of_the_same_memory_is_refused() -> None:
    def step(tx: Any, x: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 2)
        head = fx_graph.method(tx, "view", y, 3)
        with pytest.raises(Refusal, match="leaves another of its memory"):
            _plan(tx, _add(tx, y, head), _nothing)
        return x

    traced(step, POSITIVE)


def test_a_tensor_under_another_name_is_found_in_the_main_trace() -> None:
    def step(tx: Any, x: Any) -> Any:
        y = fx_graph.function(tx, torch.mul, x, 2)
        found = arm(tx, lambda: fx_graph.method(tx, "add_", y, 1))
        changed = found.result
        assert changed.as_proxy().node.graph is found.graph
        outer: Any = outer_form(changed, [found])
        assert outer.as_proxy().node is y.as_proxy().node
        assert outer_form(x, [found]) is x
        one = constant(1)
        assert outer_form(one, [found]) is one
        return x

    traced(step, POSITIVE)


class _BehindABreak(nn.Module):
    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.weight, self.change = nn.Parameter(torch.arange(3.0)), change

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        torch._dynamo.graph_break()
        if x.sum() > 0:
            self.change(self.weight)
        return y * x


def _double(weight: Tensor) -> None:
    with torch.no_grad():
        weight.mul_(2)


@pytest.mark.parametrize("change", [_double, lambda weight: weight.data.mul_(2)])
def test_a_parameter_that_an_operation_before_a_break_has_kept(
    change: Callable[[Tensor], Any],
) -> None:
    """The backward of that operation works where the side is not taken, as with stock torch."""
    model = _BehindABreak(change)
    compiled = torch.compile(bcmend.patch(model), backend="aot_eager")
    for expected in (torch.tensor([9.0, 1.0, 4.0]), torch.tensor([18.0, 2.0, 8.0])):
        x = NEGATIVE.clone().requires_grad_()
        compiled(x).sum().backward()
        assert model.weight.grad is not None
        assert torch.equal(model.weight.grad, expected)
    (site,) = bcmend.report(model).sites
    assert site.detail == "a parameter is changed in place behind a graph break"


def _over_itself(y: Tensor) -> None:
    y[1:] = y[:-1]


def _by_a_method(y: Tensor) -> None:
    y[:2].copy_(y[1:])


def _added(y: Tensor) -> None:
    y[1:] += y[:-1]


def _an_item_in_many_places(y: Tensor) -> None:
    y[0].expand(3).add_(1)


def _another_part(y: Tensor) -> None:
    y[:1] = y[2:]


def _a_copy(y: Tensor) -> None:
    y[1:] = y[:-1].clone()


def _itself(y: Tensor) -> None:
    y.add_(y)


@pytest.mark.parametrize(
    ("write", "is_mended"),
    [
        (_over_itself, False),
        (_by_a_method, False),
        (_added, False),
        (_an_item_in_many_places, False),
        (_another_part, True),
        (_a_copy, True),
        (_itself, True),
    ],
)
def test_a_write_that_eager_execution_refuses_is_made_by_its_own_side_alone(
    write: Callable[[Tensor], None], is_mended: bool
) -> None:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() > 0:
            write(y)
        return y

    def outcome(called: Callable[[Tensor], Tensor], x: Tensor) -> Any:
        try:
            return called(x).tolist()
        except RuntimeError as error:
            return str(error)

    compiled = torch.compile(bcmend.patch(program), backend="eager")
    for x in (NEGATIVE, POSITIVE, NEGATIVE):
        assert outcome(compiled, x) == outcome(program, x)
    assert bool(bcmend.report(program).mended) is is_mended
