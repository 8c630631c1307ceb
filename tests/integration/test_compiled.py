"""What holds for a patched model while it is compiled, in places where it is easily broken."""

from __future__ import annotations

import io
import logging
import py_compile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bcmend
from tests import new_process

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


UP, DOWN = torch.full((3,), 5.0), torch.full((3,), -20.0)


class Counting:
    """A back end that runs graphs as they are and keeps them."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, examples: Any) -> Any:
        self.graphs.append(graph)
        return graph.forward


# --- without source ------------------------------------------------------------------------------

MODEL = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 100:
            raise ValueError("too large")
        print("mean", x.mean().item())
        if x.mean() > 0:
            return x + 1
        return x - 1
"""

PROGRAM = """
import torch, bcmend, hidden
assert hidden.__file__.endswith(".pyc"), hidden.__file__
model = hidden.Net()
expected = [model(torch.ones(3)), model(-torch.ones(3))]
bcmend.patch(model)
graphs = []
def backend(graph, examples):
    graphs.append(graph)
    return graph.forward
compiled = torch.compile(model, backend=backend, fullgraph=True)
assert torch.equal(compiled(torch.ones(3)), expected[0])
assert torch.equal(compiled(-torch.ones(3)), expected[1])
try:
    compiled(torch.full((3,), 99.0))
except ValueError as error:
    assert error.args == ("too large",)
else:
    raise SystemExit("no exception")
assert len(graphs) == 1, len(graphs)
"""


