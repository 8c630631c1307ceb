"""Choices whose sides are alike are traced, and compiled, as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.functional_tensor import PythonFunctionalizeAPI
from torch.fx import GraphModule

import bcmend
from bcmend.tracing.backends.saved_values import Impure, seen_pure
from bcmend.tracing.backends.traced_choices import known_of, remembered
from tests.differences_of_torch import VIEWS_OF_HALVES_FAIL_IN_CHOICES
from tests.equivalence import assert_equivalent, call


class Layers(nn.Module):
    def __init__(self, sizes: list[int], activation: Callable[..., Any] = torch.tanh) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, size) for size in sizes)
        self.back = nn.ModuleList(nn.Linear(size, 3) for size in sizes)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one, other in zip(self.layers, self.back, strict=True):
            if x.sum() > 0:
                x = other(self.activation(one(x)))
        return x


class Nested(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one, other in zip(self.layers, self.back, strict=True):
            if x.sum() > 0:
                y = one(x)
                if y.mean() > 0:
                    y = self.activation(y)
                x = other(y)
        return x


def _graphs(module: GraphModule) -> tuple[int, int]:
    """Return how many choices a graph has, and how many graphs of sides; those inside too."""
    inside = [each for each in module.modules() if isinstance(each, GraphModule)]
    nodes = (node for each in inside for node in each.graph.nodes)
    return sum(node.target is torch.ops.higher_order.cond for node in nodes), len(inside) - 1


def _outcome(model: nn.Module, called: Callable[..., Any], sizes: list[int]) -> list[Any]:
    found = []
    for at, size in enumerate(sizes):
        torch.manual_seed(at)
        x = (torch.rand(size, 3) * (-1) ** at).requires_grad_()
        model.zero_grad()
        result = called(x)
        result.square().sum().backward()
        found += [result.detach(), x.grad, *(each.grad for each in model.parameters())]
    return found


@pytest.mark.parametrize(
    ("make", "sizes", "forward"),
    [
        (Layers, [4] * 5, (5, 2)),
        (Layers, [4, 5, 4, 5], (4, 4)),
        (Nested, [4] * 3, (4, 4)),
    ],
    ids=["all alike", "two kinds", "nested"],
)
def test_sides_that_are_alike_are_one_graph(
    make: type[Layers], sizes: list[int], forward: tuple[int, int]
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(7)
    model = make(sizes)
    seen: list[tuple[int, int]] = []

    def compiler(module: GraphModule, inputs: Any) -> Any:
        seen.append(_graphs(module))
        return make_boxed_func(module.forward)

    expected = _outcome(model, model, [2, 2, 2])
    bcmend.patch(model, policy=bcmend.Policy(branch="cond"))
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    found = _outcome(model, torch.compile(model, backend=backend, fullgraph=True), [2, 2, 2])
    bcmend.unpatch(model)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert seen[0] == forward
    assert len(seen) == 2
    assert seen[1][1] <= 2 * forward[1]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("make", [Layers, Nested])
def test_results_and_gradients_are_those_of_eager_with_sizes_that_change(
    backend: str, make: type[Layers]
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(7)
    model = make([4, 4, 4])
    sizes = [2, 3, 5, 2, 4]
    expected = _outcome(model, model, sizes)
    bcmend.patch(model, policy=bcmend.Policy(branch="cond"))
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    found = _outcome(model, compiled, sizes)
    bcmend.unpatch(model)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class _InBlocks(nn.Module):
    """A layer over blocks of a length, which is left out or leaves weights, as in long models."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.layer = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        y = self.before(x.view(x.size(0), x.size(1) // 4, 4, 8)).tanh()
        weights = None
        if x.sum() > 0:
            y = self.layer(y)
            weights = y.softmax(-1)
        return y.reshape(x.size(0), -1, 8), weights


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_sides_give_tensors_in_blocks_of_lengths_that_change(backend: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = bcmend.patch(_InBlocks())
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for size, length, sign in [(2, 8, 1.0), (2, 8, -1.0), (3, 16, 1.0), (3, 4, -1.0)]:
        given = torch.rand(size, length, 8) * sign
        found = []
        for called in (model, compiled):
            x = given.clone().requires_grad_()
            results = [each for each in called(x) if each is not None]
            model.zero_grad()
            torch.stack([each.square().sum() for each in results]).sum().backward()
            gradients = [torch.zeros(()) if p.grad is None else p.grad for p in model.parameters()]
            strides = [each.stride() for each in results]
            found.append((results, strides, [x.grad, *(each.sum() for each in gradients)]))
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    bcmend.unpatch(model)


def test_a_choice_of_a_program_itself_is_as_on_torch_alone() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x.view(x.size(0) // 2, 2, 3)
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))

    torch._dynamo.reset()
    patched = bcmend.patch(Layers([4]))
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True, dynamic=True)
    x = torch.ones(4, 3)
    if VIEWS_OF_HALVES_FAIL_IN_CHOICES:
        with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="accumulative multiplica"):
            compiled(x)
    else:
        assert compiled(x).equal(program(x))
    bcmend.unpatch(patched)


