"""Items at data-dependent places: one graph, the views of eager execution, its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import InternalTorchDynamoError, UserError

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.indexing import item_reads
from tests import new_process
from tests.differences_of_torch import MAPPED_ITEMS_FAIL_INSIDE
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.in_trace import computed_number, during_trace, trace


def _inputs() -> Sequence[Call]:
    x = torch.arange(120.0).reshape(4, 5, 6) / 7
    places = [(1, 3), (0, 2), (-1, -2), (3, 1)]
    return [call(x.clone(), torch.tensor([a, b])) for a, b in places]


def _rows(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    a, b = at.clamp(-4, 3)
    return x[a], x[b.int(), 1], x[b.item(), 0]


def _with_slices(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    a, b = at + 0
    return x[..., b], x[:, b, 1:3], x[None, a, ..., b.item()], x[1, a, :2], x[0, 1, b]


def _with_bounds_of_data(x: Tensor, at: Tensor) -> Tensor:
    a, b = at.abs() + 0
    return x[a, : b.item()].sum() + x[a:, b].sum()


def _of_an_extremum(x: Tensor, at: Tensor) -> Tensor:
    row = x[:, 0, 0].argmax()
    column = (x[row, :, 0] - at[1]).abs().argmin()
    return x[row, column].softmax(-1)


def _of_items(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    a, b = at + 0
    y = x + 1
    return y[2][b], y[-1][0][b.item()], y.transpose(0, 1)[1][a.item()]


def _of_written_items(x: Tensor, at: Tensor) -> Tensor:
    a, b = at + 0
    y = x + 1
    y[0][1][b.item()] = 4
    y[1][a.item()].mul_(2)
    return y


def _in_an_arm(x: Tensor, at: Tensor) -> Tensor:
    a, b = at + 0
    y = x[a, b] * 2 if x.sum() > a else x[b, 0] + 1
    return y * 2


def _in_a_loop(x: Tensor, at: Tensor) -> Tensor:
    row = at[0] * 0
    while x[row, 0, 1] < at[1]:
        row = row + 1
    return row


def _beside_lists_of_places(x: Tensor, at: Tensor) -> Any:
    top, left = (at.flatten()[:2] % 2).tolist()
    places = torch.arange(x.shape[0]).flip(0)
    y = x.clone()
    y[places, top : top + 1, left:] = x[places, top : top + 1, left:] * 2
    y[..., left:, [0, 1]] += 1
    y[(0, 1), :, left:] = x[(1, 0), :, left:]
    return x[places, None, :, left : left + 1], x[places[:1], top, left:], y


@pytest.mark.parametrize(
    "program",
    [
        _rows,
        _beside_lists_of_places,
        _with_slices,
        _of_items,
        _of_written_items,
        _with_bounds_of_data,
        _of_an_extremum,
        _in_an_arm,
    ],
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_one_graph(program: object, backend: str, training: bool) -> None:
    assert_equivalent(lambda: program, _inputs, backend=backend, training=training)


def test_condition_of_a_loop() -> None:
    assert_equivalent(lambda: _in_a_loop, _inputs)


def _changed(x: Tensor, at: Tensor) -> Tensor:
    a, b = at + 0
    y = x * 1
    y[a] += 1
    y[a, 0] *= x[0, 0]
    y[a, b].sub_(3)
    y[a][b] = 5
    y[b % 4, a % 5] = x[a % 4, b % 5]
    row = y[a, 1]
    row[0] = 7
    return y * y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_views_are_changed_in_place(backend: str, training: bool) -> None:
    assert_equivalent(lambda: _changed, _inputs, backend=backend, training=training)


def _stored(x: Tensor, at: Tensor) -> Tensor:
    memory = torch.zeros(600, 200)
    memory[at[0] + 4, at[1]] = x[0, 0, 3]
    memory[at[0]] = x[0, 0, :1]
    memory[at[0].item(), 3] = 4
    return memory[:8].sum(1)


def test_stores_to_items_of_what_is_too_large_for_a_mask() -> None:
    assert_equivalent(lambda: _stored, _inputs)


def _out_of_range() -> Sequence[Call]:
    x = torch.arange(20.0).reshape(4, 5)
    return [call(x, torch.tensor([a, b])) for a, b in ((1, 3), (4, 0), (0, -6))]


def _item(x: Tensor, at: Tensor) -> Tensor:
    a, b = at + 0
    return x[a, b] + 1


def _caught(x: Tensor, at: Tensor) -> Tensor:
    try:
        return _item(x, at)
    except IndexError as error:
        print(error)
        return x


@pytest.mark.parametrize("program", [_item, _caught])
def test_out_of_range(program: object) -> None:
    assert_equivalent(lambda: program, _out_of_range)


def _gathered(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    a, _ = at + 0
    return x[[0, 1]], x[torch.tensor([0, 1]), 2], x[a.reshape(1), 0]


def test_what_torch_gathers_is_left_alone() -> None:
    assert_equivalent(lambda: _gathered, _inputs)


def _numbers(x: Tensor, at: Tensor) -> Tensor:
    return x[(at[0] + 0).item(), 0] * 2


def test_where_graphs_may_break() -> None:
    assert_equivalent(lambda: _numbers, _inputs, fullgraph=False)


_AFTER_OTHERS = """
import torch
torch.compile(lambda x, i: x[i] + 1, backend="eager")(torch.ones(3), torch.tensor([0, 1]))
torch.compile(lambda x, i: x[i] + 1, backend="eager")(torch.ones(3), torch.tensor(1) + 0)
import bcmend
def item(x): return x[x.argmax()]
compiled = torch.compile(bcmend.patch(item), backend="eager", fullgraph=True)
print([compiled(torch.tensor(each)).item() for each in ([1.0, 5.0], [7.0, 2.0])])
"""


def test_after_dynamo_has_traced_without_bcmend() -> None:
    """Dynamo keeps the methods that answered."""
    done = new_process.run("-c", _AFTER_OTHERS)
    assert done.stdout == "[5.0, 7.0]\n", done.stderr


def _item(x: Tensor, at: Tensor) -> Tensor:
    return x[at.argmax().item()] * 2


def _selected(x: Tensor, at: Tensor) -> Tensor:
    return torch.select(x, 0, (at.argmax() - 5).item()) + x.select(1, at.argmax().item())[0]


def _in_an_arm(x: Tensor, at: Tensor) -> Tensor:
    place = at.argmax().item()
    y = x[0] * 1
    if x.sum() > 0:
        y = x[place] + 1
    return y


def _of_a_row(x: Tensor, at: Tensor) -> Tensor:
    return (x + 1)[-1][at.argmax().item()] * 2


def _by_a_tensor_in_arms(x: Tensor, at: Tensor) -> Tensor:
    place = at.argmax()
    if x.sum() > 0:
        return x[place] + 1
    return x[:2][place].exp()


def _in_iterations(x: Tensor, at: Tensor) -> Tensor:
    place, total = at.argmax(), x[0] * 0
    while total.sum() < 40:
        total = total + x[place].abs()
        place = place + 1
    return total


@pytest.mark.parametrize(
    "program", [_item, _selected, _in_an_arm, _of_a_row, _by_a_tensor_in_arms, _in_iterations]
)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_place_where_there_is_no_item(program: Callable[..., Tensor], backend: str) -> None:
    def calls() -> list[Call]:
        x = torch.arange(-4.0, 16.0).reshape(4, 5)
        places = [torch.nn.functional.one_hot(torch.tensor(at), 9) for at in (3, 1, 7)]
        return [call(sign * x, place) for sign in (1, -1) for place in places]

    torch._dynamo.reset()
    assert_equivalent(lambda: program, calls, backend=backend)


# Called directly


def _read(key: Any) -> Any:
    """Return what ``read`` gives for an index of constants and of the second input."""

    def body(tx: Any, x: Any, place: Any) -> Any:
        number = computed_number(tx, place)
        items = [number if each == "n" else constant(each) for each in key]
        return item_reads.read(tx, x, compat.TupleVariable(items))

    return body


MATRIX = torch.arange(6).view(2, 3)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("n",), MATRIX[1]),
        (("n", 2), MATRIX[1, 2]),
        ((0, "n"), MATRIX[0, 1]),
        ((..., "n"), MATRIX[..., 1]),
        ((None, "n"), MATRIX[None, 1]),
        (("n", "n"), MATRIX[1, 1]),
    ],
)
def test_an_index_is_read_by_select(key: Any, expected: Tensor) -> None:
    found = trace(_read(key), MATRIX, torch.tensor(1))
    assert torch.equal(found, expected) and found.shape == expected.shape


@pytest.mark.parametrize("key", [(0,), (0, ...), ("n", "n", "n")])
def test_an_index_without_data_dependent_items_is_left_to_dynamo(key: Any) -> None:
    assert during_trace(_read(key), MATRIX, torch.tensor(1)) is None


@pytest.mark.parametrize(
    ("key", "dimensions"),
    [
        ((0, 0), [0, 1]),
        ((..., 0), [None, 2]),
        ((0, ..., 0), [0, None, 2]),
        ((None, 0, None, 0), [None, 0, None, 1]),
        ((), []),
    ],
)
def test_dimensions_that_the_parts_of_an_index_are_of(key: Any, dimensions: Any) -> None:
    assert list(item_reads._dimensions(list(map(constant, key)), 3)) == dimensions


def test_only_an_unbacked_offset_needs_a_view_to_be_regenerated() -> None:
    def body(tx: Any, x: Any, place: Any) -> Any:
        item = _read(("n",))(tx, x, place)
        known = x.call_method(tx, "select", [constant(0), constant(1)], {})
        return [item_reads._has_unbacked_offset(each) for each in (item, known, constant(1))]

    assert during_trace(body, MATRIX, torch.tensor(1)) == [True, False, False]


# Under ``torch.func.vmap``


def _of_all_places(x: Tensor, at: Tensor) -> Tensor:
    return torch.func.vmap(lambda place: x[place, 0] * 2)(at.abs())


def _in_two_maps(x: Tensor, at: Tensor) -> Tensor:
    def is_larger(row: Tensor, column: Tensor) -> Tensor:
        return (x[row, column, 0] > x[column, row, 0]) & (row >= column)

    columns = torch.func.vmap(is_larger, in_dims=(None, 0))
    return torch.func.vmap(columns, in_dims=(0, None))(at.abs(), at.abs())


def _of_other_than_the_mapped(x: Tensor, at: Tensor) -> Tensor:
    row = at.max()
    return torch.func.vmap(lambda y: y + x[row, 0, 0])(x)


def _stored_to(x: Tensor, at: Tensor) -> Tensor:
    def stored(place: Tensor) -> Tensor:
        y = x.new_zeros(5) + place
        y[place] = 5.0
        return y

    return torch.func.vmap(stored)(at.abs())


def _under_a_gradient(x: Tensor, at: Tensor) -> Tensor:
    def summed(y: Tensor) -> Tensor:
        return torch.func.vmap(lambda place: y[place].sin().sum())(at.abs()).sum() + y[at[0]].sum()

    result: Tensor = torch.func.grad(summed)(x)
    return result


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    "program",
    [_of_all_places, _in_two_maps, _of_other_than_the_mapped, _stored_to, _under_a_gradient],
)
def test_places_that_are_mapped(program: Callable[..., Any], fullgraph: bool) -> None:
    for backend in ("eager", "aot_eager"):
        assert_equivalent(
            lambda: program,
            _inputs,
            backend=backend,
            fullgraph=fullgraph,
            graphs=1 if fullgraph else None,
            recompiles=0 if fullgraph else None,
        )


def test_a_known_place_of_what_is_mapped_breaks_as_before() -> None:
    def program(x: Tensor, at: Tensor) -> Tensor:
        row = at.max()
        return torch.func.vmap(lambda y: y[row])(x)

    assert_equivalent(lambda: program, _inputs, fullgraph=False, graphs=None, recompiles=None)
    with pytest.raises(InternalTorchDynamoError if MAPPED_ITEMS_FAIL_INSIDE else UserError):
        bcmend.compile(program, backend="eager", fullgraph=True)(*_inputs()[0].arguments)
    bcmend.unpatch()


# Crops: several slices


def _crop(x: Tensor) -> Tensor:
    top, left = torch.randint(0, 3, (1,)).item(), torch.randint(0, 4, (1,)).item()
    return x[..., top : top + 2, left : left + 2] * 2


def _crops_of_boxes(x: Tensor) -> Tensor:
    found = []
    for box in (x[0, :4].abs() * 2).long().clamp(0, 3):
        first, last = int(box), int(box) + 1
        found.append(x[first : last + 1, None, : last + 1, 0].mean())
    return torch.stack(found)


def _pasted(x: Tensor) -> tuple[Tensor, float]:
    height, width = x.shape
    half = 0.5 * torch.rand(1).sqrt()
    y, x0 = torch.randint(height, (1,)), torch.randint(width, (1,))
    top, bottom = (int(torch.clamp(y + each * half * 4, 0, height)) for each in (-1, 1))
    left, right = (int(torch.clamp(x0 + each * half * 4, 0, width)) for each in (-1, 1))
    x = x.clone()
    x[top:bottom, left:right] = x.flip(0)[top:bottom, left:right]
    return x, 1 - (bottom - top) * (right - left) / (height * width)


def _changed_in_place(x: Tensor) -> Tensor:
    top, left = int(x[0, 0].abs()) % 3, int(x[1, 1].abs()) % 3
    y = x * 1
    y[top : top + 2, left : left + 2] += 1
    return y


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("program", [_crop, _crops_of_boxes, _pasted, _changed_in_place])
def test_a_crop_between_numbers_out_of_tensors(
    program: Callable[..., Any], backend: str, training: bool
) -> None:
    def calls() -> list[Any]:
        rows = torch.arange(25.0).reshape(5, 5)
        return [call(rows.clone()), call(rows / 10 - 1), call(-rows)]

    assert_equivalent(
        lambda: program, calls, backend=backend, training=training, recompiles=None, graphs=None
    )


class _Part(torch.nn.Module):
    """Slices whose bounds are computed behind a layer, so that none is known beforehand."""

    def __init__(self, least: int = 0) -> None:
        super().__init__()
        self.layer, self.least = torch.nn.Linear(4, 4), least

    def forward(self, x: Tensor) -> Tensor:
        count = (self.layer(x) > 0).sum().item() // 4 + self.least
        return self.layer(x[count:]).sum() + x[:count].square().sum()


class _Parts(_Part):
    """Parts of a tensor that needs no gradients, and what a layer makes of them."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.detach()
        first = (self.layer(rows) > 0).sum().item() // 4
        last = (self.layer(rows) > 0.5).sum().item() // 4
        parts = [self.layer(each) for each in (rows[:last], rows[last:first], rows[first:])]
        return torch.cat(parts) * x.sum()


