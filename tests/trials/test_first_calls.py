"""``Policy(verify="first")``: calls that compile a variant are compared with eager ones before."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.trials import first_calls
from bcmend.trials.apart import makes_copies
from tests.patching.test_late import Counting
from tests.trials.programs import breaking, told, wrong

pytestmark = [
    pytest.mark.skipif(not makes_copies(), reason="processes cannot be copied here"),
    pytest.mark.usefixtures("dynamo_begun_anew"),
]

FIRST = bcmend.Policy(verify="first")


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """A process in which something compiled has gone back makes no copies that do."""
    with torch.no_grad():
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.calls = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.linear(x))
        if x.sum() > 0:
            print("positive")
            x = x * 2
        self.calls += 1
        return x + 1


def _compared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []

    def compare(*given: Any) -> bool:
        found.append(first_calls.compare(*given))
        return found[-1]

    monkeypatch.setattr(first_calls.SESSION, "verifier", compare)
    return found


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_equal_calls_are_mended_and_made_once(
    backend: str,
    trains: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = _compared(monkeypatch)
    torch.manual_seed(0)
    net, eager = Net().train(trains), Net().train(trains)
    eager.load_state_dict(net.state_dict())
    compiled = torch.compile(bcmend.patch(net, policy=FIRST), backend=backend, fullgraph=True)
    for size in (3, 3, 5, 7):
        x = torch.linspace(-1, 1, size * 4).view(size, 4)
        expected = eager(x)
        text = capsys.readouterr().out
        assert torch.allclose(compiled(x), expected)
        assert capsys.readouterr().out == text
        assert net.calls == eager.calls
        assert torch.equal(net.norm.running_mean, eager.norm.running_mean)  # type: ignore[arg-type]
    assert found == [True, True]  # of two variants: sizes are dynamic from the second on
    assert not told(caplog)


def _program(host: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 100:
            x = x - 1
        return host(x) * 3

    return program


def test_what_differs_is_withdrawn_and_eager_execution_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = breaking()
    bcmend.register_capture(host, wrong)
    program = _program(host)
    backend = Counting()
    compiled = torch.compile(program, backend=backend)
    x = torch.ones(3)
    bcmend.patch(program)
    assert torch.equal(compiled(x), (x + 1) * 3)  # the substitute is at work
    bcmend.unpatch()
    torch._dynamo.reset()
    bcmend.patch(program, policy=FIRST)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 3)
    text = next(each for each in told(caplog) if "differs from eager" in each)
    assert ":call is withdrawn" in text and "Policy(off=" in text
    (site,) = [each for each in bcmend.report(program).sites if each.kind == "branch"]
    assert site.status == "mended"


def test_what_no_site_alone_is_at_fault_for_is_compiled_as_without_bcmend(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first_calls, "_guilty", lambda *_: None)
    host = breaking()
    bcmend.register_capture(host, wrong)
    program = bcmend.patch(_program(host), policy=FIRST)
    compiled = torch.compile(program, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) * 3)
    (text,) = [each for each in told(caplog) if "differs from eager" in each]
    assert "compiled as without bcmend" in text


def test_a_call_that_raises_is_equal_where_it_raises_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _compared(monkeypatch)

    def checks(x: Tensor) -> Tensor:
        if (x < 0).any():
            raise ValueError("negative")
        return x + 1

    compiled = torch.compile(bcmend.patch(checks, policy=FIRST), backend="eager", fullgraph=True)
    with pytest.raises(ValueError, match="negative"):
        compiled(-torch.ones(2))
    assert torch.equal(compiled(torch.ones(2)), torch.full([2], 2.0))
    assert found == [True]


def test_random_numbers_that_a_back_end_draws_in_its_own_way_are_no_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = _compared(monkeypatch)

    def draws(x: Tensor) -> Tensor:
        if x.sum() > 100:
            x = x - 1
        return torch.rand_like(x) + x

    def own(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            torch.rand(3)  # another draw than in eager execution
            return module.forward(*given)

        return run

    compiled = torch.compile(bcmend.patch(draws, policy=FIRST), backend=own)
    compiled(torch.ones(2))
    assert found == [True]
    assert not told(caplog)


def test_a_process_that_cannot_be_copied_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first_calls, "makes_copies", lambda **_: False)
    monkeypatch.setattr(first_calls, "_SAID", set())
    compiled = torch.compile(bcmend.patch(Net(), policy=FIRST), backend="eager")
    for size in (3, 4):
        compiled(torch.ones(size, 4))
    assert len(told(caplog)) == 1


def test_tensors_in_shared_memory_are_not_changed_by_copies(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_calls, "_SAID", set())
    net = Net().share_memory()
    compiled = torch.compile(bcmend.patch(net, policy=FIRST), backend="eager")
    compiled(torch.ones(3, 4))
    assert net.norm.num_batches_tracked == 1
    assert any("shared memory" in each for each in told(caplog))


def test_a_program_that_ignores_its_children_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _compared(monkeypatch)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        compiled = torch.compile(bcmend.patch(Net().eval(), policy=FIRST), backend="eager")
        compiled(torch.ones(3, 4))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert found == [True]


def test_a_copy_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first_calls, "_SECONDS", 1.0)
    monkeypatch.setattr(first_calls, "_GIVEN_UP", [])
    monkeypatch.setattr(first_calls, "_SAID", set())
    monkeypatch.setattr(first_calls, "of_one_call", lambda *_, **__: time.sleep(60))
    compiled = torch.compile(bcmend.patch(Net().eval(), policy=FIRST), backend="eager")
    compiled(torch.ones(3, 4))
    assert any("has not ended after 1 seconds" in each for each in told(caplog))
    begun = time.monotonic()
    compiled(torch.ones(5, 4))  # another variant
    assert time.monotonic() - begun < 30
    assert any("no more calls are compared" in each for each in told(caplog))
