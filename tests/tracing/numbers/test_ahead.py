"""Numbers that say how many turns a loop makes are computed in front of the graph."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import bcmend
from bcmend.policy import Policy
from bcmend.tracing.numbers import ahead
from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[..., Any]
Arguments = Sequence[tuple[Any, ...]]


def _patches(*layouts: Sequence[tuple[int, int, int]]) -> Arguments:
    """Arguments for images of some frames, rows and columns of patches."""
    given = [torch.tensor(each) for each in layouts]
    return [(torch.randn(int(each.prod(1).sum()), 4), each) for each in given]


def _parts(*layouts: Sequence[int]) -> Arguments:
    """Arguments for sequences of some lengths, one behind the other."""
    return [(torch.randn(sum(each), 4), torch.tensor(each)) for each in layouts]


def _calls(arguments: Arguments) -> Callable[[], list[Call]]:
    return lambda: [call(*copy.deepcopy(each)) for each in arguments]


def _assert_one_graph_each(program: Callable[[], Any], arguments: Arguments, **how: Any) -> None:
    """Assert that calls are as in eager execution, and no more than one graph each."""
    found = assert_equivalent(program, _calls(arguments), graphs=None, recompiles=None, **how)
    assert found.graphs <= len(arguments)


IMAGES = _patches([(1, 4, 6)], [(1, 4, 4), (1, 2, 6)], [(2, 4, 8)], [(1, 8, 4)])
LENGTHS = _parts([2, 3, 4], [4, 4, 1], [3, 6], [9], [5, 2, 2])


def _rows_of_a_grid(x: Tensor, grid: Tensor) -> Tensor:
    places = []
    for frames, height, width in grid.tolist():
        rows = torch.arange(height).unsqueeze(1).expand(-1, width)
        columns = torch.arange(width).unsqueeze(0).expand(height, -1)
        places.append((rows * columns).flatten().repeat(frames))
    return x * torch.cat(places)[:, None]


def _linspace_of_rows(x: Tensor, grid: Tensor) -> Tensor:
    found = []
    for frames, height, width in grid:
        rows = torch.linspace(0, 3, height)
        columns = torch.linspace(0, 3, width)
        found.append((rows[:, None] + columns[None]).flatten().repeat(frames))
    return x + torch.cat(found)[:, None]


def _attention_by_cumulative_lengths(x: Tensor, grid: Tensor) -> Tensor:
    ends = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0]).cumsum(0)
    ends = functional.pad(ends, (1, 0))
    lengths = (ends[1:] - ends[:-1]).tolist()
    return torch.cat([part.softmax(0) for part in torch.split(x, lengths)])


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "program", [_rows_of_a_grid, _linspace_of_rows, _attention_by_cumulative_lengths]
)
def test_images_of_many_sizes(program: Program, fullgraph: bool) -> None:
    _assert_one_graph_each(lambda: fresh(program), IMAGES, fullgraph=fullgraph)


def _split_and_padded(x: Tensor, lengths: Tensor) -> Tensor:
    most = max(lengths.tolist())
    parts = x.split(lengths.tolist())
    return torch.stack([functional.pad(each, (0, 0, 0, most - len(each))) for each in parts])


def _as_integers(x: Tensor, lengths: Tensor) -> Tensor:
    begin, sums = 0, []
    for length in [int(each) for each in lengths]:
        sums.append(x[begin : begin + length].sum(0))
        begin += length
    return torch.stack(sums)


def _as_many_as_a_tensor_says(x: Tensor, lengths: Tensor) -> tuple[Tensor, list[int], str]:
    chunks = torch.ceil(lengths / 2).long()
    whole = [2] * chunks.sum()
    text = "ab" * chunks.max()
    return x * len(whole), whole, text


def _written_in_place(x: Tensor, lengths: Tensor) -> Tensor:
    chunks = torch.ceil(lengths / 2).long()
    sizes = torch.full((int(chunks.sum()),), 2)
    sizes[chunks.cumsum(0) - 1] = lengths - (chunks - 1) * 2
    return torch.cat([each.softmax(0) for each in x.split(sizes.tolist())])


def _through_a_fraction(x: Tensor, lengths: Tensor) -> Tensor:
    steps = [torch.arange(0, 1 - 1e-6, 1 / each) for each in lengths]
    return x * torch.cat(steps)[:, None]


class _Kept(nn.Module):
    """Keeps the lengths on itself, and reads them in another module."""

    class Layer(nn.Module):
        def __init__(self, owner: dict[str, Any]) -> None:
            super().__init__()
            self.owner = owner
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.linear(each) for each in x.split(self.owner["sizes"])])

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, Any] = {}
        self.layer = self.Layer(self.shared)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        self.shared["sizes"] = lengths.tolist()
        return self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "program",
    [
        _split_and_padded,
        _as_integers,
        _as_many_as_a_tensor_says,
        _written_in_place,
        _through_a_fraction,
    ],
)
def test_sequences_of_many_lengths(program: Program, fullgraph: bool, training: bool) -> None:
    _assert_one_graph_each(lambda: fresh(program), LENGTHS, fullgraph=fullgraph, training=training)


@pytest.mark.parametrize("training", [False, True])
def test_numbers_that_are_kept_on_an_object(training: bool) -> None:
    _assert_one_graph_each(_Kept, LENGTHS, training=training)


def _other_slices_by_a_flag(x: Tensor, lengths: Tensor, doubled: bool) -> Tensor:
    if doubled:
        lengths = lengths.flip(0)
    return torch.cat([part.softmax(0) for part in x.split(lengths.tolist())])


def test_what_is_computed_depends_on_the_path_taken() -> None:
    calls = [(*each, flag) for each in LENGTHS[:2] for flag in (False, True, False)]
    _assert_one_graph_each(lambda: fresh(_other_slices_by_a_flag), calls)


def _changed_before(x: Tensor, lengths: Tensor) -> Tensor:
    lengths.add_(1)
    return torch.cat([part.softmax(0) for part in x.split(lengths.tolist())])


def test_an_argument_that_is_changed_first_is_not_read_too_early() -> None:
    calls = [
        (torch.randn(9, 4), torch.tensor([1, 2, 3])),
        (torch.randn(9, 4), torch.tensor([6, 1])),
    ]
    assert_equivalent(
        lambda: fresh(_changed_before), _calls(calls), fullgraph=False, graphs=None, recompiles=None
    )


class _Layered(nn.Module):
    """Reads of a result of a weight how to go on, which is not computed twice."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        counts = torch.bincount(self.router(x).argmax(-1))
        return torch.cat([part.softmax(0) for part in x.split(counts.tolist())])


