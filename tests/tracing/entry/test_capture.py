"""Bodies are captured whole; nothing else is, not even at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import _get_error_on_graph_break

import bcmend
from bcmend.tracing.entry.capture import of_bodies
from tests.equivalence import assert_equivalent, call

X = torch.tensor([1.0, 2.0, 3.0])


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _mended() -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 100:
            print("large")
        return x * 2

    return program


def _breaks() -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 3

    return program


def test_another_thread_may_compile_what_breaks_while_a_body_runs() -> None:
    runs, may_end = threading.Event(), threading.Event()

    def slow(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*given: Any) -> Any:
            runs.set()
            may_end.wait(60)
            return graph.forward(*given)

        return run

    compiled = bcmend.compile(_mended(), backend=slow)
    results: list[Tensor] = []
    thread = threading.Thread(target=lambda: results.append(compiled(X)))
    thread.start()
    try:
        assert runs.wait(60)
        other = torch.compile(_breaks(), backend="eager")
        assert torch.equal(other(X), (X + 1) * 3)
    finally:
        may_end.set()
        thread.join()
    assert torch.equal(results[0], X * 2)


def test_the_mode_of_dynamo_is_as_before_whatever_happens() -> None:
    seen: list[bool] = []

    def back_end(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(_get_error_on_graph_break())
        return graph.forward

    def fails(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        raise ArithmeticError("no")

    for backend in (back_end, fails):
        compiled = bcmend.compile(_mended(), backend=backend)
        if backend is back_end:
            compiled(X)
        else:
            with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
                compiled(X)
        assert not _get_error_on_graph_break()
    assert seen == [True]


def test_a_callback_is_wrapped_once_and_what_is_none_is_left() -> None:
    class Callback:
        def __call__(self, *given: Any) -> Any:
            return given

    callback = Callback()
    wrapped = of_bodies(callback)
    assert wrapped is not callback
    assert of_bodies(callback) is wrapped
    assert of_bodies(wrapped) is wrapped
    assert of_bodies(None) is None
    assert of_bodies(False) is False


def test_what_a_body_that_is_not_compiled_calls_may_break() -> None:
    breaks = _breaks()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[int] = []

        def forward(self, x: Tensor, number: int) -> Tensor:
            self.calls.append(number)
            if x.sum() > 100:
                print("large")
            return breaks(x * number)

    net = Net()
    with torch._dynamo.config.patch(recompile_limit=1):
        compiled = bcmend.compile(net, backend="eager", dynamic=False)
        for number in range(4):
            assert torch.equal(compiled(X, number), (X * number + 1) * 3)
    assert net.calls == list(range(4))


def test_a_piece_that_fails_has_written_before_and_fails_as_in_eager_execution() -> None:
    def make() -> Callable[[Tensor], Tensor]:
        def program(x: Tensor) -> Tensor:
            own = x * 1
            torch._dynamo.graph_break()
            print("sum", own.sum().item())
            return x[:2] + own

        return program

    options: dict[str, Any] = {"fullgraph": False, "graphs": None, "recompiles": None}
    assert_equivalent(make, lambda: [call(X), call(X)], **options)


@pytest.mark.parametrize(
    ("is_piece", "error"), [(True, RuntimeError), (False, RuntimeError), (False, IndexError)]
)
def test_what_the_back_end_does_not_take_is_left_as_it_was(
    is_piece: bool, error: type[Exception]
) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        if any(node.target is torch.where for node in graph.graph.nodes):
            raise error("no where")
        return graph.forward

    def program(x: Tensor) -> Tensor:
        x = x + 1
        if is_piece:
            torch._dynamo.graph_break()
        if x.sum() > 0:
            x = x * 2
        return x - 1

    name = f"program_{is_piece}_{error.__name__}"
    program.__code__ = program.__code__.replace(co_name=name)
    compiled = bcmend.compile(program, backend=backend)
    for given in (X, -X):
        assert torch.equal(compiled(given), (given + 1) * (2 if given.sum() > -3 else 1) - 1)
    (site,) = bcmend.report(program).sites
    assert site.refusal == "not-captured"
