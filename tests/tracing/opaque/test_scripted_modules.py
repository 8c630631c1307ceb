"""Modules compiled by `torch.jit.script` inside of mended ones: operators of one graph."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported

import bcmend
from tests.equivalence import Call, assert_equivalent, call

script: Final[Any] = torch.jit.script


class Several(nn.Module):
    """Results of all kinds, defaults, numbers and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.idle = nn.Linear(4, 4)
        self.register_buffer("shift", torch.linspace(0, 1, 4))
        self.factor = 0.5

    def forward(self, x: Tensor, times: float = 2.0, is_twice: bool = False):  # type: ignore[no-untyped-def]
        h = self.inner(x) * times + self.shift
        if is_twice:
            h = self.inner(h)
        parts = [h * self.factor]
        for i in range(3):
            parts.append(h + i)
        return h, [torch.stack(parts).sum(0), x.argmax(1)], h.size(1)


class Looked(nn.Module):
    """Looks up rows, and fails where there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(5, 4)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return x + self.rows(places)


class Outer(nn.Module):
    """Calls a module, and branches."""

    def __init__(self, make: Callable[[], Any], *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.inner = make()
        self.args, self.kwargs = args, kwargs

    def forward(self, x: Tensor) -> Any:
        y = self.inner(self.before(x), *self.args, **self.kwargs)
        first = y[0] if isinstance(y, tuple) else y
        first = first * 2 if first.sum() > 0 else first - 1
        return first, y


class InAnArm(Outer):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            x = self.inner(self.before(x))
        return x * 2


def linear() -> Any:
    return script(nn.Linear(4, 4))


def normed() -> Any:
    return script(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.LayerNorm(4)).eval())


def traced() -> Any:
    return torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(3, 4))


def loaded() -> Any:
    buffer = io.BytesIO()
    torch.jit.save(linear(), buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def frozen() -> Any:
    return torch.jit.freeze(script(nn.Sequential(nn.Linear(4, 4), nn.Conv1d(3, 3, 1)).eval()))


def several() -> Any:
    return script(Several())


MAKERS: Final = (linear, traced, loaded, frozen, several)


def inputs() -> list[Call]:
    x = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)
    return [call(x), call(-x), call(x * 3)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("make", MAKERS)
def test_one_graph(make: Any, backend: str, training: bool) -> None:
    assert_equivalent(lambda: Outer(make), inputs, backend=backend, training=training)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("make", [linear, several, traced])
def test_graphs_may_break(make: Any, backend: str) -> None:
    assert_equivalent(lambda: Outer(make), inputs, backend=backend, training=True, fullgraph=False)


@pytest.mark.parametrize("training", [False, True])
def test_numbers_and_keywords(training: bool) -> None:
    for given in ((3.0,), (2.5, True)):
        assert_equivalent(lambda given=given: Outer(several, *given), inputs, training=training)
    assert_equivalent(lambda: Outer(several, is_twice=True), inputs, training=training)


def test_evaluation_mode() -> None:
    assert_equivalent(lambda: Outer(normed), inputs)


@pytest.mark.parametrize("training", [False, True])
def test_in_an_arm(training: bool) -> None:
    assert_equivalent(lambda: InAnArm(linear), inputs, training=training, zero_gradients=True)


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = script(Looked())

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        y = self.inner(x, places=places)
        return y * 2 if y.sum() > 0 else y


def test_errors() -> None:
    x = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)
    good, bad = torch.tensor([0, 1, 4]), torch.tensor([0, 1, 5])
    assert_equivalent(Lookup, lambda: [call(x, good), call(-x, good), call(x, bad)])


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.quantile(x, x.max())


class OfLargest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = script(Largest())

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        return self.inner(y) + 1


def test_errors_where_nothing_else_is_mended() -> None:
    x = torch.linspace(0.0, 0.5, 5)
    assert_equivalent(OfLargest, lambda: [call(x), call(x + 2)], fullgraph=True)


class Own(nn.Module):
    """A module to be refused: whatever `body` does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(4))
        self.count = 0


class Writes(Own):
    def forward(self, x: Tensor) -> Tensor:
        self.kept.add_(1)
        return x + self.kept


class Stores(Own):
    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.count


class WritesWhatItIsGiven(Own):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2) + 1


class Draws(Own):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


class Prints(Own):
    def forward(self, x: Tensor) -> Tensor:
        print("here")
        return x + 1


class Views(Own):
    def forward(self, x: Tensor) -> Tensor:
        return x[:2]


class ReturnsWhatItHas(Own):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, self.kept


class Decides(Own):
    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            x = x * 2
        return x + 1


class Asks(Own):
    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            x = x * 2
        return x + 1


def norm() -> Any:
    return nn.BatchNorm1d(4)


REFUSED: Final = (
    Writes, Stores, WritesWhatItIsGiven, Draws, Prints, Views, ReturnsWhatItHas, Decides, Asks, norm
)  # fmt: skip