def test_what_weights_decide_is_left_as_it_is() -> None:
    module = _Layered()
    bcmend.patch(module)
    compiled = torch.compile(module, backend="eager")
    x = torch.randn(7, 4)
    assert torch.equal(compiled(x), module(x))
    assert not any(each.lowering == "ahead" for each in bcmend.report(module).sites)


def _indexed(x: Tensor, places: Tensor) -> Tensor:
    return torch.stack([x[at] for at in places.tolist()])


def test_a_call_that_raises_raises_the_same() -> None:
    program = fresh(_indexed)
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager")
    x = torch.randn(5, 2)
    for places in ([0, 4], [1, 2], [1, 5], [3, 3], [-6, 0], [2, 1]):
        expected, found = (_outcome(each, x, torch.tensor(places)) for each in (_indexed, compiled))
        assert type(found) is type(expected)
        assert str(found) == str(expected)


def _checked(x: Tensor, lengths: Tensor) -> Tensor:
    if x.shape[0] != sum(lengths.tolist()):
        raise ValueError(f"{x.shape[0]} rows, and {sum(lengths.tolist())} by the lengths")
    return torch.stack([each.sum(0) for each in x.split(lengths.tolist())])


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_is_raised_for_some_numbers_is_raised_as_it_is(fullgraph: bool) -> None:
    x = torch.randn(5, 3)
    calls = [(x, torch.tensor(each)) for each in ([2, 3], [1, 4], [4, 4], [5], [2, 2, 1], [1, 1])]
    _assert_one_graph_each(lambda: fresh(_checked), calls, fullgraph=fullgraph)


def _outcome(program: Program, *given: Any) -> Any:
    try:
        return program(*given)
    except IndexError as error:
        return error


