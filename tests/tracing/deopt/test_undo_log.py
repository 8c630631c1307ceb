"""What is put back when a side exit is taken, and where there is none since nothing can be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import bcmend
from bcmend.tracing.deopt import undo_log
from tests.equivalence import assert_equivalent, call, fresh

POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])


def _calls() -> list[Any]:
    values = (POSITIVE, NEGATIVE, POSITIVE * 2, NEGATIVE * 2, POSITIVE)
    return [call(each.clone()) for each in values]


class Cache(nn.Module):
    """Writes rows before and after its checks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 3))
        self.last: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.rows[0] = x
        if (x < -5).any():
            raise KeyError("too small")
        self.rows[1] += 1
        if self.rows.sum() < 0:
            raise ValueError(f"negative: {self.rows.tolist()}")
        self.rows.mul_(0.5)
        self.last["total"] = self.rows.sum()
        return x + self.rows.sum(0)


class Views(nn.Module):
    """Changes a buffer through a view of it that is an attribute too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.zeros(4))
        self.part = self.whole[:2]

    def forward(self, x: Tensor) -> Tensor:
        self.part.add_(1)
        if x.sum() < 0:
            raise ValueError("negative")
        self.whole.mul_(2)
        return x * self.whole[:3]


class Data(nn.Module):
    """Changes a parameter under a name that does not count its versions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.mul_(2)
        if x.sum() < 0:
            raise ValueError("negative")
        self.weight.data.add_(1)
        return x * self.weight


class Normalised(nn.Module):
    """Changes running means, draws masks, and counts in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        y = functional.dropout(self.norm(torch.stack([x, x * 2])))
        self.steps += 1
        print("normalised")
        if x.sum() < 0:
            raise ValueError("negative", self.steps)
        self.steps += 10
        return functional.dropout(y)


class Handled(nn.Module):
    """Goes on after a check that failed, with what was drawn and changed before it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def check(self, x: Tensor) -> Tensor:
        self.seen.add_(x.detach())
        y = functional.dropout(x)
        if x.sum() < 0:
            raise ValueError("negative")
        self.seen.mul_(2)
        return y * torch.rand(3)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.check(x)
        except ValueError:
            return x - torch.rand(3)


def _throws_dice() -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        x = x * random.randint(1, 6)
        if x.sum() < 0:
            raise ValueError("negative")
        return x + random.uniform(0, 1)

    return program


