"""Iterators that a branch advances are where eager execution leaves them, or the branch is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.differences_of_torch import GENERATORS_LEFT_IN_YIELD_FROM_FAIL
from tests.equivalence import Comparison, assert_equivalent, call, fresh


def _refusals(found: Comparison) -> set[str | None]:
    assert found.report is not None
    return {site.refusal for site in found.report.sites}


def _compare(program: Any, *, fullgraph: bool = True) -> Comparison:
    return assert_equivalent(
        lambda: fresh(program),
        lambda: [call(torch.tensor([value, 1.0])) for value in (0.5, -9.0, -2.5)],
        fullgraph=fullgraph,
        graphs=1 if fullgraph else None,
        recompiles=0 if fullgraph else None,
    )


def _left_early(x: Tensor) -> Tensor:
    x = x * 1
    for each in [1, 2, 3]:
        if x.sum() > 0:
            break
        x = x + each
    return x + 1


def _zipped(x: Tensor) -> Tensor:
    x = x * 1
    for one, other in zip([1, 2, 3], (3, 2, 1), strict=True):
        if x.sum() > 0:
            break
        x = x + one * other
    return x + 1


def _over_a_dictionary(x: Tensor) -> Tensor:
    x = x * 1
    for one, other in {1: 2, 3: 4}.items():
        if x.sum() > 0:
            return x - one
        x = x + other
    return x


def _advanced_in_an_arm(x: Tensor) -> Tensor:
    if x.sum() > 0:
        numbers = iter([1, 2, 3])
        return x + next(numbers)
    return x - 1


def _over_a_generator(x: Tensor) -> Tensor:
    def numbers() -> Iterator[int]:
        yield from (1, 2, 3)

    x = x * 1
    for each in numbers():
        if x.sum() > 0:
            break
        x = x + each
    return x + 1


def _rest_returned(x: Tensor) -> tuple[Tensor, list[int]]:
    x = x * 1
    numbers = iter([1, 2, 3])
    for each in numbers:
        if x.sum() > 0:
            break
        x = x + each
    return x, list(numbers)


def _rest_in_a_list(x: Tensor) -> tuple[Tensor, list[int]]:
    kept = [iter([1, 2, 3])]
    y = x * 1
    if x.sum() > 0:
        y = x + next(kept[0])
    return y, list(kept[0])


@pytest.mark.parametrize(
    "program",
    [
        *(_left_early, _zipped, _over_a_dictionary, _advanced_in_an_arm),
        *(_rest_returned, _rest_in_a_list),
        pytest.param(
            _over_a_generator,
            marks=pytest.mark.xfail(
                GENERATORS_LEFT_IN_YIELD_FROM_FAIL, reason="stock torch fails to close it"
            ),
        ),
    ],
    ids=lambda program: program.__name__[1:],
)
def test_how_far_an_iterator_has_come_is_known_on_each_side(program: Any) -> None:
    assert _refusals(_compare(program)) == {None}


def _open_generator(x: Tensor) -> Tensor:
    def numbers() -> Iterator[int]:
        with torch.no_grad():
            yield 1
            yield 2

    given = numbers()
    y = x + next(given)
    if x.sum() > 0:
        y = x + next(given)
    return y


def test_a_generator_that_stands_in_a_block_keeps_the_jump() -> None:
    assert "consumes-iterator" in _refusals(_compare(_open_generator, fullgraph=False))


def _logged(log: list[str]) -> Iterator[int]:
    try:
        yield 1
        yield 2
    finally:
        log.append("closed")


def _closed_behind_the_branch(x: Tensor, log: list[str]) -> Tensor:
    given = _logged(log)
    y = x + next(given)
    if x.sum() > 0:
        y = x * next(given)
    given.close()
    return y


def _closed_on_one_side(x: Tensor, log: list[str]) -> Tensor:
    given = _logged(log)
    y = x + next(given)
    if x.sum() > 0:
        given.close()
        log.append("left")
        y = x * 2
    log.append("end")
    return y


def _dropped(x: Tensor, log: list[str]) -> Tensor:
    def numbers() -> Iterator[int]:
        try:
            yield 1
        finally:
            log.append("closed")

    given = numbers()
    y = x + next(given)
    if x.sum() > 0:
        y = x * next(given, 9)
    log.append("end")
    return y


def _thrown_into(x: Tensor, log: list[str]) -> Any:
    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        except ValueError:
            log.append("caught")
            yield 7
        yield 8

    given: Any = numbers()
    y = x + next(given)
    if x.sum() > 0:
        y = x * given.throw(ValueError())
    return y, list(given)


def _of_a_generator(x: Tensor, log: list[str]) -> Tensor:
    def numbers() -> Iterator[int]:
        try:
            yield from _logged(log)
        finally:
            log.append("outer")

    given = numbers()
    y = x + next(given)
    if x.sum() > 0:
        y = x * next(given)
    given.close()
    return y


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "program",
    [_closed_behind_the_branch, _closed_on_one_side, _dropped, _thrown_into, _of_a_generator],
    ids=lambda program: program.__name__[1:],
)
def test_a_generator_is_closed_as_often_as_in_eager_execution(program: Any, training: bool) -> None:
    assert_equivalent(
        lambda: fresh(program),
        lambda: [call(torch.tensor([value, 1.0]), []) for value in (0.5, -9.0, 2.5)],
        fullgraph=False,
        graphs=None,
        recompiles=None,
        training=training,
    )


class _Kind(Tensor):
    pass


def _generator_over_a_subclass(x: Tensor, parts: list[Tensor]) -> Tensor:
    if any(isinstance(each, _Kind) for each in parts):
        x = x + 1
    more = parts[0] * 2
    print(x.sum())
    return more + x


def test_a_generator_that_is_set_back_leaves_what_torch_has_noted_in_its_module() -> None:
    # torch installs the class of a tensor among the variables of the module when it meets one.
    assert_equivalent(
        lambda: fresh(_generator_over_a_subclass),
        lambda: [call(torch.ones(2), [torch.zeros(2).as_subclass(_Kind)])] * 2,
        fullgraph=True,
        graphs=1,
    )
