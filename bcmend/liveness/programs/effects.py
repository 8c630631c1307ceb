"""What a side of a branch changes, and what it takes out of iterators."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from bcmend.dynamo.models import methods
from bcmend.liveness.program import Arguments, beside, program

Function = Callable[..., Any]


class Items(list[Any]):
    """A list with attributes."""


class Table(dict[str, Any]):
    """A dictionary with attributes."""


class Point:
    """An object with attributes, and a class attribute."""

    made = 0

    def __init__(self) -> None:
        self.x = 1


@program("operators[bcmend_branch]", inputs=beside(Point))
def attributes() -> Function:
    def program(x: Tensor, point: Any) -> Any:
        if x.sum() > 0:
            point.x = x * 2
            point.y = 3
        else:
            point.x = x - 1
        return x + 1, hasattr(point, "y")

    return program


@program(inputs=beside(lambda: [5, 6]))
def lists() -> Function:
    def program(x: Tensor, items: list[Any]) -> Any:
        if x.sum() > 0:
            items.append(x * 2)
            items[0] = 7
        else:
            items.insert(0, 3)
            del items[-1]
        items.append(4)
        return x + 1, len(items)

    return program


@program(inputs=beside(Items, Table))
def containers_of_own_classes() -> Function:
    def program(x: Tensor, items: Items, table: Table) -> Any:
        if x.sum() > 0:
            items.extend([1, 2])
            table["b"] = x * 2
        else:
            items.append(x - 1)
            table["a"] = 3
        return x + 1, len(items), list(table)

    return program


def tables() -> list[Arguments]:
    """Calls with dictionaries, of which the last have one key more."""
    given = beside(lambda: {"a": 1, "b": 2}, lambda: collections.OrderedDict(a=1, b=2))
    more = [(x, {"c": 0, **table}, collections.OrderedDict(c=0)) for x, table, _ in given()]
    return [*given(), *more]


@program(
    "ConstDictVariable.call_method:popitem",
    "OrderedDictVariable.call_method:popitem",
    inputs=tables,
)
def dictionaries() -> Function:
    def program(x: Tensor, table: Any, ordered: Any) -> Any:
        if x.sum() > 0:
            table["c"] = x * 2
        else:
            del table["a"]
        return x + 1, table.popitem()[0], ordered.popitem()

    return program


def keys_in_another_order() -> list[Arguments]:
    given = beside(lambda: {"a": 1, "b": 2})
    return [*given(), *((x, {"b": 2, "a": 1}) for x, _ in given()), *((x, {}) for x, _ in given())]


@program(
    "ConstDictVariable.install_dict_keys_match_guard",
    "keys that a call depends on",
    inputs=keys_in_another_order,
)
def dictionaries_that_are_copied() -> Function:
    def program(x: Tensor, table: Any) -> Any:
        if x.sum() > 0:
            x = x * 2
        return x + 1, list(table.copy()), sorted(frozenset(table)), not table

    return program


@program("MappingProxyVariable._check_mutation_guard", inputs=beside(dict))
def proxies_of_other_dictionaries() -> Function:
    shown = MappingProxyType({"scale": 2.0})

    def program(x: Tensor, table: Any) -> Any:
        table["sum"] = x.sum()
        return (x + 1 if x.sum() > 0 else x - 1) * shown["scale"]

    return program


@program(inputs=beside(lambda: collections.defaultdict(list), lambda: {"a": 1}))
def other_methods_of_dictionaries() -> Function:
    def program(x: Tensor, lists: Any, table: Any) -> Any:
        if x.sum() > 0:
            lists["a"].append(x * 2)
            table.update(b=2)
            table.setdefault("c", 3)
        else:
            lists["b"] = [1]
            table |= {"a": x - 1}
        return x + 1, sorted(lists), table.get("c"), table.pop("a", None)

    return program


@program(inputs=beside(lambda: {1, 2}, lambda: collections.deque([1, 2], maxlen=3)))
def sets_and_deques() -> Function:
    def program(x: Tensor, members: Any, queue: Any) -> Any:
        if x.sum() > 0:
            members.add(3)
            queue.appendleft(x * 2)
        else:
            members.discard(1)
            queue.pop()
        return x + 1, len(members), len(queue)

    return program


@program()
def cells() -> Function:
    count, last = 0, None

    def program(x: Tensor) -> Any:
        nonlocal count, last
        if x.sum() > 0:
            count += 1
            last = x * 2
        else:
            count -= 1
        return x + count

    return program


LAST: Any = None


@program()
def names_of_a_module() -> Function:
    def program(x: Tensor) -> Any:
        global LAST
        if x.sum() > 0:
            LAST = x * 2
        else:
            LAST = 3
        return x + LAST

    return program


@program(inputs=beside(lambda: torch.zeros(3)))
def tensors_in_place() -> Function:
    def program(x: Tensor, total: Tensor) -> Any:
        if x.sum() > 0:
            total.add_(x)
            total[0] = 5
        else:
            total -= 1
        return x + total

    return program


@program(inputs=beside(lambda: iter([1, 2, 3])), fullgraph=False)
def iterators() -> Function:
    def program(x: Tensor, numbers: Iterator[int]) -> Any:
        if x.sum() > 0:
            return x + next(numbers), next(numbers)
        return x - next(numbers), next(numbers)

    return program


@program("LocalGeneratorFunctionVariable.call_function")
def generators() -> Function:
    def numbers(x: Tensor) -> Iterator[Any]:
        yield x * 2
        yield x - 1

    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            y = sum(numbers(x))
        else:
            y = next(numbers(x))
        return y, [each + 1 for each in numbers(x)]

    return program


@program()
def random_numbers() -> Function:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            y = x + torch.rand(3)
        else:
            y = x - 1
        return y, torch.randn(3)

    return program


@program("user_defined.call_random_fn")
def numbers_of_python_s_generator() -> Function:
    def program(x: Tensor) -> Any:
        number = random.uniform(0.0, 1.0)
        return (x + number if number > 0.5 else x - number), random.randint(1, 9)

    return program


@program(
    *(f"RandomVariable.{name}" for name in methods.DRAWN_WHILE_TRACING),
    inputs=beside(lambda: random.Random(3), lambda: [1, 2, 3]),
    fullgraph=False,
)
def a_generator_of_python_s() -> Function:
    def program(x: Tensor, generator: random.Random, items: list[int]) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        chosen = generator.sample(items, 2)
        generator.shuffle(items)
        return y, chosen

    return program


@program("kernels[cond, Autograd]", inputs=beside(lambda: torch.eye(3)))
def a_side_that_costs() -> Function:
    def program(x: Tensor, matrix: Tensor) -> Any:
        if x.sum() > 0:
            return torch.linalg.inv(matrix) @ x
        return x - 1

    return program