class Averaged(nn.Module):
    """Changes running means without a count, and several tensors at once."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.var = torch.zeros(3), torch.ones(3)
        self.both = [torch.zeros(3), torch.ones(2)]

    def forward(self, x: Tensor) -> Tensor:
        y = functional.batch_norm(torch.stack([x, x * 2]), self.mean, self.var, training=True)
        if x.sum() < 0:
            raise ValueError("negative")
        torch._foreach_add_(self.both, 1)
        return y + self.both[0]


@pytest.mark.parametrize("make", [Cache, Views, Data, Normalised, Averaged, Handled, _throws_dice])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_the_graph_has_changed_is_put_back(make: Callable[[], Any], backend: str) -> None:
    assert_equivalent(make, _calls, backend=backend, graphs=None, recompiles=None)


@pytest.mark.parametrize("make", [Views, Data, Normalised, Averaged, Handled])
def test_it_is_put_back_where_gradients_flow(make: Callable[[], Any]) -> None:
    assert_equivalent(make, _calls, training=True, graphs=None, recompiles=None)


def test_what_was_kept_for_a_backward_before_the_call_still_counts_as_unchanged() -> None:
    total = torch.zeros(3)

    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        total.add_(1)
        return x + total

    torch._dynamo.reset()
    compiled = bcmend.compile(program, backend="eager", fullgraph=True)
    compiled(POSITIVE)
    with torch.no_grad():
        before = total.clone()
    with pytest.raises(ValueError, match="negative"):
        compiled(NEGATIVE)
    assert torch.equal(total, before)
    bcmend.unpatch()


def test_tensors_made_in_inference_mode_are_put_back() -> None:
    program = fresh(Cache)()
    torch._dynamo.reset()
    compiled = bcmend.compile(program, backend="eager", fullgraph=True)
    with torch.inference_mode():
        program.rows = torch.zeros(2, 3)
        compiled(POSITIVE)
        with pytest.raises(ValueError, match="negative"):
            compiled(NEGATIVE)
        assert torch.equal(program.rows, torch.tensor([[-1.0, -2.0, -3.0], [1.5, 1.5, 1.5]]))
    bcmend.unpatch()


def _large(x: Tensor, total: Tensor) -> None:
    total.add_(1)


def _with_a_history(x: Tensor, total: Tensor) -> None:
    total.mul_(x.sum())


def _with_a_hook(x: Tensor, total: Tensor) -> None:
    total.register_hook(lambda grad: grad)


def _without_gradients(x: Tensor, total: Tensor) -> None:
    torch.set_grad_enabled(False)


def _in_other_numbers(x: Tensor, total: Tensor) -> None:
    torch.set_default_dtype(torch.float64)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("change", "count", "history", "obstacle"),
    [
        (_large, undo_log.FREE, False, "the arguments that are changed in place are large"),
        (_with_a_history, 3, True, "an argument that is changed in place has a history"),
        (_with_a_hook, 3, True, "hooks are put on tensors"),
        (_without_gradients, 3, False, "a setting of torch is left changed"),
        (_in_other_numbers, 3, False, "a setting of torch is left changed"),
    ],
)
def test_a_graph_that_cannot_be_thrown_away_has_none(
    change: Callable[[Tensor, Tensor], None],
    count: int,
    history: bool,
    obstacle: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []
    real = undo_log.obstacle

    def noting(output: Any) -> str:
        found.append(real(output))
        return found[-1]

    monkeypatch.setattr(undo_log, "obstacle", noting)

    def program(x: Tensor, total: Tensor) -> Tensor:
        change(x, total)
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2

    torch._dynamo.reset()
    compiled = bcmend.compile(program, backend="eager", fullgraph=True)
    total = torch.ones(count)
    if history:
        total = total.requires_grad_() * 1
    compiled(POSITIVE.clone(), total)
    torch.set_grad_enabled(True)
    assert set(found) - {""} == {obstacle}
    sites = [site for site in bcmend.report(program).sites if site.kind == "guard"]
    assert [site.status for site in sites] == ["mended"]
    with pytest.raises(ValueError, match="negative"):
        compiled(NEGATIVE.clone(), total.detach().clone().requires_grad_(history) * 1)
    bcmend.unpatch()


def _graph(*nodes: tuple[Any, tuple[Any, ...]], **more: Any) -> Any:
    """Return the output of a trace whose graph has these calls."""
    graph = torch.fx.Graph()
    for target, arguments in nodes:
        graph.call_function(target, arguments)
    state = SimpleNamespace(global_state={"grad_enabled": (None, True)})
    output: Any = SimpleNamespace(
        graph=graph,
        nn_modules={},
        random_calls=[],
        side_effects=SimpleNamespace(tensor_hooks={}),
        tracing_context=SimpleNamespace(global_context=state),
    )
    undo_log._CHANGED_INPUTS.put(output, more.get("changed", []))
    return output


def test_a_graph_that_only_computes_can_be_undone() -> None:
    assert undo_log.obstacle(_graph((torch.add, (1, 2)))) == ""


@pytest.mark.parametrize(
    ("modes", "expected"),
    [([], ""), ([False, True], ""), ([False], "a setting of torch is left changed")],
)
def test_the_last_mode_of_gradients_counts(modes: list[bool], expected: str) -> None:
    calls = [(torch._C._set_grad_enabled, (mode,)) for mode in modes]
    assert undo_log.obstacle(_graph(*calls)) == expected


def test_a_generator_that_is_given_cannot_be_put_back() -> None:
    output = _graph((torch.add, (1, 2)))
    output.graph.placeholder("generator").meta["example_value"] = torch.Generator()
    assert undo_log.obstacle(output) == "a generator of random numbers is given"


def test_a_tensor_of_a_class_of_its_own_is_not_copied() -> None:
    output = _graph()
    given = output.graph.placeholder("x")
    given.meta["example_value"] = torch.ones(2)  # no fake tensor
    undo_log._CHANGED_INPUTS.put(output, [given])
    assert undo_log.obstacle(output) == (
        "an argument that is changed in place is of a class of its own"
    )


def test_the_examples_are_those_of_nodes_that_stand_for_tensors() -> None:
    graph = torch.fx.Graph()
    one, number, unknown = (graph.placeholder(name) for name in "xny")
    one.meta["example_value"], number.meta["example_value"] = torch.ones(1), 3
    assert undo_log.examples_of([one, number, unknown, 7]) == [one.meta["example_value"]]


def test_what_is_restored_does_not_count_as_changed() -> None:
    tensor, before = torch.ones(2), torch.zeros(2)
    version = tensor._version
    undo_log.put_back(((tensor, before),), draws=False)
    assert torch.equal(tensor, before) and tensor._version == version


def test_a_leaf_that_requires_a_gradient_is_restored() -> None:
    tensor = torch.ones(2, requires_grad=True)
    undo_log.put_back(((tensor, torch.zeros(2)),), draws=False)
    assert torch.equal(tensor, torch.zeros(2)) and tensor.is_leaf
