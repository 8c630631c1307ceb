"""Which functions may be called by an operator in the graph."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bcmend.analysis.host_only import is_host_only

numpy: Any = ModuleType("numpy")  # nothing here is called
TABLE = {"a": 1}
STATE = SimpleNamespace(count=0)


def doubled(count: int) -> int:
    return count * 2


def told(count: int) -> int:
    print(count)
    return count


def draws(lengths: Any, width: int = 2) -> Any:
    mask = numpy.zeros((2, 8), dtype=bool)

    def count(length: int) -> int:
        return max(1, int(length / width + numpy.random.rand(1).item()))

    for row, length in enumerate(lengths.detach().tolist()):
        if length < width:
            raise ValueError(f"too short: {length}")
        mask[row, : doubled(count(length)) + random.randint(0, 1)] = math.sqrt(9) == 3
    return mask


def prints(x: Any) -> Any:
    print(x)
    return numpy.array(x.tolist())


def prints_in_another(x: Any) -> Any:
    return numpy.array([told(each) for each in x.tolist()])


def stores_to_an_object(x: Any) -> Any:
    STATE.count += 1
    return numpy.array(x.tolist())


def stores_to_an_argument(x: Any) -> Any:
    x.seen = True
    return numpy.array(x.tolist())


def sets_a_global(x: Any) -> Any:
    global TABLE
    TABLE = {}
    return numpy.array(x.tolist())


def reads_a_table(x: Any) -> Any:
    return numpy.array([TABLE["a"], *x.tolist()])


def reads_a_file(x: Any) -> Any:
    return numpy.load(Path("x"))


def imports(x: Any) -> Any:
    import json

    return numpy.array(json.loads("[1]"))


def changes_in_place(x: Any) -> Any:
    x.add_(1)
    return numpy.array(x.tolist())


def waits(x: Any) -> Any:
    numbers = x.tolist()
    while sum(numbers) > 0:
        numbers = [each - 1 for each in numbers]
    return numpy.array(numbers)


def yields(x: Any) -> Any:
    yield numpy.array(x.tolist())


def without_numpy(x: Any) -> Any:
    return [max(each, 0) for each in x.tolist()]


def _with_a_closure() -> Callable[..., Any]:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(x)
        return numpy.array(x.tolist())

    return function


def test_a_function_of_numpy_alone() -> None:
    assert is_host_only(draws)


@pytest.mark.parametrize(
    "function",
    [
        prints,
        prints_in_another,
        stores_to_an_object,
        stores_to_an_argument,
        sets_a_global,
        reads_a_table,
        reads_a_file,
        imports,
        changes_in_place,
        waits,
        yields,
        without_numpy,
        _with_a_closure(),
    ],
)
def test_others_may_be_noticed(function: Any) -> None:
    assert not is_host_only(function)


def test_the_code_is_as_it_was_written() -> None:
    assert not is_host_only(draws, lambda function: prints.__code__)
