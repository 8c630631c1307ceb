"""Functions that compute arrays on the host, called inside the graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported, UserError

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.search import strict
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import host_functions
from tests import own_faults
from tests.equivalence import Call, assert_equivalent, call, compare, fresh
from tests.tracing.in_trace import during_trace

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def chosen(lengths: Tensor, size: int, scale: float = 1.0) -> Any:
    """Return an array of one shape, with numbers at places that are drawn as lengths allow."""
    array = numpy.zeros((2, size))
    for row, length in enumerate(lengths.tolist()):
        places = numpy.random.choice(numpy.arange(length), max(1, length // 2), replace=False)
        array[row, places] = scale
    return array


def drawn(count: Tensor) -> Any:
    """Return as many numbers as the data say."""
    number = max(count.item(), 1)
    return numpy.random.choice(numpy.arange(number), number, replace=False) * 1.0


def changed(lengths: Tensor) -> Any:
    """Change an argument, which a copy would not show."""
    array = numpy.array(lengths.tolist())
    view = lengths.numpy()
    view[0] = 7
    return array


def _lengths() -> list[Any]:
    x = torch.arange(16.0).reshape(2, 8)
    return [call(x.clone(), torch.tensor(each)) for each in ([8, 6], [1, 8], [5, 5])]


def _equal(program: Any, inputs: Any = _lengths, **options: Any) -> None:
    for backend in ("eager", "aot_eager"):
        options.update(backend=backend, fullgraph=True)
        assert_equivalent(lambda: copy.deepcopy(program), inputs, **options)


def test_an_array_of_one_shape() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.from_numpy(chosen(lengths, 8)).float()
        return x * mask + numpy.random.rand() * torch.rand(8)

    with pytest.raises(AssertionError):  # the number behind it cannot be drawn before the graph
        _equal(program)

    def other(x: Tensor, lengths: Tensor) -> Tensor:
        x = x * numpy.random.rand()
        mask = torch.from_numpy(chosen(lengths * 1, 8)).float()
        twice = torch.tensor(chosen(lengths, size=8, scale=2.0), dtype=torch.float32)
        return x * mask + twice + torch.rand(8)

    _equal(other)
    _equal(other, training=True)


def test_the_numbers_are_drawn_afresh_at_each_call() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        return x + torch.from_numpy(chosen(lengths, 8))

    compiled = torch.compile(bcmend.patch(program), backend="aot_eager", fullgraph=True)
    x, lengths = torch.zeros(2, 8), torch.tensor([8, 8])
    results = []
    for seed in (1, 2, 1):
        numpy.random.seed(seed)
        results.append(compiled(x, lengths))
    assert torch.equal(results[0], results[2])
    assert not torch.equal(results[0], results[1])


def test_a_shape_that_depends_on_data() -> None:
    def program(x: Tensor, count: Tensor) -> Tensor:
        return x.sum() + torch.from_numpy(drawn(count)).sum() + torch.rand(1)

    counts = [call(torch.ones(3), torch.tensor(count)) for count in (3, 3, 5, 0)]
    _equal(program, lambda: counts)


def test_sizes_that_vary_from_call_to_call() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        return x * torch.from_numpy(chosen(lengths, x.shape[1])).float()

    def sizes() -> list[Any]:
        return [call(torch.ones(2, size), torch.tensor([size, 2])) for size in (8, 5, 8, 6)]

    _equal(program, sizes, graphs=3, recompiles=2)


def test_a_function_that_fails() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        print("before")
        try:
            array = chosen(lengths, 8)
        except ValueError:
            return x - 1
        return x * torch.from_numpy(array)

    x = torch.ones(2, 8)
    _equal(program, lambda: [call(x, torch.tensor(each)) for each in ([4, 4], [0, 4], [3, 9])])


def test_a_function_that_changes_its_argument() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        return x * torch.from_numpy(changed(lengths)).sum() + lengths.sum()

    original = fresh(program)
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    for numbers in ([1, 2], [4, 5], [2, 3, 1]):
        given, expected = torch.tensor(numbers), torch.tensor(numbers)
        result = original(torch.ones(2), expected)
        assert torch.equal(compiled(torch.ones(2), given), result)
        assert torch.equal(given, expected)


class Dropped(nn.Module):
    """Calls the function under a condition that no number in front of the graph can be."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if (x * self.scale).sum() > 0:
            x = x * torch.from_numpy(chosen(lengths, 8)).float()
        return x


def test_a_call_under_a_condition_of_arguments() -> None:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * torch.from_numpy(chosen(lengths, 8)).float()
        return x

    def calls() -> list[Call]:
        return [
            call(sign * torch.ones(2, 8), torch.tensor(each))
            for each in ([8, 4], [3, 5], [1, 2])
            for sign in (1, -1, 1)
        ]

    found = compare(lambda: program, calls)
    assert (found.eager_differences, found.differences) == ((), ())


def test_a_call_under_a_condition_of_a_parameter_stays() -> None:
    model = bcmend.patch(Dropped())
    with pytest.raises((Unsupported, UserError)):
        torch.compile(model, backend="eager", fullgraph=True)(
            torch.ones(2, 8), torch.tensor([8, 4])
        )
    assert "no-equal-substitute" in {site.refusal for site in bcmend.report(model).refused}


