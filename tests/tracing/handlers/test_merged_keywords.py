"""A keyword that is given twice raises in a mended arm what it raises in eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call


def _keywords(**given: int) -> int:
    return sum(given.values())


def _of_a_class(more: dict[str, int]) -> object:
    return dict(a=1, **more)


def _of_a_function(more: dict[str, int]) -> object:
    return _keywords(a=1, **more)


def _of_two(more: dict[str, int]) -> object:
    first = {"a": 1, "c": 2}
    return _keywords(**first, **more)


CALLS = [_of_a_class, _of_a_function, _of_two]


def _calls() -> list[Any]:
    return [call(torch.ones(2) * each) for each in (1, -1, 2, -2, 1)]


@pytest.mark.parametrize("given", CALLS, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("key", ["a", "b"])
def test_what_is_raised(given: Callable[..., object], key: str) -> None:
    def program(x: Tensor) -> Any:
        more, found = {key: 2}, None
        try:
            if x.sum() > 0:
                found = given(more)
            else:
                x = x * 3
            return x + 1, found
        except TypeError as error:
            return x - 1, str(error)

    assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)
