"""Results of a branch or loop are one object, or share memory, where they do in eager execution.

Each program is called six times, its sides in turn. What it changes, compares or hands out later
shows which of its values are one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bcmend.tracing.loops.loop_results import TOLD_APART
from tests.equivalence import Call, assert_equivalent, call

Program = Callable[[], Any]

SCALES = (1, -1, 1, -1, 2, -3)


def _inputs() -> list[Call]:
    return [call(torch.tensor([1.0, 2.0]) * scale) for scale in SCALES]


# One object on one side


def changed_later() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        a.add_(1)
        return a.sum(), b.sum()

    return program


def changed_by_an_index() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a[1:]
        else:
            a, b = x * 3, x[1:] * 3
        b[:] = 9
        return a.sum(), b.sum()

    return program


def written_by_out() -> Any:
    def program(x: Tensor) -> Any:
        x = x.detach()
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        torch.add(x, x, out=a)
        return a.sum(), b.sum()

    return program


def changed_without_gradients() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        with torch.no_grad():
            a.data.add_(1)
        return a.sum(), b.sum()

    return program


def residual() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            hidden = x * 2
            rest = hidden
        else:
            hidden = x * 3
            rest = hidden.clone()
        hidden += 1
        return hidden.sum() + rest.sum() * 2

    return program


def another_name_of_an_older_tensor() -> Any:
    def program(x: Tensor) -> Any:
        y = x * 1
        out = y if x.sum() > 0 else x * 2
        out.add_(1)
        return out.sum(), y.sum()

    return program


def in_a_branch_in_an_arm() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            if x.max() > 3:
                a = x * 2
                b = a
            else:
                a = x * 3
                b = a * 1
        else:
            a, b = x * 4, x * 5
        a.mul_(2)
        return a.sum(), b.sum()

    return program


def older_in_a_branch_in_an_arm() -> Any:
    def program(x: Tensor) -> Any:
        y = x + 0
        if x.max() > 1.5:
            z = y if x.max() > 3 else y * 2
        else:
            z = y * 3
        z.add_(1)
        return z.sum(), y.sum()

    return program


def in_two_branches_after_each_other() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        c = a if x.max() > 3 else x * 7
        c.add_(1)
        return a.sum(), b.sum(), c.sum()

    return program


def in_a_loop() -> Any:
    def program(x: Tensor) -> Any:
        h, found = x * 1, []
        for number in range(3):
            if h.sum() > 0:
                h = h * 2
                rest = h
            else:
                h = h - 1
                rest = h * 1
            h.add_(number)
            found.append(rest.sum())
        return h.sum(), torch.stack(found)

    return program


def in_a_function_and_a_try() -> Any:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        if x.sum() > 0:
            y = x * 2
            return y, y
        return x * 3, x * 4

    def program(x: Tensor) -> Any:
        try:
            a, b = both(x)
            a.add_(1)
        finally:
            x = x + 1
        return (a - b).sum() + x.sum()

    return program


@dataclasses.dataclass
class _Two:
    one: Tensor
    other: Tensor


def fields() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            y = x * 2
            two = _Two(y, y)
        else:
            two = _Two(x * 3, x * 3)
        two.one.add_(1)
        return two.one.sum(), two.other.sum()

    return program


def items_of_a_dictionary() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            y = x * 2
            found = {"one": [y, y], "other": y}
        else:
            y = x * 3
            found = {"one": [y, x * 3], "other": y}
        found["one"][0].add_(1)
        return found["one"][1].sum(), found["other"].sum()

    return program


def attributes() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.g, self.h = torch.zeros(2), torch.zeros(2)

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach()
            if x.sum() > 0:
                self.h = self.g = x * 2
            else:
                self.h, self.g = x * 2, x * 3
            self.h += 1
            return self.g.sum()

    return Net()


def an_attribute_and_the_result() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.zeros(2)

        def forward(self, x: Tensor) -> Tensor:
            h = x.detach() * 2
            if x.sum() > 0:
                h = h + 1
                self.last = h
            else:
                h = h - 1
            return h

    return Net()


def optimizer_step() -> Any:
    def program(x: Tensor) -> Any:
        x = x.detach()
        weight, mean = x * 1, torch.zeros(2)
        if x.sum() > 0:
            gradient = weight * 2
            square = gradient
        else:
            gradient = weight * 3
            square = gradient * gradient
        mean.mul_(0.9).add_(gradient)
        square.mul_(0.5).addcmul_(gradient, gradient)
        weight.addcdiv_(mean, square.abs() + 1, value=-0.1)
        return weight.sum(), gradient.sum(), square.sum()

    return program


# One list or dictionary on one side


def list_on_one_side() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            one = [x * 2]
            other = one
        else:
            one, other = [x * 3], [x * 3]
        one.append(x)
        return len(other), other[0].sum()

    return program


def dictionary_in_a_list() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            one = {"a": x * 2}
            other = [one]
        else:
            one = {"a": x * 3}
            other = [one]
        one["b"] = x
        return len(other[0]), other[0]["a"].sum()

    return program


# The same on both sides


def one_object_on_both_sides() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
        else:
            a = x * 3
            a += 1
        b = a
        a.add_(1)
        return a, b, a is b

    return program


def a_view_on_both_sides() -> Any:
    def program(x: Tensor) -> Any:
        rows = torch.stack([x, x * 2, x * 3])
        if x.sum() > 0:
            a = rows * 2
            b, c = a.t(), a[1:, 0]
        else:
            a = rows * 3
            b, c = a.t(), a[1:, 0]
        c.add_(5)
        return a.sum(0), b[0], c

    return program


def a_detached_view_on_both_sides() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
        else:
            a = x * 3
        b = a.detach()
        b.add_(1)
        return (a * 3).sum(), b.sum()

    return program


def parts_that_are_apart() -> Any:
    def program(x: Tensor) -> Any:
        rows = torch.stack([x, x * 2, x * 3])
        if x.sum() > 0:
            a, b = (rows * 2).chunk(2, 1)
        else:
            a, b = (rows * 3).chunk(2, 1)
        return a.relu() * b

    return program


# What leaves the graph


def both_returned() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        return a, b, a + b

    return program


def returned_early() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            return a, a[:1]
        return x * 3, x[:1]

    return program


def returned_by_cond() -> Any:
    def program(x: Tensor) -> Any:
        weight = torch.ones(2, 2)
        if x.sum() > 0:
            a = x @ weight
            b = a[:1]
        else:
            a = x @ weight @ weight
            b = (x @ weight)[:1].clone()
        return a, b

    return program


def lists_returned() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            one = [x * 2]
            other = one
        else:
            one, other = [x * 3], [x * 3]
        return one, other

    return program


def returned_early_with_all_before() -> Any:
    def program(x: Tensor) -> Any:
        states = (x,)
        x = x * 2
        states = (*states, x)
        if x.sum() > 3:
            return x, states
        x = x - 1
        states = (*states, x)
        if x.sum() > 0:
            return x, states
        return x * 3, states

    return program


def returned_from_a_loop_with_all_before() -> Any:
    def program(x: Tensor) -> Any:
        states = (x,)
        for _ in range(3):
            x = x * 2 - 1
            states = (*states, x)
            if x.sum() > 3:
                return x, states
        return x * 3, states

    return program


# Questions of identity


def compared() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        return a + 10 if a is b else a + b

    return program


def compared_with_an_older_one() -> Any:
    def program(x: Tensor) -> Any:
        y, z = x * 1, x * 2
        a = y if x.sum() > 0 else z
        if a is not y:
            a = a + 100
        return a + 1

    return program


def identified() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        return a.sum() if id(a) == id(b) else b.sum() - 5

    return program


def keys() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        known = {a: 1}
        known[b] = 2
        return a.sum() + len(known) + len({a, b}) * 10

    return program


def marked() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            b = a
        else:
            a, b = x * 3, x * 3
        a.mark = 5  # type: ignore[attr-defined]
        return a + b + (1 if hasattr(b, "mark") else 0)

    return program


def made_a_leaf() -> Any:
    def program(x: Tensor) -> Any:
        y = x.detach()
        if x.sum() > 0:
            a = y * 2
            b = a
        else:
            a, b = y * 3, y * 3
        a.requires_grad_()
        return a.detach() + b.detach() + int(b.requires_grad)

    return program


ON_ONE_SIDE = (
    *(changed_later, changed_by_an_index, written_by_out, residual, changed_without_gradients),
    *(another_name_of_an_older_tensor, in_a_branch_in_an_arm, older_in_a_branch_in_an_arm),
    *(in_two_branches_after_each_other, in_a_loop, in_a_function_and_a_try, fields),
    *(items_of_a_dictionary, attributes, an_attribute_and_the_result, optimizer_step),
    *(list_on_one_side, dictionary_in_a_list, both_returned, returned_early, returned_by_cond),
    *(returned_early_with_all_before, returned_from_a_loop_with_all_before),
    *(lists_returned, compared, compared_with_an_older_one, identified, keys, marked, made_a_leaf),
)
ON_BOTH_SIDES = (
    *(one_object_on_both_sides, a_view_on_both_sides, a_detached_view_on_both_sides),
    parts_that_are_apart,
)


@pytest.mark.parametrize("make", [*ON_ONE_SIDE, *ON_BOTH_SIDES], ids=lambda make: make.__name__)
def test_values_that_are_one_stay_one(make: Program) -> None:
    assert_equivalent(make, _inputs)


@pytest.mark.parametrize(
    "make",
    [
        *(changed_later, changed_by_an_index, residual, in_a_branch_in_an_arm, both_returned),
        *(a_view_on_both_sides, a_detached_view_on_both_sides, compared),
        *(returned_early_with_all_before, returned_from_a_loop_with_all_before),
    ],
    ids=lambda make: make.__name__,
)
def test_gradients_flow_as_they_do_in_eager_execution(make: Program) -> None:
    assert_equivalent(make, _inputs, training=True, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "make",
    [changed_later, a_view_on_both_sides, both_returned, residual, returned_by_cond],
    ids=lambda make: make.__name__,
)
def test_with_inductor(make: Program, training: bool) -> None:
    assert_equivalent(make, _inputs, training=training, backend="inductor")


# Gradients that reach a tensor by another way than through what was merged


def hooked_alone() -> Any:
    def program(x: Tensor) -> Any:
        a = x * 2 if x.sum() > 0 else x * 3
        a.register_hook(lambda gradient: gradient * 2)
        return (a + 1).sum()

    return program


def hooked_where_an_arm_reads_it() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            a = x * 2
            c = a * 5
        else:
            a, c = x * 3, x * 1
        a.register_hook(lambda gradient: gradient * 2)
        return (a + c).sum()

    return program


def test_a_hook_sees_the_gradients_of_a_merged_tensor() -> None:
    assert_equivalent(hooked_alone, _inputs, training=True)


def test_a_hook_sees_gradients_from_within_an_arm() -> None:
    assert_equivalent(
        hooked_where_an_arm_reads_it,
        _inputs,
        training=True,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


# Loops


def _changed_behind_the_loop() -> Any:
    def program(x: Tensor) -> Any:
        a, b = x * 1, x * 2
        while a.sum() < 10:
            a = a.abs() + 1
            b = a
        b.add_(1)
        return a.sum(), b.sum()

    return program


def _returned_behind_the_loop() -> Any:
    def program(x: Tensor) -> Any:
        a, b = x * 1, x * 2
        while a.sum() < 10:
            a = a.abs() + 1
            b = a
        return a, b

    return program


def _compared_in_the_loop() -> Any:
    def program(x: Tensor) -> Any:
        a, b = x * 1, x * 2
        count = x.sum() * 0
        while a.sum() < 10:
            if a is b:
                count = count + 1
            a = a.abs() + 1
            b = a
        return a.sum(), count

    return program


@pytest.mark.parametrize(
    "make", [_changed_behind_the_loop, _returned_behind_the_loop, _compared_in_the_loop]
)
def test_a_loop_is_left_to_dynamo_where_the_program_can_tell(make: Program) -> None:
    found = assert_equivalent(make, _inputs, fullgraph=False, graphs=None, recompiles=None)
    assert found.report is not None
    reasons = {f"{each.refusal}: {each.detail}" for each in found.report.sites if each.refusal}
    assert any("alias-changed" in each or TOLD_APART in each for each in reasons)


def test_a_loop_whose_results_are_only_read_is_one_operator() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Any:
            a, b = x * 1, x * 2
            while a.sum() < 10:
                a = a.abs() + 1
                b = a
            return a - b * 2

        return program

    found = assert_equivalent(make, _inputs)
    assert found.report is not None
    assert "while_loop" in {each.lowering for each in found.report.sites}