def test_code_that_is_not_patched_is_left_alone() -> None:
    def mended(x: Tensor, lengths: Tensor) -> Tensor:
        return x + torch.from_numpy(chosen(lengths, 8))

    def plain(x: Tensor, lengths: Tensor) -> Tensor:
        return x + torch.from_numpy(chosen(lengths, 8))

    given = torch.ones(2, 8), torch.tensor([8, 4])
    torch.compile(bcmend.patch(mended), backend="eager", fullgraph=True)(*given)
    with pytest.raises((Unsupported, UserError)):
        torch.compile(plain, backend="eager", fullgraph=True)(*given)


# The operator and the answer, called directly


def _summed(values: Any, scale: float = 1.0) -> Any:
    return values.numpy().sum(keepdims=True) * scale


def _changes(values: Any) -> Any:
    values.numpy()[:] = 7
    return values.numpy()


def _fails(values: Any) -> Any:
    raise ValueError("no")


def _made(function: Any = _summed, **kwargs: Any) -> Any:
    return host_functions._Made(function, [host_functions._Place()], kwargs)


def _run(function: Any, *more: Any) -> Any:
    made = _made(function)
    host_functions._CALLS[made.key] = made
    return host_functions._run(made.key, [torch.tensor([1.0, 2.0])], *more)


def test_a_call_is_filled_with_tensors_at_their_places() -> None:
    assert _made(scale=2.0)([torch.tensor([1.0, 2.0])]).tolist() == [6.0]


def test_the_operator_gives_the_array_of_the_call() -> None:
    array, is_other = _run(_summed, [1], torch.float32)
    assert array.tolist() == [3.0] and not is_other


@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
        (_summed, [2], torch.float32),
        (_summed, [1], torch.float64),
        (_changes, [2], torch.float32),
        (_fails, [1], torch.float32),
    ],
    ids=["shape", "dtype", "changes its argument", "fails"],
)
def test_the_operator_asks_for_plain_python(function: Any, shape: Any, dtype: Any) -> None:
    array, is_other = _run(function, shape, dtype)
    fake, fake_other = host_functions._fake("", [], shape, dtype)
    assert is_other and array.tolist() == [0.0] * shape[0]
    assert (fake.shape, fake.dtype, fake_other.dtype) == (array.shape, dtype, is_other.dtype)


def test_copies_are_compared_bit_for_bit() -> None:
    nan = torch.tensor([float("nan")])
    assert host_functions._are_equal([nan], [nan.clone()])
    assert not host_functions._are_equal([torch.tensor([0.0])], [torch.tensor([-0.0])])


def test_another_function_of_the_same_name_has_another_key() -> None:
    def body(tx: Any, x: Any) -> Any:
        def same_name(values: Any) -> Any:
            return values

        same_name.__qualname__, same_name.__module__ = _summed.__qualname__, __name__
        calls = [_made(), _made(), _made(same_name)]
        return [host_functions._registered(tx, each) for each in calls]

    one, again, other = during_trace(body, torch.ones(1))
    assert one == again and other == f"{one}'"


def test_arguments_are_places_and_constants() -> None:
    def body(tx: Any, x: Any, y: Any) -> Any:
        tensors: list[Any] = []
        given = compat.TupleVariable([constant(1), constant("a")])
        places = [host_functions._argument(each, tensors) for each in (x, given, constant(None))]
        with pytest.raises(Refusal, match="requires gradients"):
            host_functions._argument(y, tensors)
        with pytest.raises(Refusal, match="no constant"):
            host_functions._argument(compat.ListVariable([x]), tensors)
        return list(map(repr, places)), tensors == [x]

    found = during_trace(body, torch.ones(1), torch.ones(1, requires_grad=True))
    assert found == (["<tensor>", "(1, 'a')", "None"], True)


@pytest.mark.parametrize(
    ("function", "detail"), [(_changes, "changes an argument"), (_fails, "raises ValueError")]
)
def test_calls_that_cannot_be_tried_are_refused(function: Any, detail: str) -> None:
    def body(tx: Any, x: Any) -> None:
        with pytest.raises(Refusal, match=detail):
            host_functions._tried(_made(function), [x])

    during_trace(body, torch.ones(2))


@pytest.mark.parametrize("give", [len, chosen])
def test_a_function_that_fails_is_no_fault_of_our_own(
    give: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    with pytest.raises(Refusal, match="it raises TypeError when it is tried"):
        host_functions._tried(host_functions._Made(give, (1, 2, 3, 4), {}), [])


def test_a_fault_of_our_own_is_no_failure_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    made = host_functions._Made(own_faults.fault, (), {})
    monkeypatch.setattr(strict, "IS_ON", True)
    monkeypatch.setitem(host_functions._CALLS, "a fault", made)
    with pytest.raises(strict.InternalError, match="a fault"):
        host_functions._tried(made, [])
    with pytest.raises(strict.InternalError, match="a fault"):
        host_functions._run("a fault", [], [], torch.float32)
    monkeypatch.setattr(strict, "IS_ON", False)
    _, is_plain = host_functions._run("a fault", [], [], torch.float32)
    assert is_plain