def test_another_layout_is_another_variant_up_to_the_limit() -> None:
    program = fresh(_attention_by_cumulative_lengths)
    bcmend.patch(program)
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(program, backend=counter)
    layouts = _patches(*([(1, 2, 2)] * count for count in range(1, 13)))
    with torch._dynamo.config.patch(recompile_limit=4):
        for given in (*layouts, *layouts):
            assert torch.equal(compiled(*given), _attention_by_cumulative_lengths(*given))
        before = counter.frame_count
        for given in layouts:
            compiled(*given)
    assert counter.frame_count == before
    assert before > 4  # what is beyond the limit is compiled in pieces


def test_the_policy_leaves_numbers_in_the_graph() -> None:
    program = fresh(_attention_by_cumulative_lengths)
    bcmend.patch(program, policy=Policy(numbers="graph"))
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        torch.compile(program, backend="eager", fullgraph=True)(*IMAGES[0])


def test_a_report_lists_what_is_computed_in_front() -> None:
    program = fresh(_attention_by_cumulative_lengths)
    bcmend.patch(program)
    torch.compile(program, backend="eager", fullgraph=True)(*IMAGES[0])
    (site,) = (each for each in bcmend.report(program).sites if each.kind == "number")
    assert (site.status, site.lowering) == ("mended", "ahead")


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_two_steps_of_training(backend: str) -> None:
    _assert_one_graph_each(_Kept, LENGTHS[:2], training=True, backend=backend)


def _turns(x: Tensor, counts: Sequence[int]) -> Tensor:
    for count in counts:
        for _ in range(count):
            x = x + 1
    return x


def _written_by_vmap(x: Tensor, counts: Tensor) -> Tensor:
    torch.vmap(lambda each: each.add_(1))(counts)
    return _turns(x, counts.tolist())


def _written_in_a_checkpoint(x: Tensor, counts: Tensor) -> Tensor:
    checkpoint(lambda each: each.add_(1), counts, use_reentrant=False)
    return _turns(x, counts.tolist())