@pytest.mark.parametrize("make", REFUSED)
def test_breaks_where_more_is_done(make: Any) -> None:
    assert_equivalent(
        lambda: Outer(lambda: script(make())),
        inputs,
        training=True,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )
    model = bcmend.patch(Outer(lambda: script(make())))
    with pytest.raises(Unsupported, match="jit"):
        torch.compile(model, backend="eager", fullgraph=True)(torch.ones(3, 4))


class Watched(nn.Module):
    """A linear layer with a hook, which the script is compiled with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def doubled(self: Watched, args: tuple[Tensor], result: Tensor) -> Tensor:
    return result * 2


def with_hook() -> Any:
    inner = Watched()
    inner.register_forward_hook(doubled)
    return script(inner)


def test_breaks_at_hooks_and_under_autocast() -> None:
    x = torch.ones(3, 4)
    model = bcmend.patch(Outer(with_hook))
    with pytest.raises(Unsupported, match="jit"):
        torch.compile(model, backend="eager", fullgraph=True)(x)
    model = bcmend.patch(Outer(linear))
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(Unsupported, match="jit"),
    ):
        torch.compile(model, backend="eager", fullgraph=True)(x)


def pair(make: Callable[[], Any]) -> tuple[Any, Any]:
    """Return two models with equal parameters; the second is compiled in one graph."""
    made = [Outer(make) for _ in range(2)]
    made[1].load_state_dict(made[0].state_dict())
    return made[0], torch.compile(bcmend.patch(made[1]), backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("make", [linear, several])
def test_two_steps(make: Any) -> None:
    x = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)
    both = pair(make)
    for model in both:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        for sign in (1, -1):
            model(x * sign)[0].pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    eager, compiled = (dict(each.named_parameters()) for each in both)
    for (name, one), other in zip(eager.items(), compiled.values(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_results_that_are_not_used_give_no_gradients() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.left(x), self.right(x)

    class OneOfThem(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = script(Two())

        def forward(self, x: Tensor) -> Tensor:
            y, _ = self.inner(x)
            return y * 2 if y.sum() > 0 else y

    for backend in ("eager", "aot_eager"):
        assert_equivalent(OneOfThem, inputs, training=True, backend=backend)


def test_attributes_and_tensors_that_change() -> None:
    x = torch.ones(3, 4)
    eager, compiled = pair(several)
    for step in range(4):
        for model in (eager, compiled):
            inner = model.inner
            if step == 1:
                inner.factor = 3.5
            elif step == 2:
                inner.shift = torch.ones(4)
            elif step == 3:
                inner.eval()
        one, other = eager(x), compiled(x)
        assert torch.equal(one[0], other[0]), step
        assert torch.equal(one[1][1][0], other[1][1][0]), step


class Changed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()
        self.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        y = self.inner(x)
        return y * 2 if y.sum() > 0 else y


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_weights_that_the_call_has_changed(backend: str) -> None:
    assert_equivalent(Changed, inputs, backend=backend)


def test_sizes_that_vary() -> None:
    eager, compiled = pair(several)
    for rows in (3, 4, 5):
        x = torch.linspace(-1.0, 2.0, rows * 4).reshape(rows, 4)
        assert torch.equal(eager(x)[0], compiled(x)[0])


class InContainers(nn.Module):
    """Modules that are asked for, in containers, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.Sequential(linear(), nn.ReLU(), traced())
        self.layers = nn.ModuleList([linear(), traced()])
        self.last = linear()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stack(x)
        with torch.no_grad():
            h = x
            for layer in self.layers:
                h = layer(h)
        if self.last is not None and isinstance(self.last, nn.Module):
            x = self.last.forward(x) + h
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_in_containers(backend: str) -> None:
    assert_equivalent(InContainers, inputs, training=True, backend=backend, zero_gradients=True)
    assert_equivalent(InContainers, inputs, backend=backend, fullgraph=False)


def traced_drawing() -> Any:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    return torch.jit.trace(layer, torch.ones(3, 4), check_trace=False)


def test_breaks_where_a_trace_draws() -> None:
    assert_equivalent(
        lambda: Outer(traced_drawing),
        inputs,
        fullgraph=False,
        training=True,
        graphs=None,
        recompiles=None,
    )


def test_no_second_backward() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    compiled = torch.compile(bcmend.patch(Outer(linear)), backend="eager", fullgraph=True)
    (found,) = torch.autograd.grad(compiled(x)[0].pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no backward itself"):
        found.sum().backward()


def test_modules_go() -> None:
    model = Outer(linear)
    inner = weakref.ref(model.inner)
    compiled = torch.compile(bcmend.patch(model), backend="eager", fullgraph=True)
    compiled(torch.ones(3, 4))
    del model, compiled
    torch.compiler.reset()
    gc.collect()
    assert inner() is None


def test_a_function_stays_whole() -> None:
    @script
    def scripted(x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            x = x * 2
        return x

    assert_equivalent(lambda: lambda x: scripted(x) + 1, inputs)
