"""Choices one in another are written one behind another, and nothing else changes by it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

import bcmend
from tests.equivalence import Call, assert_equivalent, call
from tests.samples import in_turn

COND = torch.ops.higher_order.cond

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Decoder(nn.Module):
    """A decoder that is left early, with what it has given so far in lists."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.turns = turns
        self.cell = nn.LSTMCell(4, 4)
        self.out, self.stop = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, c = x, torch.zeros_like(x)
        outs, stops = [], []
        for _ in range(self.turns):
            h, c = self.cell(x, (h, c))
            x = self.out(h)
            p = torch.sigmoid(self.stop(h))
            outs.append(x)
            stops.append(p)
            if (p > 0.55).all():
                break
        return torch.stack(outs, 1), torch.cat(stops, 1)


class Layers(nn.Module):
    """Layers of their own parameters, of which the last that run say what is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)[x.argmax(0)] + x
            if x.sum() < 0:
                return x.tanh()
            x = x.sigmoid() - 0.4
        return x + 1


class Tour(nn.Module):
    """Writes to a tensor in each iteration, reads by number, says when it is through."""

    def forward(self, d: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.tensor(0)
        seen = torch.zeros(d.shape[0], dtype=torch.bool)
        tour = [at]
        for _ in range(6):
            seen = seen.clone()
            seen[at] = True
            nearest, following = d[at].masked_fill(seen, float("inf")).min(0)
            if nearest > 1.2:
                print("none is near")
                break
            at = following
            tour.append(at)
        else:
            print("through")
        return torch.stack(tour), seen


class Buffered(nn.Module):
    """Writes each step to a tensor that was there before, and joins a mask in place."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.cell, self.out = nn.Embedding(4, 4), nn.GRUCell(4, 4), nn.Linear(4, 4)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        steps = h.new_zeros(h.size(0), 7, 4)
        row = h.argmax(-1)
        done = torch.zeros(h.size(0), dtype=torch.bool)
        for at in range(7):
            h = self.cell(self.rows(row), h)
            score = self.out(h)
            steps[:, at] = score
            row = score.argmax(-1)
            done |= row == 2
            if done.all():
                break
        return steps, h, done


class Unreturned(nn.Module):
    """Leaves with what an input decides and is no part of: its gradient is None then."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ModuleList([nn.Embedding(4, 4) for _ in range(4)])
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        total = x[0]
        for at, rows in enumerate(self.rows):
            row = rows(torch.tensor(at))
            if (row + x[at]).sum() > 9:
                return total
            total = total * self.scale + x[at]
            if total.sum() < -2:
                return row * 2
        return total


class Finite(nn.Module):
    """Leaves where a product is not finite any more, with what was before."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ModuleList([nn.Embedding(4, 4) for _ in range(5)])
        self.scale, self.shift = nn.Parameter(torch.full((4,), 1e3)), nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        for rows in self.rows:
            y = x * self.scale * self.scale * self.scale
            z = y * self.shift
            if not z.isfinite().all():
                break
            x = rows(z.argmax(-1)) * 1e20 + z
        return x / 1e20


class Roots(nn.Module):
    """Roots whose derivative is infinite where the loop is left."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(5):
            y = x[x.argmax(0) * 1] * 0.9  # no table knows that the index is in range
            root = y.sqrt()
            if y.sum() <= 0:
                break
            x = root - 0.3
        return x


class Walk(nn.Module):
    """Items at places that the data give, one of which ends the walk; all are handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        y, place, seen = x * self.w, (x > 0).sum() % 2, []
        for _ in range(5):
            item = y[place]
            seen.append(item)
            if item > 1:
                break
            place = place + 1
            if place >= 5:
                return item * 3
        return torch.stack(seen)


def _rows() -> list[Tensor]:
    return [
        torch.tensor([0.1, 0.2, 2.0, 0.3, 0.4]),
        torch.tensor([-2.0, 0.1, 0.1, 0.1, 3.0]),
        torch.full((5,), -0.5),
        torch.tensor([3.0, -1.0, -1.0, -1.0, -1.0]),
    ]