def test_a_model_without_source_is_one_graph(tmp_path: Path) -> None:
    source = tmp_path / "hidden.py"
    source.write_text(MODEL)
    py_compile.compile(str(source), cfile=str(tmp_path / "hidden.pyc"), doraise=True)
    source.unlink()
    done = new_process.run(
        *("-c", PROGRAM),
        env={"PYTHONPATH": f"{tmp_path}:{Path(bcmend.__file__).parents[1]}", "HOME": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "mean 1.0\nmean -1.0\n" * 2


# --- threads -------------------------------------------------------------------------------------

logger = logging.getLogger("bcmend_integration")


class Talking(torch.nn.Module):
    """Logs, prints to a file of the caller's, and checks its input."""

    def forward(self, x: torch.Tensor, file: io.StringIO) -> torch.Tensor:
        logger.info("input %s", x.mean().item())
        if x.max() > 100:
            raise ValueError("too large", x)
        if x.mean() > 0:
            y = x * 2
        else:
            y = x - 1
        print("output", y.sum().item(), file=file)
        return y


class Collecting(logging.Handler):
    """Keeps what is logged, by thread."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.setdefault(threading.current_thread().name, []).append(record.getMessage())


@pytest.fixture
def collected() -> Iterator[dict[str, list[str]]]:
    handler = Collecting()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.lines
    logger.removeHandler(handler)


def _turn(call: Any, number: int, turns: int) -> tuple[str, list[object]]:
    """Call with this thread's own numbers; every fourth input is too large."""
    file, seen = io.StringIO(), []
    for turn in range(turns):
        value = float((number + 1) * (turn - 2)) if turn % 4 != 3 else 1000.0 + number
        try:
            seen.append(call(torch.full((3,), value), file).tolist())
        except ValueError as error:
            seen.append((error.args[0], error.args[1].tolist()))
    return file.getvalue(), seen


def test_threads_have_their_own_output_and_exceptions(collected: dict[str, list[str]]) -> None:
    model, backend = Talking(), Counting()
    expected = [_turn(model, number, 8) for number in range(4)]
    expected_lines = collected.pop(threading.current_thread().name)
    bcmend.patch(model)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    _turn(compiled, 0, 4)
    collected.clear()
    graphs = len(backend.graphs)
    found: dict[int, object] = {}
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        try:
            found[number] = _turn(compiled, number, 8)
        except BaseException as error:
            found[number] = error

    threads = [
        threading.Thread(target=work, args=(number,), name=f"worker {number}")
        for number in range(4)
    ]
    with torch._dynamo.config.patch(error_on_recompile=True):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[number] for number in range(4)] == expected
    assert [line for number in range(4) for line in collected[f"worker {number}"]] == expected_lines
    assert len(backend.graphs) == graphs == 1


def test_calls_do_not_recompile() -> None:
    model = bcmend.patch(Talking())
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    _turn(compiled, 0, 4)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for number in range(3):
            assert _turn(compiled, number, 8) == _turn(model, number, 8)


# --- functions that no static look finds ---------------------------------------------------------


def _handler_a(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def _handler_b(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        print("up", x.sum().item())
        return x * 2
    return x / 2


class Computed(torch.nn.Module):
    """Reaches a method by a computed name, and functions of a dictionary filled at run time."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: dict[str, Any] = {}

    def step_one(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 1:
            x = x + 2
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = getattr(self, "step" + "_" + "one")(x)
        for name in sorted(self.handlers):
            x = self.handlers[name](x)
        return x


@pytest.mark.parametrize("late", [False, True])
def test_a_function_that_is_found_at_the_first_call(
    late: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [_handler_a.__code__, _handler_b.__code__, Computed.step_one.__code__]
    model, backend = Computed(), Counting()
    handlers = {"a": _handler_a, "b": _handler_b}
    if not late:
        model.handlers.update(handlers)
    bcmend.patch(model)
    model.handlers.update(handlers)
    expected = [model(UP), model(DOWN)]
    output = capsys.readouterr().out
    compiled = torch.compile(model, backend=backend)
    assert torch.equal(compiled(UP), expected[0]) and torch.equal(compiled(DOWN), expected[1])
    assert capsys.readouterr().out == output
    assert len(backend.graphs) == 1
    bcmend.unpatch()
    now = [_handler_a.__code__, _handler_b.__code__, Computed.step_one.__code__]
    assert all(one is other for one, other in zip(now, codes, strict=True))


def test_unpatching_one_model_takes_back_what_was_found_at_a_call() -> None:
    codes = [_handler_a.__code__, _handler_b.__code__, Computed.step_one.__code__]
    model = bcmend.patch(Computed())
    model.handlers.update(a=_handler_a, b=_handler_b)
    torch.compile(model, backend="eager")(UP)
    model.handlers.clear()
    bcmend.unpatch(model)
    now = [_handler_a.__code__, _handler_b.__code__, Computed.step_one.__code__]
    assert all(one is other for one, other in zip(now, codes, strict=True))


# --- what does not compile -----------------------------------------------------------------------


class Expensive(torch.nn.Module):
    """Two arms with a matrix product each."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(64, 64)
        self.other = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("in")
        if x.sum() > 0:
            y = self.one(x)
        else:
            y = self.other(x)
        print("out")
        return y.relu()


def _without_cond(graph: torch.fx.GraphModule, examples: Any) -> Any:
    if any("cond" in str(node.target) for node in graph.graph.nodes):
        raise NotImplementedError("no conditionals here")
    return graph.forward


def test_a_back_end_that_refuses_conditionals(capsys: pytest.CaptureFixture[str]) -> None:
    model = Expensive()
    inputs = [torch.ones(2, 64), -torch.ones(2, 64)]
    expected = [model(x) for x in inputs]
    bcmend.patch(model, policy=bcmend.Policy(branch="cond"))
    seen = Counting()
    torch.compile(model, backend=seen)(inputs[0])
    assert any("cond" in str(node.target) for node in seen.graphs[0].graph.nodes)
    torch._dynamo.reset()
    capsys.readouterr()
    compiled = torch.compile(model, backend=_without_cond)
    for _ in range(2):
        for x, y in zip(inputs, expected, strict=True):
            assert torch.equal(compiled(x), y)
            assert capsys.readouterr().out == "in\nout\n"


def test_a_back_end_that_always_fails_raises_what_it_raises_without_bcmend() -> None:
    def failing(graph: torch.fx.GraphModule, examples: Any) -> Any:
        raise NotImplementedError("nothing here")

    model = Expensive()
    x = torch.ones(2, 64)
    with pytest.raises(Exception) as stock:
        torch.compile(model, backend=failing)(x)
    torch._dynamo.reset()
    bcmend.patch(model)
    with pytest.raises(type(stock.value)) as mended:
        torch.compile(model, backend=failing)(x)
    assert "nothing here" in str(mended.value) and "nothing here" in str(stock.value)
    assert torch.equal(model(x), torch.compile(model, backend="eager")(x))


# --- graphs that stay apart ----------------------------------------------------------------------


class Broken(torch.nn.Module):
    """Output on both sides of a graph break, and of one in a function that is called."""

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        print("inner before", x.sum().item())
        torch._dynamo.graph_break()
        print("inner after", x.sum().item())
        return x + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("first", x.sum().item())
        x = x * 2
        torch._dynamo.graph_break()
        print("second", x.sum().item())
        x = self.inner(x)
        if x.sum() > 0:
            print("up")
            x = x - 1
        else:
            print("down")
        print("last", x.sum().item())
        return x


def test_output_keeps_its_order_around_graph_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    model, stock, mended = Broken(), Counting(), Counting()
    expected = []
    for x in (UP, DOWN):
        expected.append((model(x), capsys.readouterr().out))
    compiled = torch.compile(model, backend=stock)
    for x, (y, output) in zip((UP, DOWN), expected, strict=True):
        assert torch.equal(compiled(x), y) and capsys.readouterr().out == output
    torch._dynamo.reset()
    bcmend.patch(model)
    compiled = torch.compile(model, backend=mended)
    for _ in range(2):
        for x, (y, output) in zip((UP, DOWN), expected, strict=True):
            assert torch.equal(compiled(x), y) and capsys.readouterr().out == output
    assert len(mended.graphs) <= len(stock.graphs)


class Failing(torch.nn.Module):
    """Fails behind a graph break, after output."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("before")
        torch._dynamo.graph_break()
        print("between")
        if x.sum() < 0:
            raise ValueError("negative")
        print("after")
        return x + 1


def test_an_exception_behind_a_graph_break(capsys: pytest.CaptureFixture[str]) -> None:
    model = bcmend.patch(Failing())
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(UP), UP + 1)
        assert capsys.readouterr().out == "before\nbetween\nafter\n"
        with pytest.raises(ValueError, match="negative"):
            compiled(DOWN)
        assert capsys.readouterr().out == "before\nbetween\n"


def test_full_graph_is_refused_where_stock_refuses_it() -> None:
    model = bcmend.patch(Failing())
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(UP)
    assert torch.equal(model(UP), UP + 1)
