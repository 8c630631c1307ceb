"""``Policy(verify="sides")``: a call that first takes a side of a branch is compared with eager."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bcmend
from bcmend.dynamo import compat
from bcmend.trials import first_calls
from bcmend.trials.apart import TriedCall, makes_copies, run_apart
from tests.trials.programs import breaking, told, wrong

pytestmark = [
    pytest.mark.skipif(not makes_copies(), reason="processes cannot be copied here"),
    pytest.mark.usefixtures("dynamo_begun_anew"),
]

SIDES = bcmend.Policy(verify="sides")
ONES = torch.ones(3)


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """A process in which something compiled has gone back makes no copies that do."""
    with torch.no_grad():
        yield


class Graphs:
    """A back end that keeps how many results each graph has."""

    def __init__(self) -> None:
        self.results: list[int] = []

    def __call__(self, module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        self.results.append(len(module.graph.output_node().args[0]))
        return module.forward


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Of each call that was compared, the lines of the branches of which it takes new sides."""
    found: list[list[str]] = []

    def compare(*given: Any) -> bool:
        found.append([each.split(":")[1] for each in given[-1]])
        return first_calls.compare(*given)

    monkeypatch.setattr(first_calls.SESSION, "verifier", compare)
    return found


def _same(compiled: Callable[..., Any], eager: Callable[..., Any], *calls: Any) -> None:
    for each in calls:
        assert torch.equal(compiled(each), eager(each))