class Normed(nn.Module):
    """Statistics of a norm, a count and ``x.data``, written without a history in each iteration."""

    def __init__(self, *, is_kept: bool = False, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.is_kept = nn.BatchNorm1d(4, eps=epsilon), is_kept
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(5):
            y = self.norm(x)
            x = x + (y * self.mean if self.is_kept else y)
            self.mean.data.add_(x.detach().mean(0))
            if x.sum() > 40:
                break
        return x


def _vectors() -> list[Tensor]:
    torch.manual_seed(3)
    return [sign * torch.randn(4, 4) for sign in (3, -3, 0.1, 1)]


def _distances() -> list[Tensor]:
    torch.manual_seed(3)
    return [torch.rand(7, 7) + far for far in (0.1, 0.6, 0.9)]


def _zeros() -> list[Tensor]:
    return [torch.zeros(4, 4), torch.ones(4, 4), torch.full((4, 4), 0.2)]


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[Tensor]]]] = {
    "decoder": (lambda: Decoder(8), _vectors),
    "layers": (Layers, _vectors),
    "buffered": (Buffered, _vectors),
    "unreturned": (Unreturned, lambda: [torch.full((4, 4), at) for at in (3.0, 0.01, -1.0, -0.1)]),
    "finite": (Finite, lambda: [torch.full((4, 4), at) for at in (1.0, 1e30, -1e35, 0.0)]),
    "tour": (Tour, _distances),
    "normed": (Normed, _vectors),
    "kept": (lambda: Normed(is_kept=True), _vectors),
    "roots": (Roots, _zeros),
    "walk": (Walk, _rows),
}


def _outcome(called: Any, net: nn.Module, x: Tensor, capsys: Any) -> list[Any]:
    net.zero_grad()
    x = x.clone().requires_grad_()
    results = called(x)
    results = results if isinstance(results, tuple) else (results,)
    if any(each.requires_grad for each in results):
        sum(each.pow(2).sum() for each in results).backward()
    return [*results, x.grad, *(each.grad for each in net.parameters()), capsys.readouterr().out]


def _assert_alike(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, Tensor):
            torch.testing.assert_close(one, other, equal_nan=True)
        else:
            assert one == other


@pytest.mark.parametrize(
    ("name", "backend"),
    in_turn(list(PROGRAMS), ["eager", "aot_eager"]),
)
def test_what_a_loop_gives_that_is_left_early(name: str, backend: str, capsys: Any) -> None:
    torch.manual_seed(0)
    make, inputs = PROGRAMS[name]
    net = make()
    compiled = torch.compile(bcmend.patch(copy.deepcopy(net)), backend=backend, fullgraph=True)
    for x in inputs():
        found = _outcome(compiled, compiled, x, capsys)
        _assert_alike(found, _outcome(net, net, x, capsys))


@pytest.mark.parametrize(
    "name",
    ["decoder", *(pytest.param(each, marks=pytest.mark.slow) for each in ("tour", "buffered"))],
)
def test_a_loop_that_is_left_early_under_inductor(name: str, capsys: Any) -> None:
    torch.manual_seed(0)
    make, inputs = PROGRAMS[name]
    net = make()
    if isinstance(net, Decoder):
        net.turns = 4
    compiled = torch.compile(bcmend.patch(copy.deepcopy(net)), fullgraph=True)
    for x in inputs():
        found = _outcome(compiled, compiled, x, capsys)
        _assert_alike(found, _outcome(net, net, x, capsys))


class Gathered(nn.Module):
    """A loop that has gathered nothing returns a tensor that no gradients flow back from."""

    def __init__(self, *, is_last: bool) -> None:
        super().__init__()
        self.linear, self.is_last = nn.Linear(4, 4), is_last

    def forward(self, x: Tensor, count: Tensor) -> Any:
        found: list[Tensor] = []
        for at in range(4):
            if at >= count:
                break
            found.append(self.linear(x[at]).tanh())
        if self.is_last and len(found) > 0:
            return torch.stack(found).sum(), found
        if not self.is_last and len(found) == 0:
            return x.new_zeros(()), found
        return (x.new_zeros(()) if self.is_last else torch.stack(found).sum()), found


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_gradients_flow_back_where_one_side_has_none(
    backend: str, is_last: bool, fullgraph: bool, training: bool
) -> None:
    # With other back ends than "eager" the last result requires gradients (docs/deviations.md).
    counts = (4, 1, 0) if backend == "eager" or not training else (4, 1)
    assert_equivalent(
        lambda: Gathered(is_last=is_last),
        lambda: [call(torch.ones(4, 4), torch.tensor(each)) for each in counts],
        backend=backend,
        fullgraph=fullgraph,
        training=training,
        recompiles=None,
    )


