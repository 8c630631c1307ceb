"""Output sinks that the user brings, and loggers whose level changes."""

from __future__ import annotations

import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import CountingBackend

X = torch.tensor([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _compiled(program: Any) -> tuple[Callable[..., Any], CountingBackend]:
    torch._dynamo.reset()
    backend = CountingBackend("eager")
    return torch.compile(bcmend.patch(program), backend=backend, fullgraph=True), backend


class Board:
    """Keeps what it is sent, in C for all that Dynamo knows."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    @torch._dynamo.disable
    def send(self, name: str, value: Any, step: int = 0) -> None:
        self.sent.append((name, float(value), step))


board = Board()
send = board.send


def test_a_registered_method_is_deferred() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        board.send("sum", y.sum(), step=1)
        board.send("item", y.sum().item())
        y.add_(1)
        return y

    board.sent.clear()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        _compiled(program)[0](X)
    bcmend.unpatch()
    bcmend.register_output(Board.send)
    compiled, backend = _compiled(program)
    assert compiled(X).tolist() == [3.0, 5.0, 7.0]
    assert board.sent == [("sum", 12.0, 1), ("item", 12.0, 0)]
    assert backend.graphs == 1


def test_the_result_is_used_only_where_it_is_none() -> None:
    def program(x: Tensor) -> Any:
        return x * 2, board.send("sum", x.sum())

    board.sent.clear()
    bcmend.register_output(Board.send, returns_none=True)
    compiled, _ = _compiled(program)
    assert compiled(X)[1] is None
    assert board.sent == [("sum", 6.0, 0)]


def _writer_class() -> type:
    """A class that bears the name of TensorBoard's, and records what it is asked to write."""

    class SummaryWriter:
        def __init__(self) -> None:
            self.written: list[Any] = []

        @torch._dynamo.disable
        def add_scalar(self, tag: str, value: Any, global_step: int | None = None) -> None:
            self.written.append((tag, float(torch.as_tensor(value).detach()), global_step))

        @torch._dynamo.disable
        def add_histogram(self, tag: str, values: Tensor, global_step: int | None = None) -> None:
            self.written.append((tag, values.tolist(), global_step))

    SummaryWriter.__module__ = "torch.utils.tensorboard.writer"
    SummaryWriter.__qualname__ = "SummaryWriter"
    return SummaryWriter


def test_a_writer_of_summaries() -> None:
    class Writer(_writer_class()):  # type: ignore[misc]
        pass

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.writer, self.linear = Writer(), torch.nn.Linear(3, 3)

        def forward(self, x: Tensor, step: int) -> Tensor:
            y = self.linear(x)
            self.writer.add_scalar("loss", y.sum(), step)
            self.writer.add_histogram("weights", self.linear.weight[0], global_step=step)
            if y.sum() > 0:
                self.writer.add_scalar("positive", y.sum().item(), step)
                y = y * 2
            return y

    net = Net()
    given = [(X, 0), (-X, 0), (X, 0)]
    expected = [net(*each) for each in given]
    written = list(net.writer.written)
    net.writer.written.clear()
    compiled, backend = _compiled(net)
    found = [compiled(*each) for each in given]
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert net.writer.written == written
    assert backend.graphs == 1


def test_a_function_of_a_module_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("dashboard")
    sent: list[Any] = []
    exec("def log(values):\n    sink(values)", vars(module))
    module.sink = torch._dynamo.disable(sent.append)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dashboard", module)
    bcmend.register_output("dashboard.log")

    def program(x: Tensor) -> Tensor:
        import dashboard  # type: ignore[import-not-found]

        dashboard.log({"mean": x.mean().item()})
        return x * 2

    compiled, _ = _compiled(program)
    compiled(X)
    assert sent == [{"mean": 2.0}]


# --- levels


def _operators(program: Any, *arguments: Any) -> int:
    """Return how many operators the graph of a patched program has."""
    counts: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        counts.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
        return graph

    torch._dynamo.reset()
    torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)(*arguments)
    (count,) = counts
    return count


def _texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith("tests.")]


log = logging.getLogger("tests.integration.outputs")
adapter = logging.LoggerAdapter(log, {})


