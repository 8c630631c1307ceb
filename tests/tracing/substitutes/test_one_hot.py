"""``one_hot`` without a number of classes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh

X = torch.linspace(-1, 1, 5)
NUMBERS = [torch.tensor(each) for each in ([0, 3, 1, 1, 2], [6, 1, 0, 2, 4], [4, 4, 0, 0, 1])]


def test_as_many_classes_as_the_data_say() -> None:
    def counted(x: Tensor, numbers: Tensor) -> Tensor:
        return F.one_hot(numbers).float().sum(0) + x.sum()

    def calls() -> list[Call]:
        return [call(X, each) for each in NUMBERS]

    assert_equivalent(lambda: counted, calls)


def test_of_numbers_that_are_computed() -> None:
    def grouped(x: Tensor, numbers: Tensor) -> Tensor:
        rows = F.one_hot((numbers + (x > 0).long()).view(-1, 1)).float()
        return rows.squeeze(1).t() @ x

    assert_equivalent(lambda: grouped, lambda: [call(X, each) for each in NUMBERS])


def test_in_a_branch() -> None:
    def sums(x: Tensor, numbers: Tensor) -> Tensor:
        if x.sum() > 1:
            return F.one_hot(numbers).float().sum() + x
        return x - 1

    def calls() -> list[Call]:
        return [call(X + shift, each) for each in NUMBERS for shift in (0, 1)]

    assert_equivalent(lambda: sums, calls)


def test_with_a_number_of_classes_nothing_is_asked_for() -> None:
    def counted(x: Tensor, numbers: Tensor) -> Tensor:
        return F.one_hot(numbers, num_classes=8).float().sum(0) + x.sum()

    assert_equivalent(lambda: counted, lambda: [call(X, each) for each in NUMBERS])


@pytest.mark.parametrize("as_tensor", [False, True])
def test_with_a_number_of_classes_out_of_a_tensor(as_tensor: bool) -> None:
    def counted(x: Tensor, numbers: Tensor) -> Tensor:
        classes = numbers.max() + 2 if as_tensor else int(numbers.max()) + 2
        return F.one_hot(numbers, classes).float().sum(0) + x.sum()  # type: ignore[arg-type]

    def calls() -> list[Call]:
        return [call(X, torch.arange(5) * each) for each in range(10)]

    assert_equivalent(lambda: counted, calls, graphs=None, recompiles=2)


@pytest.mark.parametrize("numbers", [[0, 2], [3, 0], [-1, 1]])
def test_more_classes_than_there_are_to_be(numbers: list[int]) -> None:
    def counted(numbers: Tensor, classes: Tensor) -> Tensor:
        return F.one_hot(numbers, int(classes)) * 2

    compiled = torch.compile(bcmend.patch(fresh(lambda: counted)()), backend="eager")
    assert torch.equal(compiled(torch.tensor([1, 0]), torch.tensor(2)), 2 - 2 * torch.eye(2).long())
    with pytest.raises(RuntimeError) as expected:
        counted(torch.tensor(numbers), torch.tensor(2))
    with pytest.raises(RuntimeError) as found:
        compiled(torch.tensor(numbers), torch.tensor(2))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("numbers", [[-1, 2], [-2, -1], []])
def test_what_is_no_class_is_an_error_as_in_eager_execution(numbers: list[int]) -> None:
    def counted(x: Tensor, numbers: Tensor) -> Tensor:
        return F.one_hot(numbers).sum(0) + x.sum()

    compiled = torch.compile(bcmend.patch(fresh(lambda: counted)()), backend="eager")
    compiled(X, NUMBERS[0])
    given = torch.tensor(numbers, dtype=torch.long)
    with pytest.raises(RuntimeError) as expected:
        counted(X, given)
    with pytest.raises(RuntimeError) as found:
        compiled(X, given)
    assert str(found.value) == str(expected.value)