class _WithoutTheLast(_Part):
    def forward(self, x: Tensor) -> Tensor:
        count = (self.layer(x) > 0).sum().item() // 4
        return x[:-count].sum() + x[-count:].square().sum() + x[: 6 - count].sum()


@pytest.mark.parametrize(
    ("make", "backend"),
    [
        (_Part, "aot_eager"),
        (lambda: _Part(-2), "aot_eager"),  # from the end, if it is negative: in plain Python
        (_Parts, "aot_eager"),
        (_WithoutTheLast, "aot_eager"),
        pytest.param(_Part, "inductor", marks=pytest.mark.slow),
        pytest.param(lambda: _Part(-2), "inductor", marks=pytest.mark.slow),
        pytest.param(_Parts, "inductor", marks=pytest.mark.slow),
    ],
)
def test_gradients_flow_through_slices_between_numbers(
    make: Callable[[], torch.nn.Module], backend: str
) -> None:
    def seeded() -> torch.nn.Module:
        torch.manual_seed(0)
        return make()

    def calls() -> list[Call]:
        generator = torch.Generator().manual_seed(1)
        return [call(torch.randn(6, 4, generator=generator) + at / 2) for at in range(-5, 6)]

    assert_equivalent(seeded, calls, fullgraph=True, backend=backend, training=True)
