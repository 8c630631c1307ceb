"""A list in a tuple of a module is the list that the module has, and is changed as that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

_Use = Callable[[Any, Tensor], Any]


def _appends(module: Any, x: Tensor) -> Any:
    module.pair[0].append(3)
    return x + len(module.items)


def _reads_what_was_appended(module: Any, x: Tensor) -> Any:
    module.items.append(3)
    return x + len(module.pair[0])


def _is_the_same(module: Any, x: Tensor) -> Any:
    return x + 1, module.pair[0] is module.items


def _keeps(module: Any, x: Tensor) -> Any:
    module.kept = module.pair[0]
    return x + 1, module.pair[1]


def _is_put_elsewhere(module: Any, x: Tensor) -> Any:
    module.pair = (module.pair[0], 1)
    return x + 1


def _adds_to_a_set(module: Any, x: Tensor) -> Any:
    module.marks[0][0].add(len(module.items))
    return x + len(module.seen)


def _changes_in_an_arm(module: Any, x: Tensor) -> Any:
    if x.max() > 2:
        module.pair[0].append(1)
    return x + len(module.items)


class _Holding(nn.Module):
    def __init__(self, use: _Use) -> None:
        super().__init__()
        self.use = use
        self.items, self.seen = [0], {0}
        self.pair: Any = (self.items, 0)
        self.marks = ((self.seen, "a"), 1)

    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            x = x * 2
        return self.use(self, x)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "use",
    [
        _appends,
        _reads_what_was_appended,
        _is_the_same,
        _keeps,
        _is_put_elsewhere,
        _adds_to_a_set,
        _changes_in_an_arm,
    ],
)
def test_it_is_the_list_of_the_module(use: _Use, training: bool) -> None:
    def calls() -> list[Any]:
        return [call(torch.tensor(each)) for each in ([1.0, 2.0], [-1.0, -2.0], [0.5, 0.5])]

    assert_equivalent(
        lambda: _Holding(use),
        calls,
        fullgraph=False,
        training=training,
        recompiles=None,
        graphs=None,
    )


def test_a_tuple_of_constants_stays_one() -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sizes = (2, (3, 2))

        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(self.sizes[1]) * 2 if x.sum() > 0 else x.view(3, -1) + 1

    assert_equivalent(Strided, lambda: [call(torch.ones(6)), call(-torch.ones(6))])


def test_what_is_not_read_is_no_input() -> None:
    given: list[int] = []

    def counting(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        given.append(len(inputs))
        return graph.forward

    def program(x: Tensor, cache: Any) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        return x + cache[0][0][0]

    cache = (([torch.ones(2)], [torch.ones(3)]), [torch.zeros(1)], torch.ones(4), 7)
    compiled = torch.compile(bcmend.patch(program), backend=counting, fullgraph=True)
    assert compiled(torch.ones(2), cache).tolist() == [3.0, 3.0]
    assert given == [2]
