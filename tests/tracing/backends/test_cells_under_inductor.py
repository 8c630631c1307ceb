"""Cells and layers in branches and loops, whose backward a back end compiles.

Torch computes many of them in place below autograd, where a back end that only traces sees nothing
wrong. Each program is a cell in a structure; a name says which, so that the choice never changes.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule, Node
from torch.nn import functional

import bcmend
from tests.samples import is_of_a_sample

#: What gives a state of three rows and four columns from what is given, of the same size.
Step = Callable[[nn.Module, Tensor, Tensor], Tensor]


def _lstm(cell: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    one, other = cell(given, (state, state))
    result: Tensor = one + 0.1 * other
    return result


def _pooled(layer: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    values, places = functional.max_pool1d(layer(state)[:, None], 2, return_indices=True)
    return functional.max_unpool1d(values, places, 2)[:, 0] + state * 0.3


def _added(layer: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    result = torch.zeros_like(state)
    result.scatter_add_(0, torch.tensor([[2], [0], [2]]).expand(3, 4), layer(state))
    return result + 0.2 * given


def _attended(layer: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    mixed = functional.scaled_dot_product_attention(layer(state)[None], given[None], state[None])
    return mixed[0]


def _embedded(layer: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    result: Tensor = layer((state > 0).long()) + state * 0.5
    return result


def _by_loss(layer: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    return state * functional.cross_entropy(layer(state), given.argmax(1)) + 0.1


def _in_rows(layer: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    result: Tensor = layer(state[:, None])[:, 0] + 0.2 * state
    return result


def _alone(layer: nn.Module, given: Tensor, state: Tensor) -> Tensor:
    result: Tensor = layer(state)
    return result


CELLS: Final[dict[str, tuple[Callable[[], nn.Module], Step]]] = {
    "gru": (lambda: nn.GRUCell(4, 4), lambda cell, given, state: cell(given, state)),
    "lstm": (lambda: nn.LSTMCell(4, 4), _lstm),
    "rnn": (lambda: nn.RNNCell(4, 4), lambda cell, given, state: cell(given, state)),
    "norm": (lambda: nn.BatchNorm1d(4), _alone),
    "relu": (lambda: nn.Sequential(nn.Conv1d(1, 1, 3, padding=1), nn.ReLU(True)), _in_rows),
    "silu": (lambda: nn.Sequential(nn.Linear(4, 4), nn.SiLU(True)), _alone),
    "pool": (lambda: nn.Linear(4, 4), _pooled),
    "add": (lambda: nn.Linear(4, 4), _added),
    "attention": (lambda: nn.Linear(4, 4), _attended),
    "bag": (lambda: nn.EmbeddingBag(5, 4), _embedded),
    "loss": (lambda: nn.Linear(4, 4), _by_loss),
    "weight": (lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), _alone),
    "hook": (lambda: torch.nn.utils.weight_norm(nn.Linear(4, 4)), _alone),
}


class Program(nn.Module):
    """Two cells of a kind with what is before and behind them."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        torch.manual_seed(zlib.crc32(cell.encode()))
        make, self.step = CELLS[cell]
        self.first, self.second = make(), make()
        self.before, self.behind = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, truths: Tensor) -> Tensor:
        result: Tensor = self.behind(torch.tanh(self.within(x, self.before(x), truths)))
        return result

    def within(self, x: Tensor, state: Tensor, truths: Tensor) -> Tensor:
        raise NotImplementedError


class Two(Program):
    def within(self, x: Tensor, state: Tensor, truths: Tensor) -> Tensor:
        if truths[0] > 0:
            state = self.step(self.first, x, state)
        else:
            state = self.step(self.second, x, state)
        if truths[1] + torch.tanh(state.mean()) * 0.1 > 0:
            state = state + self.step(self.first, x, state)
        return state


class Nested(Program):
    def within(self, x: Tensor, state: Tensor, truths: Tensor) -> Tensor:
        if truths[0] > 0:
            state = self.step(self.first, x, state)
            if truths[1] + torch.tanh(state.mean()) * 0.1 > 0:
                state = self.step(self.second, x, state)
                if truths[2] + torch.tanh(state.mean()) * 0.1 > 0:
                    state = self.step(self.first, x, state)
                    if truths[3] > 0:
                        state = self.step(self.second, x, state)
        return state