def _of_another_dtype(x: Tensor, counts: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    numbers = (counts / 3.0 * 3e9).long() % 29
    torch.set_default_dtype(torch.float32)
    return _turns(x, numbers.tolist())


def _by_numpy(x: Tensor, counts: Tensor) -> Tensor:
    return _turns(x, torch.from_numpy(counts.numpy() + 1).tolist())


def _with_a_warning(x: Tensor, counts: Tensor) -> Tensor:
    return _turns(x, (torch.range(0, 1).long() + counts).tolist())


def _counts(*found: Sequence[int]) -> Arguments:
    return [(torch.zeros(1), torch.tensor(each)) for each in found]


@pytest.mark.parametrize(
    "program",
    [_written_by_vmap, _written_in_a_checkpoint, _of_another_dtype, _by_numpy],
)
def test_what_cannot_be_run_in_front_is_not(program: Program) -> None:
    assert_equivalent(
        lambda: fresh(program),
        _calls(_counts([2, 1], [100, 157], [0, 3])),
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


def _read_behind_a_write(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
    one.add_(1)
    return _turns(x, other.tolist())


def test_inputs_that_share_memory_at_a_later_call() -> None:
    program = fresh(_read_behind_a_write)
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager")
    x, counts = torch.zeros(1), torch.tensor([1, 2])
    assert compiled(x, torch.tensor([5, 6]), counts).item() == 3
    assert compiled(x, counts.data, counts).item() == 5


def _by_a_flag(x: Tensor, given: Any, first: bool) -> Tensor:
    counts = given["n"] if first else given["m"]
    return _turns(x, counts.tolist())


def test_nothing_is_read_of_another_kind_of_container() -> None:
    program = fresh(_by_a_flag)
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager")
    counts = torch.tensor([1, 2])
    assert compiled(torch.zeros(1), {"n": counts, "m": counts}, True).item() == 3
    given = defaultdict(lambda: torch.tensor([4]), m=counts)
    assert compiled(torch.zeros(1), given, False).item() == 3
    assert list(given) == ["m"]


def _pairs(x: Tensor, small: bool) -> Tensor:
    if small:
        alike = (x[:, None] == x[None]).sum(0).long()
        return _turns(x, torch.repeat_interleave(alike, alike).tolist())
    return x.sum()


def test_nothing_large_is_computed_for_a_path_that_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []
    given = ahead.given

    def noted(*called: Any) -> Any:
        numbers = given(*called)
        found.append((*called[:2], numbers))
        return numbers

    monkeypatch.setattr(ahead, "given", noted)
    program = fresh(_pairs)
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager")
    x = torch.arange(3.0)
    assert torch.equal(compiled(x, True), _pairs(x, True))
    state, body, numbers = found[-1]
    assert numbers == ((1, 1, 1),)
    many = torch.zeros(1).expand(2**40)  # no memory has room for a pair of each
    assert given(state, body, (many, False)) == (None,)


def test_a_slice_that_warns_is_not_run_twice() -> None:
    program = fresh(_with_a_warning)
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager")
    for counts in ([2, 1], [3, 4], [5, 2]):
        given = torch.zeros(1), torch.tensor(counts)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what is run in front of the graph would raise
            with suppress(UserWarning):
                assert torch.equal(compiled(*given), _turns(given[0], [counts[0], counts[1] + 1]))
    assert not any(each.kind == "number" for each in bcmend.report(program).sites)


class _Normed(nn.Module):
    """Counts its calls, and normalizes: both change buffers before the numbers are read."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        self.calls += 1
        parts = self.norm(x).split(lengths.tolist())
        return torch.stack([each.sum(0) for each in parts])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_a_call_changes_is_not_what_the_numbers_are_read_of(
    training: bool, fullgraph: bool
) -> None:
    _assert_one_graph_each(_Normed, LENGTHS, training=training, fullgraph=fullgraph)


class _Chosen(nn.Module):
    """A side is chosen, each of two operations that are not computed in vain, before the read."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.one(x).relu_()
            for _ in range(30):
                x = x @ self.one.weight
        else:
            x = self.other(x)
            for _ in range(30):
                x = x @ self.other.weight
        return torch.stack([each.sum(0) for each in x.split(lengths.tolist())])


@pytest.mark.parametrize("training", [False, True])
def test_numbers_are_read_behind_a_side_that_is_chosen(training: bool) -> None:
    _assert_one_graph_each(_Chosen, LENGTHS, training=training)


def test_a_list_that_is_changed_at_once_may_hold_what_is_read() -> None:
    def program(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
        made = other * 2
        torch._foreach_add_([one, made], 1)
        return _turns(x, made.tolist())

    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager")
    x, one = torch.zeros(1), torch.tensor([5, 6])
    assert compiled(x, one, torch.tensor([1, 2])).item() == 8
    assert one.tolist() == [6, 7]
    assert compiled(x, one, one).item() == 28
    assert one.tolist() == [7, 8]


def test_memory_of_two_storages_at_a_later_call() -> None:
    program = fresh(_read_behind_a_write)
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager")
    x, counts = torch.zeros(1), numpy.array([1, 2])
    assert compiled(x, torch.tensor([5, 6]), torch.from_numpy(counts)).item() == 3
    assert compiled(x, torch.from_numpy(counts), torch.from_numpy(counts)).item() == 5


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_a_call_raises_for_its_numbers_was_raised_in_no_context(fullgraph: bool) -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        if set(lengths.tolist()) != {1, 2}:
            raise ValueError(f"{lengths.tolist()}")
        return x * 2

    arguments = [(torch.ones(3), torch.tensor(each)) for each in ([1, 2], [1, 3], [2, 1], [3, 3])]
    assert_equivalent(
        lambda: program, _calls(arguments), fullgraph=fullgraph, graphs=None, recompiles=None
    )


def _blocks_by_a_truth(x: Tensor, lengths: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(lengths.max() > 3)):
        y = x @ x.T
    with torch.set_grad_enabled((lengths.sum() > 9).item()):
        return y.float() * 2


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_truth_that_has_to_be_a_constant(fullgraph: bool) -> None:
    arguments = _parts([2, 3], [4, 1], [2, 3], [5, 5])
    _assert_one_graph_each(lambda: fresh(_blocks_by_a_truth), arguments, fullgraph=fullgraph)


def _quotients(x: Tensor, n: Tensor) -> Tensor:
    total, k = 0, 3
    while k > -2:
        try:
            total += 10 // (k - n.item())
        except ZeroDivisionError:
            print("no quotient at", k)
        k -= 1
    return x + total


@pytest.mark.parametrize("fullgraph", [True, False])
def test_what_fails_of_numbers_computed_in_front_is_handled(fullgraph: bool) -> None:
    """In a call whose graph has nothing but such numbers."""
    calls = lambda: [call(torch.ones(2), torch.tensor(n)) for n in (2, 5, 0, 3, 1)]  # noqa: E731
    options: Any = {"graphs": None, "recompiles": None, "fullgraph": fullgraph}
    assert_equivalent(lambda: _quotients, calls, **options)


def _columns_used(places: Tensor) -> Tensor:
    count = places.max().item() + 1
    found = torch.nn.functional.one_hot(places, count)
    if found.shape[1] > 3:
        print("wide", found.shape)
    return found.sum(0)


def test_an_operation_on_numbers_computed_in_front_fails_at_its_own_line() -> None:
    given = [[0, 1, 2], [0, 4, 2], [0, 0, 0], [0, -1, 2]]
    calls = lambda: [call(torch.tensor(each)) for each in given]  # noqa: E731
    assert_equivalent(lambda: _columns_used, calls, graphs=None, recompiles=None)


# Numbers of inputs that the call has changed before


def _filled_first(x: Tensor, counts: Tensor) -> Tensor:
    if counts.sum() == 0:
        counts[counts.eq(0)] = 1
    return torch.cat([each.repeat(int(n), 1) for each, n in zip(x, counts, strict=True) if n != 0])


def _before_and_after(x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    first = _turns(x, [int(counts[0])])
    last = counts[-1]
    counts.add_(1)
    counts[0] *= 2
    return _turns(first * 3, [int(last), *counts.tolist()]), counts


class _Counted(nn.Module):
    """Goes on by a number of its own, which each call changes first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        self.seen += counts[0] + 1
        return _turns(x, [int(self.seen)])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: fresh(_filled_first), lambda: fresh(_before_and_after), _Counted]
)
def test_numbers_of_an_input_that_is_changed_first(make: Callable[[], Any], training: bool) -> None:
    calls = [(torch.randn(2, 1), torch.tensor(each)) for each in ([2, 1], [0, 0], [3, 0], [2, 1])]
    assert_equivalent(make, _calls(calls), training=training, graphs=None, recompiles=None)


def _both_changed(x: Tensor, one: Tensor, other: Tensor) -> Tensor:
    one.add_(1)
    other.mul_(2)
    return _turns(x, [*one.tolist(), *other.tolist()])


@pytest.mark.parametrize("one_is_wide", [False, True])
def test_changed_inputs_that_share_memory_at_a_later_call(one_is_wide: bool) -> None:
    compiled = torch.compile(bcmend.patch(fresh(_both_changed)), backend="eager")
    for shared in (False, True, False):
        x, one = torch.zeros(1), torch.tensor([1, 2, 3, 4])
        other = one if shared else one.clone()
        given = (one[::2], other[2:]) if one_is_wide else (one[:2], other[1:3])
        expected = _both_changed(x, *(each.clone() for each in given))
        if shared:
            copies = one.clone()
            views = (copies[::2], copies[2:]) if one_is_wide else (copies[:2], copies[1:3])
            expected = _both_changed(x, *views)
        assert torch.equal(compiled(x, *given), expected)


# A fraction that varies from call to call


def _stretched(x: Tensor, counts: Tensor, by: float) -> Tensor:
    longer = torch.round(counts.float() * by).long()
    return torch.cat([each.repeat(int(n), 1) for each, n in zip(x, longer, strict=True) if n != 0])


class _Stretching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = 0.5

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        self.by += 0.5
        for n in range(int(counts.sum() * self.by)):
            print(n)
            x = x + n
        return x


@pytest.mark.parametrize("training", [False, True])
def test_numbers_that_depend_on_a_fraction_of_the_call(training: bool) -> None:
    x, counts = torch.randn(2, 3), torch.tensor([3, 1])
    calls = [(x.clone(), counts, by) for by in (1.0, 1.5, 0.5, 2.5, 1.0)]
    for make, given in (
        (lambda: fresh(_stretched), calls),
        (_Stretching, [each[:2] for each in calls[:4]]),
    ):
        assert_equivalent(make, _calls(given), training=training, graphs=None, recompiles=None)


def test_a_number_of_numpy_in_place_of_a_fraction() -> None:
    calls = [
        (torch.ones(2, 1), torch.tensor([2, 1]), by) for by in (1.5, 2.5, numpy.float64(3.5), 1.0)
    ]
    assert_equivalent(
        lambda: fresh(_stretched), _calls(calls), fullgraph=False, graphs=None, recompiles=None
    )
