"""Numbers and sizes as arguments of torch's operations: what is taken out, and what is asserted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.handlers import size_arguments
from bcmend.tracing.indexing import item_reads
from bcmend.tracing.numbers import size_questions
from tests.equivalence import Call, assert_equivalent, call
from tests.samples import in_turn, name_of, sampled
from tests.tracing.in_trace import during_trace, trace

THREE = torch.tensor(3)


@pytest.mark.parametrize(
    ("tensor", "is_number"),
    [
        (THREE, True),
        (torch.tensor(3, dtype=torch.int8), True),
        (torch.tensor(3.0), True),
        (torch.tensor(True), False),
        (torch.tensor([3]), False),
        (torch.tensor(1j), False),
    ],
)
def test_a_number_is_a_real_tensor_without_dimensions(tensor: Any, is_number: bool) -> None:
    found = during_trace(lambda tx, x: type(size_arguments._number(tx, "arange", x)), tensor)
    assert (found is compat.SymNodeVariable) is is_number
    assert is_number or found is compat.TensorVariable


def test_a_number_has_its_value() -> None:
    assert trace(lambda tx, x: size_arguments._number(tx, "arange", x), THREE) == 3


@pytest.mark.parametrize(
    ("name", "tensor", "is_number"),
    [
        ("rand", torch.tensor([3]), True),
        ("expand", torch.tensor([[3]]), True),
        ("rand", torch.tensor([3.0]), False),
        ("rand", torch.tensor([3, 3]), False),
        ("linspace", torch.tensor([3]), False),
    ],
)
def test_a_size_may_be_a_tensor_of_one_item(name: str, tensor: Any, is_number: bool) -> None:
    found = during_trace(lambda tx, x: type(size_arguments._number(tx, name, x)), tensor)
    assert (found is compat.SymNodeVariable) is is_number


@pytest.mark.parametrize("kind", [compat.TupleVariable, compat.ListVariable])
def test_numbers_in_a_sequence_are_taken_out(kind: Any) -> None:
    def body(tx: Any, x: Any) -> Any:
        return size_arguments._number(tx, "full", kind([constant(2), x]))

    assert trace(body, THREE) == (2, 3)
    assert trace(body, torch.tensor([3])) == (2, 3)


def test_a_sequence_without_tensors_is_the_same_object() -> None:
    def body(tx: Any, x: Any) -> Any:
        given = compat.TupleVariable([constant(2), constant(3)])
        return size_arguments._number(tx, "full", given) is given

    assert during_trace(body, THREE)


def test_keywords_that_are_no_numbers_are_left_unchanged() -> None:
    def body(tx: Any, x: Any) -> Any:
        found = size_arguments._with_numbers(tx, "zeros", {"out": x, "size": x})
        return found["out"] is x, type(found["size"])

    assert during_trace(body, THREE) == (True, compat.SymNodeVariable)


@pytest.mark.parametrize(
    ("function", "first"),
    [(torch.arange, 0), (torch.reshape, 1), (torch.linspace, 2), (torch.sum, None), ([], None)],
)
def test_position_of_the_first_number(function: Any, first: int | None) -> None:
    assert size_arguments._first_number(function) == first


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ([], [2, 3, 4]),
        ([constant(1)], [3]),
        ([constant(-1)], [4]),
        ([constant((0, 2))], [2, 4]),
        ([constant(7)], [2, 3, 4]),
        ([constant(True)], [2, 3, 4]),
        ([constant(None), constant(0)], [2]),
    ],
)
def test_sizes_of_the_dimensions_that_a_call_names(given: list[Any], sizes: list[int]) -> None:
    example = torch.empty(2, 3, 4)
    places = size_arguments._dimensions_meant(example, given)
    assert [example.shape[each] for each in places] == sizes


def test_a_call_with_two_tensors_names_no_dimension() -> None:
    found = during_trace(lambda tx, x: size_arguments._dimensions_meant(torch.empty(2), [x]), THREE)
    assert found == ()


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "asked"),
    [
        ("squeeze", [], {}, [(2, 1), (3, 1)]),
        ("squeeze_", [constant(1)], {}, [(3, 1)]),
        ("max", [], {"dim": constant(0)}, [(2, 0)]),
        ("mode", [constant(-1)], {}, [(3, 0)]),
        ("sum", [], {}, []),
    ],
)
def test_which_sizes_are_asserted_not_to_be_one_or_zero(
    name: str, args: Any, kwargs: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(tx: Any, x: Any) -> Any:
        found: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(
                size_questions, "rule_out", lambda tx, *given: found.append(given) or True
            )
            size_arguments._require_other_sizes(tx, name, [x, *args], kwargs)
        return found

    assert during_trace(body, torch.ones(2, 3)) == asked


def test_a_size_that_cannot_be_asserted_breaks_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(tx: Any, x: Any) -> None:
        with monkeypatch.context() as patch, pytest.raises(compat.Unsupported, match="a size"):
            patch.setattr(size_questions, "rule_out", lambda *given: False)
            size_arguments._require_other_sizes(tx, "max", [x], {})

    during_trace(body, torch.ones(2))


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ([constant(1), constant(2)], {}, [(1, 2)]),
        ([], {"dim": constant(-1), "index": constant(0)}, [(-1, 0)]),
        ([constant(1)], {}, []),
        ([constant("N"), constant(2)], {}, []),
    ],
)
def test_the_item_of_select_is_asserted_to_be_there(
    args: Any, kwargs: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(tx: Any, x: Any) -> Any:
        found: list[Any] = []

        def note(tx: Any, tensor: Any, at: int, place: Any) -> None:
            assert tensor is x
            found.append((at, place.as_python_constant()))

        with monkeypatch.context() as patch:
            patch.setattr(item_reads, "require_item", note)
            for name in ("select", "narrow"):
                size_arguments._require_item(tx, name, [x, *args], kwargs)
        return found

    assert during_trace(body, torch.ones(2, 3)) == expected


@pytest.mark.parametrize("name", ["squeeze", "max", "sum"])
def test_static_sizes_need_no_assertion(name: str) -> None:
    def body(tx: Any, x: Any) -> Any:
        before = len(tx.output.graph.nodes)
        size_arguments._require_other_sizes(tx, name, [x], {})
        return len(tx.output.graph.nodes) - before

    assert during_trace(body, torch.ones(3, 2)) == 0


# Sizes to which a picture is brought


def _resized(x: torch.Tensor, at: torch.Tensor, **how: Any) -> torch.Tensor:
    height, width = at
    if x.sum() > 99:
        x = x + 1
    return torch.nn.functional.interpolate(x, size=(height, width), **how)


def _nearest(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return _resized(x, at, mode="nearest")


def _to_corners(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return _resized(x, at, mode="bilinear", align_corners=True)


def _of_numbers(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    height, width = at.tolist()
    return torch.nn.functional.interpolate(x, (height, width), None, "bicubic", True)


def _of_areas(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return _resized(x, at, mode="area")


def _padded(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    parts = [_to_corners(x, each) for each in at.view(1, 2)]
    return torch.cat([torch.nn.functional.pad(y, (0, 8 - at[1], 0, 8 - at[0])) for y in parts])


SIZES = ((5, 7), (2, 3), (1, 2), (0, 3), (3, 0), (-1, 2), (4, 4))


def _pictures() -> list[Call]:
    x = torch.arange(32.0).view(1, 2, 4, 4) / 7
    return [call(x.clone(), torch.tensor(each)) for each in SIZES]


@pytest.mark.parametrize(
    "program", sampled([_nearest, _to_corners, _of_numbers, _of_areas, _padded], name_of, of=2)
)
def test_a_picture_brought_to_a_size_of_the_data(program: Any) -> None:
    assert_equivalent(lambda: program, _pictures)
    for backend in ("eager", "aot_eager"):
        assert_equivalent(
            lambda: program,
            lambda: _pictures()[3:],  # of the others ``aot_eager`` has other last bits
            backend=backend,
            fullgraph=False,
            graphs=None,
            recompiles=None,
        )


@pytest.mark.parametrize(
    ("program", "training"),
    in_turn([_nearest, _to_corners, _of_numbers], [False, True], name_of),
)
def test_such_a_picture_with_inductor(program: Any, training: bool) -> None:
    assert_equivalent(
        lambda: program,
        _pictures,
        backend="inductor",
        training=training,
        graphs=None,
        recompiles=None,
    )


# Runs of equal parts


def _padded_by_itself(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    wide = int((x.amax() * 3).abs().ceil().clamp(max=4))
    return torch.nn.functional.pad(x, [wide, 0, wide, 0], mode="replicate") * 2 + at.sum()


@pytest.mark.parametrize("training", [False, True])
def test_a_picture_that_is_made_larger_by_a_number_of_the_data(training: bool) -> None:
    assert_equivalent(lambda: _padded_by_itself, _pictures, backend="inductor", training=training)


def _runs(x: torch.Tensor, dim: int) -> Any:
    runs = torch.unique_consecutive(x, dim=dim)
    kept, places, counts = x.unique_consecutive(True, True, dim)
    last = torch.unique_consecutive(input=x, dim=dim).numel()
    return runs, runs.dim(), runs.numel(), last, kept, kept.shape, places, counts


@pytest.mark.parametrize("dim", [-1, -2, 1])
def test_a_dimension_along_which_runs_are_looked_for(dim: int) -> None:
    x = torch.tensor([[1, 1, 2, 3, 3], [1, 1, 2, 3, 3], [0, 0, 1, 4, 4]])
    assert_equivalent(lambda: _runs, lambda: [call(x, dim), call(x.flip(1).contiguous(), dim)])


def _path(emission: torch.Tensor) -> torch.Tensor:
    found = torch.unique_consecutive(emission.argmax(-1), dim=-1)
    return torch.stack([place for place in found if place != 0])


def test_the_best_path_without_blanks() -> None:
    rows = [[0, 0, 1, 1, 2], [3, 3, 3, 0, 1], [2, 1, 2, 1, 0]]
    assert_equivalent(
        lambda: _path,
        lambda: [call(torch.eye(4)[torch.tensor(each)]) for each in rows],
        graphs=None,
        recompiles=None,
    )


# ``squeeze`` in an arm


def _written_back(x: torch.Tensor) -> torch.Tensor:
    found, mask = torch.zeros_like(x), x > 0
    if mask.any():
        found[mask] = (x[mask] / x[mask].abs().sqrt()).squeeze()
    return found


def _of_a_function(x: torch.Tensor) -> torch.Tensor:
    mask = x > 0
    if mask.any():
        found = torch.squeeze(x[mask] * 2)
        return found.sum() + found.dim()
    return x.sum()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", [_written_back, _of_a_function])
def test_an_arm_that_squeezes_rows_leaves_for_a_single_one(
    program: Any, backend: str, training: bool
) -> None:
    def inputs() -> list[Call]:
        rows = ([1.0, -3.0, 2.0], [-1.0, -3.0, -2.0], [1.0, -2.0, -1.0], [4.0, 1.0, 2.0])
        return [call(torch.tensor(each, requires_grad=training)) for each in rows]

    assert_equivalent(
        lambda: program,
        inputs,
        backend=backend,
        training=training,
        fullgraph=backend == "eager" and not training,
        graphs=1 if backend == "eager" and not training else None,
        recompiles=None,
    )


@pytest.mark.parametrize("program", [_written_back, _of_a_function])
def test_rows_of_which_there_is_one_at_most_are_squeezed_in_the_graph(program: Any) -> None:
    assert_equivalent(lambda: program, lambda: [call(torch.tensor([each])) for each in (2.0, -2.0)])


class _Padded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(2, 3, 3)

    def forward(self, x: torch.Tensor, margin: torch.Tensor) -> torch.Tensor:
        n = int(margin.max())
        return self.layer(torch.nn.functional.pad(x, [n, 0, n, 0], value=1.0))


class _Reflected(_Padded):
    def forward(self, x: torch.Tensor, margin: torch.Tensor) -> torch.Tensor:
        left, top, right, bottom = margin.ceil().to(torch.int32)
        sides = [left, right, top, bottom]
        return self.layer(torch.nn.functional.pad(x, sides, mode="reflect"))


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("make", [_Padded, _Reflected])
def test_a_layer_behind_padding_of_a_number_of_the_data_is_trained(
    make: Any, backend: str, fullgraph: bool
) -> None:
    def inputs() -> list[Call]:
        margins = ([1.2, 2, 0.4, 3], [2.0, 2, 1, 1], [0.0] * 4, [1.0, 0, 0, 1], [9.0, 1, 1, 1])
        return [call(torch.ones(2, 2, 8, 8).cumsum(3), torch.tensor(each)) for each in margins]

    # Inductor asks for the strides of what goes into a layer, unless it lays it out anew.
    graphs = 1 if fullgraph and backend == "aot_eager" else None
    assert_equivalent(
        make,
        inputs,
        backend=backend,
        training=True,
        fullgraph=fullgraph,
        graphs=graphs,
        recompiles=None,
    )


class _Resized(_Padded):
    def forward(self, x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        first, last = bounds.tolist()
        return self.layer(torch.nn.functional.interpolate(x[:, :, first:last], size=(4, 4)))


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_empty_crop_is_not_resized(backend: str, training: bool, fullgraph: bool) -> None:
    def inputs() -> list[Call]:
        bounds = ([1, 6], [2, 3], [0, 8], [4, 4], [6, 2])
        return [call(torch.ones(2, 2, 8, 8).cumsum(3), torch.tensor(each)) for each in bounds]

    assert_equivalent(
        _Resized,
        inputs,
        backend=backend,
        training=training,
        fullgraph=fullgraph,
        graphs=None,
        recompiles=None,
    )
