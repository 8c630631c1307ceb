"""Records inside the graph: what runs at its place, what is deferred, and what stays in order."""

from __future__ import annotations

import logging
import random
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import assert_equivalent, call, fresh

INLINE = bcmend.Policy(output="inline", guards="inline")
POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])

logger = logging.getLogger("tests.inline")
logger.setLevel(logging.INFO)

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


def _inline(make: Callable[[], Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    program = bcmend.patch(make(), policy=INLINE)
    return program, torch.compile(program, **options)


def _both() -> list[Any]:
    return [call(POSITIVE.clone()), call(NEGATIVE.clone()), call(POSITIVE.clone())]


def _lowerings(report: bcmend.Report | None) -> set[str | None]:
    assert report is not None
    return {site.lowering for site in report.sites}


class Sink:
    """A file that keeps what is written to it, and what a probe says at that moment."""

    def __init__(self, probe: Callable[[], Any] = int) -> None:
        self.texts: list[str] = []
        self.probed: list[Any] = []
        self._probe = probe

    def write(self, text: str) -> int:
        self.texts.append(text)
        self.probed.append(self._probe())
        return len(text)


@BACKENDS
def test_output_before_a_failing_operation_is_there(backend: str) -> None:
    sink = Sink()

    def program(x: Tensor, index: Tensor) -> Tensor:
        noise = torch.rand(3)  # so that the call cannot be made again
        print("1", file=sink)
        y = (x + noise)[index]
        print("2", file=sink)
        return y

    compiled = bcmend.compile(program, policy=INLINE, backend=backend, fullgraph=True)
    compiled(POSITIVE, torch.tensor([0, 2]))
    assert "".join(sink.texts) == "1\n2\n"
    sink.texts.clear()
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        compiled(POSITIVE, torch.tensor([0, 7]))
    assert "".join(sink.texts) == "1\n"


def test_without_the_policy_output_before_a_failing_operation_is_lost() -> None:
    sink = Sink()

    def program(x: Tensor, index: Tensor) -> Tensor:
        x.mul_(2)
        print("1", file=sink)
        return x[index]

    compiled = bcmend.compile(program, backend="aot_eager", fullgraph=True)
    with pytest.raises(IndexError):
        compiled(torch.ones(2**18), torch.tensor([0, 2**18]))  # too large to be kept for that
    assert sink.texts == []


def _values_of_the_moment() -> Any:
    def program(x: Tensor) -> Tensor:
        y = x.detach().clone()
        print("first", y, f"{y.sum().item():.1f}")
        y.add_(1)
        logger.info("then %s of %d", y, len(x))
        y.mul_(2)
        warnings.warn(f"last {y.tolist()}", stacklevel=1)
        return y + x

    return program


def _order_of_all_kinds() -> Any:
    def program(x: Tensor) -> Tensor:
        print("before", x.shape)
        if x.sum() < -100:
            raise KeyError("never")
        logger.info("between")
        if x.sum() < 0:
            error = ValueError("negative", 3)
            error.total = -6  # type: ignore[attr-defined]
            raise error
        warnings.warn("behind", stacklevel=1)
        return x * 2

    return program


def _records_in_an_arm() -> Any:
    def program(x: Tensor) -> Tensor:
        print("start")
        if x.sum() > 0:
            print("positive", (x * 2).detach())
            y = x + 1
        else:
            logger.info("negative")
            y = x - 1
        print("end", y.shape)
        return y

    return program


def _random_numbers_between() -> Any:
    def program(x: Tensor) -> Tensor:
        one = torch.rand(3)
        print(one)
        if x.sum() < 0:
            raise ValueError("negative")
        other = torch.rand(3)
        print(other)
        return x + one + other

    return program


class _Layer(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.linear = name, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        logger.info("layer %s", self.name)
        y: Tensor = self.linear(x)
        if y.isnan().any():
            raise FloatingPointError(self.name)
        print(self.linear.bias, y)
        return y


def _layers() -> Any:
    return nn.ModuleDict({"net": nn.Sequential(_Layer("a"), _Layer("b"))})["net"]


@pytest.mark.parametrize(
    "make",
    [
        _values_of_the_moment,
        _order_of_all_kinds,
        _records_in_an_arm,
        _random_numbers_between,
        _layers,
    ],
)
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("training", [False, True])
@BACKENDS
def test_it_cannot_be_told_from_eager(
    make: Callable[[], Any], backend: str, training: bool, fullgraph: bool
) -> None:
    found = assert_equivalent(
        make, _both, backend=backend, training=training, fullgraph=fullgraph, way=_inline
    )
    assert "inline" in _lowerings(found.report) and "deferred" not in _lowerings(found.report)


class _Counted(nn.Module):
    """A check with effects of every kind before it and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen = torch.nn.Parameter(torch.zeros(())), [0]
        self.stage = "new"
        self.register_buffer("total", torch.zeros(3))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        self.stage = "begun"
        self.seen[0] = 1
        self.total.add_(x.detach())
        y = self.norm(x.expand(2, 3))
        print(self.stage, self.total)
        if x.sum() < 0:
            raise ValueError(f"{self.stage} {self.seen} {self.total.sum().item()}")
        self.total.mul_(2)
        self.stage = "done"
        self.seen[0] = 2
        return y + torch.rand(3)


@pytest.mark.parametrize("training", [False, True])
@BACKENDS
def test_what_comes_before_a_check_is_done_and_what_comes_behind_is_not(
    backend: str, training: bool
) -> None:
    def inputs() -> list[Any]:
        return [call(NEGATIVE.clone()), call(POSITIVE.clone()), call(NEGATIVE.clone())]

    found = assert_equivalent(
        _Counted, inputs, backend=backend, training=training, way=_inline, graphs=None,
        recompiles=None,
    )  # fmt: skip
    assert _lowerings(found.report) == {"inline"}


@pytest.mark.parametrize("make", [_values_of_the_moment, _order_of_all_kinds, _Counted])
def test_inductor_keeps_the_order(make: Callable[[], Any]) -> None:
    found = assert_equivalent(
        make, _both, backend="inductor", way=_inline, graphs=None, recompiles=None
    )
    assert _lowerings(found.report) == {"inline"}


def test_a_record_that_cannot_run_inside_defers_all_of_its_frame() -> None:
    class Box:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor

        def __str__(self) -> str:
            return f"box of {self.tensor.tolist()}"

    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            print("first")
            print(Box(x))
            print("last")
            return x * 2

        return program

    found = assert_equivalent(make, _both, way=_inline)
    assert _lowerings(found.report) == {"deferred"}


def test_a_record_of_an_arm_that_may_fail_defers_all_of_its_frame() -> None:
    def make() -> Any:
        def program(index: Tensor) -> Tensor:
            x = torch.arange(3.0)
            print("first")
            if index.sum() > 0:
                print("in the arm")
                x = x[index]
            return x.sum()

        return program

    def inputs() -> list[Any]:
        return [call(torch.tensor(each)) for each in ([0, 2], [-1, -2], [0, 7])]

    found = assert_equivalent(make, inputs, backend="aot_eager", way=_inline)
    assert "deferred" in _lowerings(found.report) and "inline" not in _lowerings(found.report)


def test_a_check_that_has_to_run_inside_takes_the_output_before_it_along() -> None:
    def way(make: Callable[[], Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
        program = bcmend.patch(make(), policy=bcmend.Policy(guards="inline"))
        return program, torch.compile(program, **options)

    found = assert_equivalent(_random_numbers_between, _both, backend="aot_eager", way=way)
    assert _lowerings(found.report) == {"inline"}


def test_output_alone_takes_the_checks_between_along() -> None:
    def way(make: Callable[[], Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
        program = bcmend.patch(make(), policy=bcmend.Policy(output="inline"))
        return program, torch.compile(program, **options)

    found = assert_equivalent(_order_of_all_kinds, _both, backend="aot_eager", way=way)
    assert _lowerings(found.report) == {"inline"}


def test_output_appears_while_the_call_runs() -> None:
    x = torch.zeros(2)
    sink = Sink(lambda: x.tolist())

    def program(x: Tensor) -> Tensor:
        print("now", file=sink)
        x.add_(1)
        return x * 2

    bcmend.compile(program, policy=INLINE, backend="eager", fullgraph=True)(x)
    assert x.tolist() == [1, 1] and [0, 0] in sink.probed and [1, 1] not in sink.probed


def test_calls_in_several_threads_keep_to_their_own_objects() -> None:
    def program(x: Tensor, sink: Sink) -> Tensor:
        print(x[0].item(), file=sink)
        return x * 2

    compiled = bcmend.compile(fresh(program), policy=INLINE, backend="aot_eager", fullgraph=True)
    compiled(torch.zeros(2), Sink())
    sinks = [Sink() for _ in range(4)]

    def work(number: int) -> None:
        for turn in range(20):
            compiled(torch.full((2,), float(100 * number + turn)), sinks[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, sink in enumerate(sinks):
        expected = "".join(f"{float(100 * number + turn)}\n" for turn in range(20))
        assert "".join(sink.texts) == expected


def test_a_record_may_run_a_compiled_function_with_records() -> None:
    sink = Sink()

    def inner(x: Tensor) -> Tensor:
        print("inner", file=sink)
        return x * 3

    compiled_inner = bcmend.compile(inner, policy=INLINE, backend="eager")

    class Shown:
        def __str__(self) -> str:
            return str(compiled_inner(torch.ones(1)).item())

    def outer(x: Tensor, shown: Shown) -> Tensor:
        print("before", file=sink)
        print(shown, file=sink)
        print("behind", file=sink)
        return x + 1

    bcmend.compile(outer, policy=INLINE, backend="eager", fullgraph=True)(POSITIVE, Shown())
    assert "".join(sink.texts) == "before\ninner\n3.0\nbehind\n"


def test_an_exported_program_drops_output_with_a_warning() -> None:
    class Program(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print("hello")
            return x + 1

    program = bcmend.patch(Program(), policy=INLINE)
    with pytest.warns(bcmend.OutputDropped, match="writes no output"):
        exported = torch.export.export(program, (POSITIVE,), strict=True)
    assert torch.equal(exported.module()(POSITIVE), POSITIVE + 1)


@pytest.fixture(autouse=True)
def _fresh_state() -> Any:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


@BACKENDS
def test_numbers_of_python_are_not_drawn_ahead_of_a_check(backend: str) -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            y = x * random.uniform(1, 2)
            if y.sum() < 0:
                raise ValueError("negative", y.sum().item())
            return y * random.uniform(1, 2)

        return program

    found = assert_equivalent(make, _both, backend=backend, way=_inline)
    assert _lowerings(found.report) == {"deferred", "substitute"}


@BACKENDS
def test_a_check_computes_its_message_under_the_settings_of_its_place(backend: str) -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
                y = (x * 1.37).detach()
                if (y @ y) > 30:
                    raise ValueError((y @ y).item(), torch.is_autocast_enabled("cpu"))
            return x * 2

        return program

    calls = [call(POSITIVE.clone()), call(POSITIVE * 2)]
    found = assert_equivalent(make, lambda: calls, backend=backend, way=_inline)
    assert _lowerings(found.report) == {"inline"}


@BACKENDS
@pytest.mark.parametrize(
    "policy",
    [INLINE, bcmend.Policy(output="inline"), bcmend.Policy(guards="inline"), bcmend.Policy()],
)
def test_what_an_arm_changes_behind_a_failed_check_of_its_own_is_as_before(
    policy: bcmend.Policy, backend: str
) -> None:
    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []
            self.last = 0

        def forward(self, x: Tensor) -> Tensor:
            print("begins")
            if x.min() < 0:
                if x.max() > 2:
                    raise ValueError("too large")
                x.add_(1)
                self.last = 1
                self.seen.append(1)
            return x * 2

    def patched(make: Callable[[], Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
        program = bcmend.patch(make(), policy=policy)
        return program, torch.compile(program, **options)

    def inputs() -> list[Any]:
        return [call(torch.tensor(each)) for each in ([4.0, -3.0], [-1.0, -2.0], [1.0, 3.0])]

    assert_equivalent(Program, inputs, backend=backend, way=patched, graphs=None, recompiles=None)


@BACKENDS
@pytest.mark.parametrize("is_hidden", [True, False])
def test_output_of_a_graph_that_changes_arguments_which_share_memory_is_deferred(
    is_hidden: bool, backend: str
) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        (y.data if is_hidden else y).add_(1)
        print(x.sum().item())
        return x * 2

    def inputs() -> list[Any]:
        x = POSITIVE.clone()
        return [call(x, x[1:]), call(x, x[1:])]

    found = assert_equivalent(lambda: program, inputs, backend=backend, way=_inline)
    assert _lowerings(found.report) == {"deferred"}


@BACKENDS
def test_what_output_computes_shows_its_history(backend: str) -> None:
    def make() -> Callable[..., Tensor]:
        def program(x: Tensor) -> Tensor:
            y = x * 2
            print(y.sum(), f"{y.max()}", y)
            with torch.no_grad():
                print(y.mean(), y)
            if y.sum() > 0:
                print("positive", y.min())
            return y

        return program

    assert_equivalent(make, _both, backend=backend, training=True, recompiles=None, way=_inline)