def test_without_gradients_and_for_sizes_that_change() -> None:
    torch.manual_seed(0)
    net = Decoder(6)
    compiled = torch.compile(
        bcmend.patch(copy.deepcopy(net)), backend="aot_eager", fullgraph=True, dynamic=True
    )
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 4)
            _assert_alike(compiled(x), net(x))


def _depth(module: GraphModule) -> int:
    """Return how many choices stand one in another in a graph."""
    inside = [0]
    for node in module.graph.nodes:
        if node.target is COND:
            sides = (getattr(module, str(each.target)) for each in node.args[1:3])
            inside += [1 + _depth(each) for each in sides]
    return max(inside)


def _graph_of(net: nn.Module, x: Tensor) -> GraphModule:
    found: list[GraphModule] = []

    def keep(module: GraphModule, _: Any) -> Any:
        found.append(module)
        return module.forward

    torch.compile(bcmend.patch(net), backend=keep, fullgraph=True)(x)
    (module,) = found
    return module


@pytest.mark.parametrize(("turns", "depth"), [(3, 2), (4, 1), (9, 1)])
def test_from_three_levels_on_no_choice_is_in_another(turns: int, depth: int) -> None:
    module = _graph_of(Decoder(turns), torch.randn(2, 4))
    assert _depth(module) == depth


@pytest.mark.parametrize(
    ("make", "sizes", "depth"),
    [
        (Buffered, (4, 4), 1),
        (Layers, (4, 4), 1),
        (Finite, (4, 4), 1),
        (Roots, (4, 4), 4),
        (Walk, (5,), 1),
        (Normed, (4, 4), 1),
        (lambda: Normed(is_kept=True), (4, 4), 4),
        (lambda: Normed(epsilon=0.0).eval(), (4, 4), 4),
    ],
)
def test_which_choices_stand_behind_each_other(
    make: Callable[[], nn.Module], sizes: tuple[int, ...], depth: int
) -> None:
    torch.manual_seed(0)
    module = _graph_of(make(), torch.randn(sizes).abs().requires_grad_())
    assert _depth(module) == depth


class Cast(nn.Module):
    """Iterations under autocast, which is set in the graph of an arm."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            with torch.autocast("cpu", torch.bfloat16):
                y = x[x.argmax(0)] @ x
            if y.sum() < 0:
                break
            x = x + y.float()
        return x


def test_an_arm_that_sets_something_stays_whole() -> None:
    torch.manual_seed(1)
    x = torch.randn(4, 4)
    net = Cast()
    module = _graph_of(net, x)
    assert _depth(module) == 3
    assert torch.equal(module(x)[0], net(x))


class Limited(nn.Module):
    """Groups of rows, of each of which no more than two are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).argmax(1)
        result = x.new_zeros(x.shape)
        rows = [torch.eq(chosen, at).nonzero(as_tuple=True)[0] for at in range(3)]
        left = []
        for at in range(3):
            if len(rows[at]) <= 2:
                continue
            left.append(rows[at][2:])
            rows[at] = rows[at][:2]
        parts = [x[rows[at], :] for at in range(3)]
        for at in range(3):
            result[rows[at], :] = parts[at]
        return result


@pytest.mark.parametrize("training", [False, True])
def test_sizes_that_no_operand_of_a_choice_tells(training: bool) -> None:
    def calls() -> list[Call]:
        drawn = torch.Generator().manual_seed(0)
        return [call(scale * torch.randn(8, 4, generator=drawn)) for scale in (1, 9, 0.1, 1)]

    assert_equivalent(Limited, calls, training=training)
