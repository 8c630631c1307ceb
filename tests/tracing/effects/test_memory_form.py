"""A merged tensor has the strides that it has on both sides."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import bcmend
from bcmend.tracing.effects import memory_form
from tests.equivalence import Call, assert_equivalent, call, fresh

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


BASE = torch.arange(24.0)
VIEWS: dict[str, Callable[[], Tensor]] = {
    "all": lambda: BASE,
    "rows": lambda: BASE.view(4, 6)[1:3],
    "left": lambda: BASE.view(4, 6)[:, :3],
    "right": lambda: BASE.view(4, 6)[:, 3:],
    "middle": lambda: BASE.view(4, 6)[:, 2:4],
    "turned": lambda: BASE.view(4, 6).t()[4:],
    "even": lambda: BASE[::2],
    "odd": lambda: BASE[1::2],
    "third": lambda: BASE[::3],
    "blocks": lambda: BASE.view(2, 3, 4)[:, 1, 1:3],
    "other blocks": lambda: BASE.view(2, 3, 4)[:, :, :1],
    "spread": lambda: BASE[5:6].expand(3),
    "one": lambda: BASE[23],
    "none": lambda: BASE[4:4],
}


def _places(view: Tensor) -> set[int]:
    """Return where the elements of a view lie, one by one."""
    return {
        view.storage_offset() + sum(i * s for i, s in zip(index, view.stride(), strict=True))
        for index in itertools.product(*map(range, view.size()))
    }


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations_with_replacement(VIEWS, 2)))
def test_views_that_have_an_element_in_common_overlap(one: str, other: str) -> None:
    first, second = VIEWS[one](), VIEWS[other]()
    common = bool(_places(first) & _places(second))
    found = memory_form.may_overlap(first, second), memory_form.may_overlap(second, first)
    assert found[0] is found[1]
    assert found[0] or not common


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("rows", "one", False),
        ("all", "none", False),
        ("left", "right", True),
        ("even", "odd", True),
    ],
)
def test_parts_that_do_not_lie_between_one_another_are_apart(
    one: str, other: str, may: bool
) -> None:
    assert memory_form.may_overlap(VIEWS[one](), VIEWS[other]()) is may


def test_tensors_of_other_dtypes_and_layouts_may_overlap() -> None:
    assert memory_form.may_overlap(BASE[:2], BASE.view(torch.int64)[8:])
    assert memory_form.may_overlap(BASE, torch.eye(2).to_sparse())


@pytest.mark.parametrize(
    ("tensor", "overlaps"),
    [
        (torch.zeros(2, 3), False),
        (torch.zeros(2, 3).t(), False),
        (torch.zeros(4, 6)[::2, 1:3], False),
        (torch.zeros(1).expand(1, 1), False),
        (torch.zeros(1).expand(3), True),
        (torch.zeros(8).as_strided((2, 2), (4, 3)), False),
        (torch.zeros(9).as_strided((2, 3), (4, 2)), True),
        (torch.zeros(4).unfold(0, 2, 1), True),
    ],
)
def test_what_may_overlap_itself(tensor: Tensor, overlaps: bool) -> None:
    assert memory_form.may_overlap_itself(tensor) is overlaps


def _distances(x: Tensor) -> Tensor:
    """Return the distances between rows whose number the data decide, in both dimensions."""
    rows = x[x.sum(1) > 0]
    return torch.cdist(rows, rows)


def _filled(x: Tensor) -> tuple[Tensor, ...]:
    distances = _distances(x)
    if distances.sum() > 3:
        distances[distances == 0] = float("inf")
    return distances, distances * 2


def _filled_in_another_order(x: Tensor) -> tuple[Tensor, ...]:
    turned = _distances(x).t().clone()
    if turned.sum() > 3:
        turned.masked_fill_(turned == 0, 9.0)
    return turned, turned * 2


@pytest.mark.parametrize("program", [_filled, _filled_in_another_order])
def test_tensors_of_data_dependent_sizes_are_changed_on_one_side(program: Any) -> None:
    rows = ([1.0, 2.0, -3.0, 4.0], [1.0, 1.5, -3.0, -4.0], [-1.0] * 4, [1.0, -2.0, -3.0, -4.0])
    calls = [call(torch.tensor(each)[:, None] * torch.ones(4, 2)) for each in rows]
    assert_equivalent(lambda: fresh(program), lambda: calls)


@pytest.mark.parametrize(
    ("strides", "overlaps"),
    [
        (lambda size: (torch.sym_max(size, 1), 1), False),
        (lambda size: (1, torch.sym_max(size, 1)), False),
        (lambda size: (0, 1), True),
        (lambda size: (1, 1), True),
    ],
)
def test_tensors_of_data_dependent_sizes_may_overlap_themselves(
    strides: Callable[[Any], Any], overlaps: bool
) -> None:
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        assert mode.shape_env is not None
        size = mode.shape_env.create_unbacked_symint()
        torch._check(size >= 0)
        tensor = torch.empty_strided((size, size), strides(size))
        assert memory_form.may_overlap_itself(tensor) is overlaps


@pytest.mark.parametrize("training", [False, True])
def test_a_mask_is_filled_on_both_sides(training: bool) -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[y < 0] = float("inf")
        return torch.where(y.isinf(), 0.0, 1 / y)

    def calls() -> list[Call]:
        given = ([1.0, -2.0, 3.0], [1.0, -2.0, -3.0], [1.0, 2.0, 3.0])
        return [call(torch.tensor(each, requires_grad=training)) for each in given]

    found = assert_equivalent(lambda: program, calls, training=training)
    assert found.report is not None
    assert {each.lowering for each in found.report.sites} == {"where with effects"}


def test_a_side_that_repeats_one_item_as_often_as_the_data_say() -> None:
    def make() -> Any:
        def program(x: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
            h, w = size.tolist()
            if h == 0 or w == 0:
                y = (x.reshape(-1)[:1].sum() * 0).reshape(1, 1, 1, 1).expand(1, 1, h, w)
            else:
                y = torch.nn.functional.interpolate(x, size=(h, w))
            return y

        return program

    def inputs(*, gradients: bool = False) -> list[Call]:
        x = torch.arange(4.0).reshape(1, 1, 2, 2)
        sizes = [torch.tensor(each) for each in ((4, 5), (6, 7), (3, 8))]
        return [call(x.clone().requires_grad_(gradients), each) for each in sizes]

    assert_equivalent(make, inputs, graphs=None, recompiles=None)
