"""Conditions on random numbers that are computed in front of the graph, which draws them again."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch.nn import functional

import bcmend

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

SEEDS = range(12)


def _block(x: Tensor, linear: nn.Module, training: bool) -> Tensor:
    y = functional.dropout(linear(x), 0.3, training)
    y = functional.scaled_dot_product_attention(
        y[None], y[None], y[None], dropout_p=0.2 if training else 0.0
    )[0]
    noise = torch.rand_like(x) * torch.randn(8) + torch.bernoulli(torch.zeros_like(x), 0.5)
    return x + y + noise


class Dropping(nn.Module):
    """Draws in an arm behind what may fail on data: no lowering has both as in eager execution."""

    order: Tensor

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
        self.rate = 0.5
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.dropout(x, 0.1, self.training)
        for layer in self.layers:
            if self.training and torch.rand([]) < self.rate:
                continue
            x = _block(x[self.order], layer, self.training)
        return x


class Encoded(Dropping):
    """What one branch of the graph draws is drawn before what decides another one."""

    def forward(self, x: Tensor) -> Tensor:
        x = functional.dropout(x, 0.1, self.training)
        for layer in self.layers:
            is_dropped = bool(self.training and torch.rand([]) < self.rate)
            if not is_dropped:
                x = x + functional.dropout(layer(x), 0.3, self.training)
        return _shuffled(x, torch.rand([]) < self.rate, self.order)


class Normalized(Encoded):
    """The sides of a branch change buffers, and not what decides the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)) for _ in range(2)
        )


class Counting(nn.Module):
    """One branch changes what decides the next one."""

    order: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))

    def forward(self, x: Tensor) -> Tensor:
        chance = torch.rand([])
        if x.sum() > 0:
            chance.mul_(2)
            x = x @ x.t() @ x
        return _shuffled(x, chance < 0.5, self.order)


def _shuffled(x: Tensor, condition: Tensor, order: Tensor) -> Tensor:
    """Draw from data: under gradients no branch of a graph does so."""
    if condition:
        x = functional.dropout(x[torch.multinomial(order + 1.0, 4)], 0.2)
    return x


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0]


class _Deciding(nn.Module):
    order: Tensor

    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.draw = draw
        self.linear = nn.Linear(8, 8)
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.draw(self.linear(x))
        return _shuffled(x, torch.rand([]) < 0.5, self.order)


_ORDER = torch.tensor([2, 0, 3, 1])


def _read_elsewhere(x: Tensor) -> Tensor:
    number = torch.rand([])
    return _shuffled(x, number < 0.5, _ORDER) / number


def _turns_over_drawn_numbers(x: Tensor) -> Tensor:
    for each in torch.rand(torch.randint(1, 4, (1,))):  # type: ignore[call-overload]
        x = x * each
    return x


def _turns_over_ones(x: Tensor) -> Tensor:
    for each in torch.ones(torch.randint(1, 4, (1,))):  # type: ignore[call-overload]
        x = x + each
    return x


def _turns_behind_a_permutation(x: Tensor) -> Tensor:
    order = torch.randperm(4)
    for row in torch.randn(torch.randint(0, 3, (1,)), 8):  # type: ignore[call-overload]
        x = x[order] + row
    return x


def _turns_in_an_arm(x: Tensor) -> Tensor:
    order, count = torch.randperm(8), torch.randint(0, 4, (1,))
    x = x.clone()
    if count < 3:
        for place in range(count):  # type: ignore[call-overload]
            held = x[:, order[place]]
            x[:, order[place]] = x[:, place]
            x[:, place] = held
    else:
        x = x[:, order]
    return x


def _turns_that_read_how_many(x: Tensor) -> Tensor:
    count = torch.randint(1, 4, (1,))
    for each in torch.rand(count):  # type: ignore[call-overload]
        x = x * each / count
    return x


def _seeded_inside(x: Tensor) -> Tensor:
    torch.manual_seed(int(x.shape[0]))
    return _shuffled(functional.dropout(x, 0.2), torch.rand([]) < 0.5, _ORDER)


def _assert_as_in_eager(
    model: nn.Module | Callable[[Tensor], Tensor], *, fullgraph: bool, backend: str = "eager"
) -> tuple[int, set[str | None]]:
    """Assert that calls from many random states are as in eager, and end in the same states.

    Return the number of graphs, and the lowerings of branches.
    """
    eager = copy.deepcopy(model)
    bcmend.patch(model)
    counter = CompileCounter() if backend == "eager" else CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=fullgraph)
    x, finds = torch.randn(4, 8), list[object]()
    for seed in SEEDS:
        for each, of in ((eager, eager), (compiled, model)):
            given = x.clone().requires_grad_()
            torch.manual_seed(seed)
            result = each(given)
            state = torch.get_rng_state()
            result.sum().backward()
            weights = list(of.parameters()) if isinstance(of, nn.Module) else []
            gradients = [given.grad, *(weight.grad for weight in weights)]
            for weight in weights:
                weight.grad = None
            finds.append([result.detach(), state, *gradients])
        expected, found = finds[-2:]
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    sites = bcmend.report(model).sites
    return counter.frame_count, {each.lowering for each in sites if each.kind == "branch"}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_layers_that_are_dropped(layers: int, fullgraph: bool) -> None:
    graphs, lowerings = _assert_as_in_eager(Dropping(layers).train(), fullgraph=fullgraph)
    assert graphs == 2**layers
    assert lowerings == {"ahead"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [Encoded, Normalized])