def two_sides(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    return x + 1


def test_each_side_is_compared_once_and_then_nothing_is_read(
    compared: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    graphs = Graphs()
    compiled = torch.compile(bcmend.patch(two_sides, policy=SIDES), backend=graphs, fullgraph=True)
    _same(compiled, two_sides, ONES, ONES)
    assert len(compared) == 1
    _same(compiled, two_sides, -ONES)
    assert len(compared) == 2
    _same(compiled, two_sides, *[ONES, -ONES] * 3)
    assert len(compared) == 2
    assert graphs.results == [3, 1]  # the result and a condition for each side, then the result
    assert not told(caplog)


def nested(x: Tensor) -> Tensor:
    if x.sum() > 0:
        if x.max() > 5:
            return x * 3
        return x * 2
    return x


def test_a_side_inside_of_an_arm_is_new_where_the_arm_is_taken(compared: list[list[str]]) -> None:
    compiled = torch.compile(bcmend.patch(nested, policy=SIDES), backend="eager", fullgraph=True)
    high_and_negative = torch.tensor([9.0, -20.0, 0.0])
    _same(compiled, nested, -ONES, high_and_negative)
    assert len(compared) == 1
    _same(compiled, nested, ONES)
    assert len(compared) == 2 and len(compared[-1]) == 2  # one of each branch
    _same(compiled, nested, ONES * 9)
    assert len(compared) == 3 and len(compared[-1]) == 1
    _same(compiled, nested, ONES, ONES * 9, -ONES)
    assert len(compared) == 3


@pytest.mark.parametrize("branch", ["where", "cond"])
def test_both_lowerings(branch: Any, compared: list[list[str]]) -> None:
    policy = bcmend.Policy(verify="sides", branch=branch)
    compiled = torch.compile(bcmend.patch(nested, policy=policy), backend="eager", fullgraph=True)
    _same(compiled, nested, ONES, ONES * 9, -ONES, ONES, ONES * 9, -ONES)
    assert len(compared) == 3


class Net(nn.Module):
    """Changes a buffer, a list, a number and the generator, and writes."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("total", torch.zeros(3))
        self.kept: list[Tensor] = []
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.total += x.sum(0)
        self.count += 1
        x = self.norm(x) + torch.rand_like(x)
        if self.total.sum() > 7:
            print("over", self.count)
            self.kept.append(x)
            self.total.zero_()
        return x


def test_nothing_is_done_twice(
    compared: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    net, eager = Net(), Net()
    compiled = torch.compile(bcmend.patch(net, policy=SIDES), backend="eager", fullgraph=True)
    for number in range(9):
        x = torch.arange(6.0).view(2, 3) / 10 + number % 3
        torch.manual_seed(number)
        expected = eager(x)
        text = capsys.readouterr().out
        torch.manual_seed(number)
        assert torch.equal(compiled(x), expected)
        assert capsys.readouterr().out == text
        assert torch.equal(net.total, eager.total) and net.count == eager.count
        assert len(net.kept) == len(eager.kept)
        assert torch.equal(net.norm.running_mean, eager.norm.running_mean)  # type: ignore[arg-type]
    assert len(compared) == 2


def _with_a_wrong_side(host: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        if x.max() > 50:
            x = x - 1
        if x.sum() > 10:
            x = host(x)
        return x * 3

    return program


def _of_a_callee(host: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def callee(x: Tensor) -> Tensor:
        return host(x) if x.sum() > 0 else x * 4

    return lambda x: callee(x)


_Make = Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]


def _wrong_side(make: _Make, *, fullgraph: bool = False) -> tuple[Any, Any]:
    """Return a compiled program that has a substitute which is none on one side, and eagerly."""
    host = breaking()
    bcmend.register_capture(host, wrong)
    program = bcmend.patch(make(host), policy=SIDES)
    return torch.compile(program, backend="eager", fullgraph=fullgraph), make(host)


def test_a_side_that_differs_is_withdrawn_and_eager_execution_counts(
    compared: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    compiled, eager = _wrong_side(_with_a_wrong_side)
    _same(compiled, eager, ONES, ONES)
    assert not told(caplog)  # the side that is wrong was not taken
    _same(compiled, eager, ONES * 9, ONES * 9, ONES, ONES * 99)
    (text,) = [each for each in told(caplog) if "differs from eager" in each]
    assert "is withdrawn" in text and "Policy(off=" in text and "new sides of" in text


def test_a_wrong_side_in_a_function_that_is_called(
    compared: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Without bcmend means without it in what is called as well."""
    compiled, eager = _wrong_side(_of_a_callee)
    _same(compiled, eager, -ONES, ONES, ONES, -ONES, ONES)
    (text,) = [each for each in told(caplog) if "differs from eager" in each]
    assert "is withdrawn" in text


def test_a_wrong_side_where_torch_alone_cannot_compile_the_call(
    compared: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    compiled, eager = _wrong_side(_with_a_wrong_side, fullgraph=True)
    _same(compiled, eager, ONES, ONES * 9)
    assert any("differs from eager" in each for each in told(caplog))
    with pytest.raises(compat.Unsupported):
        compiled(ONES * 9)


def test_a_process_that_cannot_be_copied_makes_the_call(
    compared: list[list[str]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fails)
    monkeypatch.setattr(first_calls, "_SAID", set())
    compiled = torch.compile(bcmend.patch(two_sides, policy=SIDES), backend="eager")
    _same(compiled, two_sides, ONES, -ONES, ONES)
    (text,) = told(caplog)
    assert "could not be compared" in text and "unavailable" in text


def unbound_effects(x: Tensor, large: Tensor) -> Tensor:
    large.add_(1)
    if x.sum() > 0:
        return x * 2
    return x


def test_what_cannot_be_put_back_is_not_compared_and_says_so(
    compared: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    program = bcmend.patch(unbound_effects, policy=SIDES)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    large = torch.zeros(2**20)
    for x in (ONES, -ONES, ONES):
        compiled(x, large)
    assert large[0] == 3
    assert not compared
    (text,) = told(caplog)
    assert "not compared in calls of unbound_effects" in text and "are large" in text


def test_a_function_that_is_not_patched_around_it_says_so(
    compared: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    bcmend.patch(two_sides, policy=SIDES)

    def around(x: Tensor) -> Tensor:
        return two_sides(x) - 1

    compiled = torch.compile(around, backend="eager", fullgraph=True)
    _same(compiled, around, ONES, -ONES)
    assert not compared
    (text,) = told(caplog)
    assert "not compared" in text and "not patched" in text


def fails_a_check(x: Tensor) -> Tensor:
    if x.isnan().any():
        raise ValueError("not a number")
    return two_sides(x)


def test_a_check_that_fails_is_made_eagerly_and_needs_no_comparison(
    compared: list[list[str]],
) -> None:
    graphs = Graphs()
    compiled = torch.compile(
        bcmend.patch(fails_a_check, policy=SIDES), backend=graphs, fullgraph=True
    )
    _same(compiled, fails_a_check, ONES, -ONES, ONES)
    with pytest.raises(ValueError, match="not a number"):
        compiled(ONES * torch.nan)
    _same(compiled, fails_a_check, ONES, -ONES)
    assert len(compared) == 2
    assert len(graphs.results) == 2


def counted(x: Tensor) -> Tensor:
    while x.sum() > 10:
        x = x / 2
    return x


def test_a_loop_that_makes_no_turn_and_one_that_does(compared: list[list[str]]) -> None:
    compiled = torch.compile(bcmend.patch(counted, policy=SIDES), backend="eager", fullgraph=True)
    _same(compiled, counted, ONES, ONES)
    assert len(compared) == 1
    _same(compiled, counted, ONES * 100, ONES * 9, ONES)
    assert len(compared) == 2


def turns_with_branches(x: Tensor) -> Tensor:
    while x.sum() > 10:
        if x.max() > 20:
            x = x / 4
        x = x / 2
    return x


def test_a_loop_keeps_its_graph(compared: list[list[str]]) -> None:
    program = bcmend.patch(turns_with_branches, policy=SIDES)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    _same(compiled, turns_with_branches, ONES, ONES * 100, ONES * 9)
    assert len(compared) == 2


def test_the_number_of_a_side_for_two_places_in_a_call(compared: list[list[str]]) -> None:
    def twice(x: Tensor) -> Tensor:
        return two_sides(two_sides(x))

    compiled = torch.compile(bcmend.patch(twice, policy=SIDES), backend="eager", fullgraph=True)
    _same(compiled, twice, ONES, -ONES, torch.tensor([-1.0, -1.0, 1.0]))
    assert len(compared) == 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_with_gradients(
    backend: str, compared: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    compiled = torch.compile(bcmend.patch(nested, policy=SIDES), backend=backend, fullgraph=True)
    with torch.enable_grad():
        for value in (1.0, -1.0, 9.0, 1.0, -1.0):
            one, other = (torch.full((3,), value, requires_grad=True) for _ in range(2))
            found, expected = compiled(one), nested(other)
            assert torch.equal(found, expected)
            (one_gradient,) = torch.autograd.grad(found.sum(), one)
            (other_gradient,) = torch.autograd.grad(expected.sum(), other)
            assert torch.equal(one_gradient, other_gradient)
    assert len(compared) == 3
    assert all("cannot be copied" in each for each in told(caplog))  # builds for accelerators


def test_inductor_with_threads(compared: list[list[str]], caplog: pytest.LogCaptureFixture) -> None:
    """A copy of the process has none of Inductor's threads."""

    def wide(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x.sin() * 2
        return x.cos() + 1

    compiled = torch.compile(bcmend.patch(wide, policy=SIDES), fullgraph=True)
    wide_ones = torch.ones(256, 512)
    for each in (wide_ones, -wide_ones, wide_ones):
        assert torch.allclose(compiled(each), wide(each))
    assert len(compared) == 2
    assert not told(caplog)


def test_a_checkpoint_saves_the_same_tensors_both_times() -> None:
    """What is computed once more in the backward pass is computed in the same way."""
    net = bcmend.patch(two_sides, policy=SIDES)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    with torch.enable_grad():
        for value in (1.0, -1.0, 1.0, -1.0):
            x = torch.full((3,), value, requires_grad=True)
            checkpoint(compiled, x, use_reentrant=False).sum().backward()
            assert x.grad is not None
            assert torch.equal(x.grad, torch.full((3,), 2.0 if value > 0 else 1.0))


def test_a_copy_has_no_pools() -> None:
    before = compat.inductor_config.compile_threads

    def look(_: TriedCall) -> tuple[int, int, int]:
        config = compat.inductor_config
        return torch.get_num_threads(), config.compile_threads, config.cpp.threads

    assert run_apart(TriedCall(None, (), {}), look) == (1, 1, 1)
    assert compat.inductor_config.compile_threads == before