def test_sides_that_draw_numbers_or_make_sizes_of_their_own_are_kept_apart() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for each in (x, y):
            if each.sum() > 0:
                x = x + each.nonzero().sum() * 2
        return x

    torch._dynamo.reset()
    compiled = torch.compile(
        bcmend.patch(program, policy=bcmend.Policy(branch="cond")), backend="aot_eager"
    )
    for one, other in [([1.0, 0.0], [0.0, 0.0]), ([1.0, 2.0], [3.0, 0.0]), ([-1.0], [2.0])]:
        given = torch.tensor(one), torch.tensor(other)
        assert compiled(*given).equal(program(*given))
    bcmend.unpatch()


def test_what_is_learned_is_forgotten_at_the_end() -> None:
    operands = (torch.ones(3), 4)
    with remembered():
        known = known_of("structure", operands)
        assert known_of("structure", operands) is known
        assert known_of("structure", (torch.ones(4), 4)) is not known
        assert known_of("another", operands) is not known
        with torch.no_grad():
            assert known_of("structure", operands) is not known
        with torch.autocast("cpu"):
            assert known_of("structure", operands) is not known
    assert known_of("structure", operands) is not known


class _Cell(nn.Module):
    """A cell that torch computes in place where no gradients are recorded, until a gate closes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.gate = nn.GRUCell(4, 8), nn.Linear(8, 1)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        given = torch.zeros(1, 4)
        for _ in range(4):
            state = self.cell(given, state)
            if torch.sigmoid(self.gate(state)) > 0.52:
                break
        return state


def _gradients(module: nn.Module, called: Callable[..., Any], seed: int) -> list[torch.Tensor]:
    module.zero_grad()
    state = torch.randn(1, 8, generator=torch.Generator().manual_seed(seed)) * 2
    called(state).mul(torch.linspace(0.5, 1.5, 8)).sum().backward()
    return [each.grad for each in module.parameters() if each.grad is not None]


def _run_as_it_is(graph: GraphModule, _: Any) -> Any:
    return make_boxed_func(graph.forward)


def test_a_backward_of_what_writes_in_place_writes_nothing() -> None:
    backwards: list[GraphModule] = []

    def kept(graph: GraphModule, _: Any) -> Any:
        backwards.append(graph)
        return make_boxed_func(graph.forward)

    module = bcmend.patch(_Cell())
    backend = aot_autograd(fw_compiler=_run_as_it_is, bw_compiler=kept)
    _gradients(module, torch.compile(module, backend=backend, fullgraph=True), 1)
    nodes = [
        node
        for graph in backwards
        for each in graph.modules()
        if isinstance(each, GraphModule)
        for node in each.graph.nodes
    ]
    written = [str(each) for each in nodes if getattr(each.target, "_schema", None) is not None]
    assert written
    assert [
        str(each.target)
        for each in nodes
        if getattr(getattr(each.target, "_schema", None), "is_mutable", False)
    ] == []


def test_inductor_gives_the_gradients_of_cells_in_nested_choices() -> None:
    module = bcmend.patch(_Cell())
    compiled = torch.compile(module, backend="inductor", fullgraph=True)
    for seed in range(1, 5):
        found = [each.clone() for each in _gradients(module, compiled, seed)]
        expected = _gradients(module, module, seed)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class Solved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        matrix = self.weight * factor
        if factor > 1:
            x = torch.linalg.solve(matrix, x) + torch.linalg.inv(matrix).sum(0)
        elif factor >= 0:
            x = torch.linalg.cholesky(matrix) @ x
        else:
            torch.linalg.inv(matrix * 0)  # nobody reads it
        return x


class SolvedAgain(nn.Module):
    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        matrix = torch.eye(3) * factor
        while x.sum() > 1:
            x = torch.linalg.solve(matrix, x)
        return x


def _solved(model: nn.Module, called: Callable[..., Any], factor: float) -> Any:
    torch.manual_seed(0)
    model.zero_grad()
    try:
        result = called(torch.rand(3) + 1, torch.tensor(factor))
    except torch.linalg.LinAlgError as error:
        return str(error)
    if result.requires_grad:
        result.sum().backward()
    return [result.detach(), *(each.grad for each in model.parameters())]


FACTORS = (2.0, 0.0, -1.0, 3.0, 0.5)


@pytest.mark.parametrize("model", [Solved, SolvedAgain])
@pytest.mark.parametrize("gradients", [False, True])
def test_a_side_raises_where_a_matrix_is_singular(model: type[nn.Module], gradients: bool) -> None:
    torch._dynamo.reset()
    plain, mended = model(), bcmend.patch(model())
    compiled = torch.compile(mended, backend="aot_eager", fullgraph=True)
    with torch.set_grad_enabled(gradients):
        found = [_solved(mended, compiled, factor) for factor in FACTORS]
        expected = [_solved(plain, plain, factor) for factor in FACTORS]
    assert any(isinstance(each, str) for each in expected)
    assert str(found) == str(expected)
    bcmend.unpatch(mended)


def test_inductor_raises_where_a_matrix_in_a_side_is_singular() -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(factor * torch.eye(3)) if factor > -1 else x

    plain, mended = Inverse(), bcmend.patch(Inverse())
    compiled = torch.compile(mended, fullgraph=True)
    found = [_solved(mended, compiled, factor) for factor in FACTORS]
    assert isinstance(found[1], str)
    assert str(found) == str([_solved(plain, plain, factor) for factor in FACTORS])
    bcmend.unpatch(mended)


def _labelled() -> list[Any]:
    torch.manual_seed(0)
    labels = (torch.tensor([0, -1, 2, 1]), torch.full((4,), -1), torch.tensor([-1, -1, 1, -1]))
    return [call(torch.randn(4, 3, requires_grad=True), each) for each in labels]


def _loss_of_the_labelled(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    is_labelled = labels >= 0
    rows = x[is_labelled]
    if len(rows) == 0:
        return x.sum() * 0
    return torch.nn.functional.cross_entropy(rows, labels[is_labelled])


def _error_of_the_labelled(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = x[labels >= 0]
    return torch.nn.functional.mse_loss(rows, rows * 2) if len(rows) else x.sum() * 0


@pytest.mark.slow
def test_numbers_that_a_backward_reads_are_computed_of_sizes_in_the_graph() -> None:
    """The gradient of a mean is divided by the number of items, ``3 * rows``."""
    assert_equivalent(lambda: _error_of_the_labelled, _labelled, backend="inductor", training=True)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_what_a_side_saves_has_the_sizes_of_what_it_was_given(backend: str) -> None:
    """The backward of a loss looks whether there are as many labels as rows."""
    found = assert_equivalent(
        lambda: _loss_of_the_labelled, _labelled, backend=backend, training=True
    )
    (site,) = found.report.sites
    assert site.lowering == "cond"


def test_torch_makes_no_graph_of_a_side_to_see_what_it_writes() -> None:
    asked: list[Any] = []
    kind, compiled_by = type(torch.ops.higher_order.cond), aot_autograd(fw_compiler=_run_as_it_is)
    schema = kind.gen_schema

    def noting(*arguments: Any) -> Any:
        asked.append(arguments)
        return schema(*arguments)

    def backend(graph: GraphModule, inputs: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "gen_schema", noting)
            return compiled_by(graph, inputs)

    torch._dynamo.reset()
    model = Nested([4])
    expected = _outcome(model, model, [2, 3])
    bcmend.patch(model, policy=bcmend.Policy(branch="cond"))
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    found = _outcome(model, compiled, [2, 3])
    bcmend.unpatch(model)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert asked == []


def _sine_in_place(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (torch.zeros(3).add_(x).sin_(), x[1:].clone().exp_())


@pytest.mark.parametrize(
    ("side", "is_pure"),
    [
        (_sine_in_place, True),
        (lambda x: (x.add_(1).sin(),), False),
        (lambda x: (x[1:].mul_(2).sin(),), False),
        (lambda x: (x.unsqueeze_(0).sin(),), False),
        (lambda x: (x,), False),
        (lambda x: (x.exp(), x[:1]), False),
        (lambda x: ((y := x.exp()), y[:1]), False),
    ],
    ids=["fresh", "written", "by a view", "reshaped", "operand", "view", "twice"],
)
def test_a_side_is_seen_to_be_pure_while_it_is_traced(side: Any, is_pure: bool) -> None:
    functional = PythonFunctionalizeAPI()
    traced: Callable[..., Any] = functional.functionalize(seen_pure(side, functional))
    if is_pure:
        expected = side(torch.ones(3))
        torch.testing.assert_close(traced(torch.ones(3)), expected)
    else:
        with pytest.raises(Impure):
            traced(torch.ones(3))