class Loop(Program):
    def within(self, x: Tensor, state: Tensor, truths: Tensor) -> Tensor:
        for at in range(4):
            state = self.step(self.first, x, state)
            if truths[at] + torch.tanh(state.mean()) * 0.1 > 0:
                break
        return state


class Arms(Program):
    def within(self, x: Tensor, state: Tensor, truths: Tensor) -> Tensor:
        for at in range(3):
            if truths[at] > 0:
                state = self.step(self.first, x, state)
            else:
                state = self.step(self.second, x, state)
        return state


class Returned(Program):
    def within(self, x: Tensor, state: Tensor, truths: Tensor) -> Tensor:
        if truths[0] > 0:
            return self.step(self.first, x, state)
        state = self.step(self.second, x, state)
        if truths[1] > 0:
            state = state * 2
        return state


STRUCTURES: Final = (Two, Nested, Loop, Arms, Returned)
PROGRAMS: Final = list(itertools.product(CELLS, STRUCTURES))
NAMES: Final = [f"{cell}-{structure.__name__}" for cell, structure in PROGRAMS]


def _some(share: int) -> list[Any]:
    """Return one in so many programs, always the same; the others are slow tests."""
    return [
        pytest.param(*program, id=name, marks=[] if is_of_a_sample(name, of=share) else SLOW)
        for program, name in zip(PROGRAMS, NAMES, strict=True)
    ]


SLOW: Final = pytest.mark.slow


@pytest.fixture(autouse=True)
def _unpatched() -> Iterator[None]:
    yield
    bcmend.unpatch()


def _outcomes(module: nn.Module, called: Callable[..., Tensor]) -> Iterator[list[Any]]:
    """Yield results, gradients and state of calls on each path, with a training step after each."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    for at, truths in enumerate(itertools.product((1.0, -1.0), repeat=3)):
        generator = torch.Generator().manual_seed(at)
        x = torch.randn(3, 4, generator=generator, dtype=torch.double).requires_grad_()
        module.zero_grad()
        result = called(x, torch.tensor([*truths, truths[0]], dtype=torch.double))
        (result.square().sum() + result.mean()).backward()
        gradients = [each.grad for each in (x, *module.parameters())]
        optimizer.step()
        yield [result.detach(), *gradients, *(each.clone() for each in module.buffers())]


def _compare(cell: str, structure: type[Program], backend: Any) -> None:
    torch._dynamo.reset()
    expected = list(_outcomes(module := structure(cell).double(), module))
    mended = bcmend.patch(structure(cell).double())
    found = _outcomes(mended, torch.compile(mended, backend=backend))
    for one, other in zip(expected, found, strict=True):
        assert [each is None for each in other] == [each is None for each in one]
        for left, right in zip(one, other, strict=True):
            if left is not None:
                torch.testing.assert_close(right, left, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("cell", "structure"), _some(29))
def test_results_and_gradients_under_inductor(cell: str, structure: type[Program]) -> None:
    _compare(cell, structure, "inductor")


@pytest.mark.parametrize(("cell", "structure"), _some(14))
def test_graphs_for_a_back_end_write_nothing(cell: str, structure: type[Program]) -> None:
    """A graph inside another that writes is what Inductor compiles wrong."""
    written: list[str] = []

    def compiler(module: GraphModule, inputs: Any) -> Any:
        written.extend(_writes(module))
        return make_boxed_func(module.forward)

    backend = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition,
    )
    _compare(cell, structure, backend)
    assert written == []


def _writes(module: GraphModule) -> Iterator[str]:
    """Yield the operators that write, but for what the graph does to its arguments at its end."""
    graphs = [each for each in module.modules() if isinstance(each, GraphModule)]
    for graph in graphs:
        for node in graph.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if (
                schema is not None
                and schema.is_mutable
                and not _is_of_argument(node, graph, module)
            ):
                yield str(node.target)


def _is_of_argument(node: Node, graph: GraphModule, module: GraphModule) -> bool:
    target = node.args[0]
    is_placeholder = isinstance(target, Node) and target.op == "placeholder"
    return graph is module and node.target is torch.ops.aten.copy_.default and is_placeholder
