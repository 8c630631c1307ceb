"""A merged tensor has the strides that it has on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.effects import memory_form
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


Form = Callable[[Tensor], Tensor]

#: Views of a tensor of 4 x 6 with gaps, in another order, with items that repeat.
FORMS: dict[str, Form] = {
    "a column": lambda x: x[:, 1],
    "columns": lambda x: x[:, 1:4],
    "every second": lambda x: x[::2, ::3],
    "rows in another order": lambda x: x.t()[1:4],
    "in another order": lambda x: x.t(),
    "repeated": lambda x: x[:1].expand(4, 6),
    "repeated in the middle": lambda x: x[:, ::2].unsqueeze(1).expand(4, 5, 3),
    "a row of many": lambda x: x[0, :1].expand(7),
    "one item": lambda x: x[1, 2],
    "as it is": lambda x: x,
}


def _program(form: Form) -> Any:
    def make() -> Any:
        def program(x: Tensor, y: Tensor) -> tuple[Any, ...]:
            if x.sum() > 0:
                z = form(x * 2)
            else:
                z = form(y + 1)
            return z, z.stride(), z.is_contiguous(), z * 3

        return program

    return make


def _inputs() -> list[Call]:
    given = [torch.arange(24.0).reshape(4, 6) + each for each in (1, -50, 3)]
    return [call(each.clone().requires_grad_(), each.cos().requires_grad_()) for each in given]


@pytest.mark.parametrize("branch", ["where", "cond"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_result_has_the_strides_of_both_sides(form: Form, branch: Any) -> None:
    def way(make: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        program = bcmend.patch(make(), policy=bcmend.Policy(branch=branch))
        return program, torch.compile(program, **options)

    for training in (False, True):
        assert_equivalent(
            _program(form), _inputs, training=training, way=way, zero_gradients=True, may_copy=True
        )


@pytest.mark.parametrize("name", ["columns", "repeated in the middle"])
def test_strides_are_kept_by_inductor(name: str) -> None:
    for training in (False, True):
        assert_equivalent(
            _program(FORMS[name]),
            _inputs,
            backend="inductor",
            training=training,
            zero_gradients=True,
            may_copy=True,
        )


def test_an_arm_of_a_cond_returns_a_slice_with_one_item_in_a_dimension() -> None:
    """Torch refuses it as it is, with a stride that no dense tensor has."""

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            z = (x * 2)[:1, 3:]
        else:
            z = (x + 1)[:1, 3:]
        return z * 3

    policy = bcmend.Policy(branch="cond")
    mended = torch.compile(bcmend.patch(program, policy=policy), backend="eager", fullgraph=True)
    for x in (torch.ones(4, 6), -torch.ones(4, 6)):
        assert torch.equal(mended(x), program(x))


def test_items_that_overlap_are_not_merged() -> None:
    assert_equivalent(
        _program(lambda x: x[0].unfold(0, 3, 1)), _inputs, fullgraph=False, graphs=None
    )


def test_a_view_that_is_stored_on_one_side_keeps_its_strides() -> None:
    def make() -> Any:
        held: dict[str, Tensor] = {"view": torch.arange(8.0)[::2], "of": torch.arange(9.0)}

        def program(x: Tensor) -> tuple[Any, ...]:
            if x.sum() > 0:
                held["view"] = (held["of"] * x.sum()).as_strided((4,), (2,))
            return held["view"] + 1, held["view"].stride()

        return program

    inputs = [call(torch.full((2,), sign)) for sign in (1.0, -1.0, 2.0, -3.0)]
    assert_equivalent(make, lambda: inputs, may_copy=True, recompiles=None, graphs=None)


@pytest.mark.parametrize(
    ("size", "stride", "is_possible"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), True),
        ((2, 3), (7, 2), True),
        ((2, 3), (0, 0), True),
        ((2, 3), (0, 4), True),
        ((1, 3), (0, 1), True),
        ((1, 3), (1, 1), True),
        ((2, 3), (2, 1), False),
        ((3, 3), (1, 1), False),
        ((2, 3), (3, 2), False),
    ],
)
def test_overlapping_memory_is_noticed(
    size: tuple[int, ...], stride: tuple[int, ...], is_possible: bool
) -> None:
    tensor = torch.zeros(40).as_strided(size, stride)
    assert memory_form.can_be_given(tensor) is is_possible