def test_what_a_branch_of_the_graph_draws_before(kind: Callable[[], Encoded], backend: str) -> None:
    graphs, lowerings = _assert_as_in_eager(kind().train(), fullgraph=True, backend=backend)
    assert graphs == 2
    assert "ahead" in lowerings and len(lowerings) > 1


def test_a_number_that_a_branch_of_the_graph_changes() -> None:
    _, lowerings = _assert_as_in_eager(Counting(), fullgraph=False)
    assert "ahead" not in lowerings


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + torch.empty_like(x).exponential_(),
        lambda x: x + torch.empty(3, 4, 8).uniform_(-1, 1)[0],
        lambda x: x * torch.rand(4, 8, dtype=torch.float64).float(),
        lambda x: torch.nn.functional.alpha_dropout(x, 0.4, True),
        lambda x: torch.nn.functional.dropout1d(x, 0.4, True),
        lambda x: x + torch.randn_like(x.t()).t(),
        lambda x: torch.nn.functional.dropout(x.t(), 0.4, True).t(),
        lambda x: x + torch.rand(3, device="meta").numel(),
        lambda x: x[torch.randperm(4)] * torch.randperm(8, dtype=torch.int32),
        lambda x: (
            x * torch.randint(7, (8,)) + torch.randint(-3, 2**40, (3, 8), dtype=torch.long)[0]
        ),
    ],
)
def test_what_is_drawn_before_in_many_forms(draw: Callable[[Tensor], Tensor]) -> None:
    graphs, lowerings = _assert_as_in_eager(_Deciding(draw).train(), fullgraph=True)
    assert graphs == 2
    assert lowerings == {"ahead"}


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x * torch.bernoulli(torch.sigmoid(x.detach())),
        lambda x: x * torch.multinomial(torch.sigmoid(x.detach()), 1),
        lambda x: x * torch.poisson(torch.sigmoid(x.detach())),
        lambda x: x * torch.randint_like(x, 5),
        lambda x: Kernel.apply(x),  # type: ignore[no-untyped-call]
    ],
)
def test_what_is_drawn_before_in_a_form_that_is_not_known(draw: Callable[[Tensor], Tensor]) -> None:
    _, lowerings = _assert_as_in_eager(_Deciding(draw).train(), fullgraph=False)
    assert "ahead" not in lowerings


@pytest.mark.parametrize("program", [_read_elsewhere, _seeded_inside])
def test_numbers_that_the_graph_alone_may_draw(program: Callable[[Tensor], Tensor]) -> None:
    _, lowerings = _assert_as_in_eager(program, fullgraph=False)
    assert "ahead" not in lowerings


def test_inductor_with_random_numbers_of_its_own() -> None:
    """A side is taken about as often as the rate says, and not always in the same calls."""
    model = _Deciding(lambda x: functional.dropout(x, 0.5)).train()
    with torch.no_grad():
        model.linear.weight.zero_()
        model.linear.bias.fill_(1)
    bcmend.patch(model)
    compiled = torch.compile(model, backend="inductor", fullgraph=True)
    torch.manual_seed(0)
    results = [compiled(torch.randn(4, 8)) for _ in range(40)]
    shuffled = sum(bool((each > 2).any()) for each in results)  # scaled by the dropout behind it
    assert 8 <= shuffled <= 32


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_turns_over_drawn_numbers, _turns_behind_a_permutation])
def test_a_drawn_number_of_turns(program: Callable[[Tensor], Tensor], backend: str) -> None:
    graphs, _ = _assert_as_in_eager(program, fullgraph=True, backend=backend)
    assert graphs == 3
    assert {each.lowering for each in bcmend.report(program).sites} == {"ahead"}


def test_a_branch_on_a_number_of_turns() -> None:
    graphs, lowerings = _assert_as_in_eager(_turns_in_an_arm, fullgraph=True)
    assert graphs == 4
    assert lowerings == {"ahead"}


def test_a_drawn_number_of_turns_that_the_graph_reads() -> None:
    """The graph may have another number than the one in front of it: it stays as it is."""
    _assert_as_in_eager(_turns_that_read_how_many, fullgraph=False)
    assert not {each.lowering for each in bcmend.report(_turns_that_read_how_many).sites} & {
        "ahead"
    }


def test_as_many_numbers_with_inductor_as_there_are_turns() -> None:
    """Inductor has random numbers of its own, and the number of turns is eager execution's."""
    bcmend.patch(_turns_over_ones)
    compiled = torch.compile(_turns_over_ones, backend="inductor", fullgraph=True)
    for seed in SEEDS:
        torch.manual_seed(seed)
        expected = int(torch.randint(1, 4, (1,)))
        torch.manual_seed(seed)
        assert compiled(torch.zeros(4)).tolist() == [expected] * 4