def test_a_disabled_level_adds_nothing_to_the_graph() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        log.debug("y %s", y)
        adapter.debug("mean %.2f", y.mean().item())
        log.log(logging.DEBUG, "y %s", y)
        y.add_(1)
        return y

    log.setLevel(logging.INFO)
    assert _operators(program, X) == 2
    bcmend.unpatch()
    log.setLevel(logging.DEBUG)
    assert _operators(program, X) > 2


def test_a_level_may_change_between_calls(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Tensor) -> Tensor:
        log.debug("sum %s", x.sum().item())
        return x * 2

    log.setLevel(logging.INFO)
    compiled, backend = _compiled(program)
    for level, count in (
        (logging.INFO, 0),
        (logging.DEBUG, 1),
        (logging.INFO, 1),
        (logging.DEBUG, 2),
    ):
        log.setLevel(level)
        compiled(X)
        assert _texts(caplog) == ["sum 6.0"] * count
    logging.disable(logging.CRITICAL)
    try:
        compiled(X)
    finally:
        logging.disable(logging.NOTSET)
    assert len(_texts(caplog)) == 2
    assert backend.graphs <= 2


def test_the_level_of_a_parent_counts(caplog: pytest.LogCaptureFixture) -> None:
    child = logging.getLogger("tests.integration.outputs.child")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = child

        def forward(self, x: Tensor) -> Tensor:
            self.log.info("sum %s", x.sum().item())
            return x * 2

    log.setLevel(logging.ERROR)
    compiled, _ = _compiled(Net())
    compiled(X)
    assert not _texts(caplog)
    log.setLevel(logging.INFO)
    compiled(X)
    assert _texts(caplog) == ["sum 6.0"]


def test_two_loggers_at_one_place_have_their_own_levels(caplog: pytest.LogCaptureFixture) -> None:
    loud, quiet = logging.getLogger("tests.loud"), logging.getLogger("tests.quiet")
    loud.setLevel(logging.INFO)
    quiet.setLevel(logging.ERROR)

    def say(x: Tensor, to: logging.Logger) -> None:
        to.info("sum %s", x.sum().item())

    def program(x: Tensor) -> Tensor:
        say(x, quiet)
        say(x + 1, loud)
        say(x + 2, quiet)
        return x * 2

    compiled, _ = _compiled(program)
    compiled(X)
    assert _texts(caplog) == ["sum 9.0"]


# --- to whom a warning is attributed


class Complaining(torch.nn.Module):
    def __init__(self, levels: range) -> None:
        super().__init__()
        self.levels = levels

    def complain(self) -> None:
        for level in self.levels:
            warnings.warn(f"level {level}", FutureWarning, stacklevel=level)

    def forward(self, x: Tensor) -> Tensor:
        self.complain()
        return x + 1


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Complaining(range(1, 8))
        self.layers = torch.nn.Sequential(Complaining(range(1, 12)), torch.nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x) + self.inner.forward(x)
        if y.sum() > 0:
            y = self.layers(y)
        return y


def _warnings_of(call: Callable[..., Any], x: Tensor) -> list[tuple[str, str, int]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(x)
    own = (each for each in found if "/torch/_dynamo/" not in each.filename)  # to those who compile
    return [(str(each.message), each.filename, each.lineno) for each in own]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_warning_names_the_caller_that_its_level_counts(in_place: bool) -> None:
    net = Outer()

    def mended() -> Callable[..., Any]:
        if not in_place:
            return _compiled(net)[0]
        torch._dynamo.reset()
        bcmend.patch(net).compile(backend="eager", fullgraph=True)
        return net

    found = [
        _warnings_of(made(), X) for made in (lambda: net, mended)
    ]  # from one and the same line
    assert len({each[1:] for each in found[0]}) > 8
    assert found[1] == found[0]


def test_a_warning_of_one_place_is_shown_as_often_as_its_filter_says() -> None:
    def helper(text: str) -> None:
        warnings.warn(text, FutureWarning, stacklevel=2)

    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            helper("one")
        helper("one")
        helper("two")
        return x * 2

    def shown(call: Callable[..., Any], rule: Any) -> list[tuple[str, str, int]]:
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(rule)
            call(X)
            call(X)
        return [(str(each.message), each.filename, each.lineno) for each in found]

    compiled, _ = _compiled(program)
    for rule, count in (("default", 3), ("once", 2), ("module", 2), ("always", 10), ("ignore", 0)):
        expected = shown(program, rule)
        assert len(expected) == count
        assert shown(compiled, rule) == expected
