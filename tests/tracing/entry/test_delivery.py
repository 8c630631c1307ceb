"""Who gets the records of a call, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import bcmend

X = torch.tensor([1.0, 2.0, 3.0])


class Sink:
    """A file that keeps what is written to it, and fails at a given text."""

    def __init__(self, fails_at: str = "", error: BaseException | None = None) -> None:
        self.texts: list[str] = []
        self.fails_at, self.error = fails_at, error

    def write(self, text: str) -> None:
        if text == self.fails_at and self.error is not None:
            raise self.error
        if text != "\n":
            self.texts.append(text)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Talking(nn.Module):
    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.sink = sink

    def forward(self, x: Tensor) -> Tensor:
        print(f"first {x.sum().item():.0f}", file=self.sink)
        y = x * 2
        if x.sum() > 0:
            print("positive", y, file=self.sink)
        print(f"last {y.sum().item():.0f}", file=self.sink)
        return y


@pytest.mark.parametrize(
    "error", [OSError("full"), KeyboardInterrupt()], ids=["error", "interrupt"]
)
def test_output_behind_a_sink_that_fails_is_delivered_and_nothing_is_left_for_the_next_call(
    error: BaseException,
) -> None:
    sink = Sink("first 6", error)
    compiled = bcmend.compile(Talking(sink), backend="eager", fullgraph=True)
    with pytest.raises(type(error)) as caught:
        compiled(X)
    assert caught.value is error
    assert sink.texts == ["positive", " ", str(X * 2), "last 12"]
    sink.texts.clear()
    compiled(-X)
    assert sink.texts == ["first -6", "last -12"]


def test_the_first_error_of_a_sink_is_raised_with_the_others_in_its_notes() -> None:
    sinks = [Sink("one", OSError("first")), Sink("two", ValueError("second")), Sink()]

    def program(x: Tensor) -> Tensor:
        for sink in sinks:
            print("one", file=sink)
            print("two", file=sink)
        return x * 2

    with pytest.raises(OSError, match="first") as caught:
        bcmend.compile(program, backend="eager", fullgraph=True)(X)
    (note,) = caught.value.__notes__
    assert "ValueError('second')" in note
    assert [sink.texts for sink in sinks] == [["two"], ["one"], ["one", "two"]]


def test_nothing_behind_a_check_that_fails_is_delivered_after_a_sink_has_failed() -> None:
    sink = Sink("one", OSError("full"))
    total = torch.zeros(2**18)  # too large to be put back, so that the check is a record

    def program(x: Tensor) -> Tensor:
        print("one", file=sink)
        print("two", file=sink)
        if x.sum() > 0:
            raise ValueError("positive")
        total.add_(1)
        print("three", file=sink)
        return x * 2

    with pytest.raises(OSError, match="full") as caught:
        bcmend.compile(program, backend="eager", fullgraph=True)(X)
    assert sink.texts == ["two"]
    assert any("ValueError('positive')" in note for note in caught.value.__notes__)


def test_tensors_of_records_are_not_kept_when_these_have_been_delivered() -> None:
    alive: list[weakref.ref[Tensor]] = []

    class Watching(Sink):
        def write(self, text: str) -> None:
            super().write(text)
            found = (each for each in gc.get_objects() if type(each) is Tensor)
            alive.extend(weakref.ref(each) for each in found if each.numel() == 12345)

    sink = Watching()

    def program(x: Tensor) -> Tensor:
        y = x.expand(12345) * 2
        print("sum", y.sum(), y, file=sink)
        return y.sum()

    bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(1))
    gc.collect()
    assert sink.texts
    assert alive
    assert all(reference() is None for reference in alive)


@pytest.mark.parametrize("fails", ["check", "sink"])
def test_arguments_are_not_kept_when_a_call_has_raised(fails: str) -> None:
    class Full:
        def write(self, text: str) -> None:
            if fails == "sink":
                raise OSError(text)

    sink = Full()

    def program(x: Tensor) -> Tensor:
        print(x.max(), file=sink)
        if x.sum() > 5:
            raise ValueError("too large")
        return x * 2

    compiled = bcmend.compile(program, backend="eager", fullgraph=True)
    with pytest.raises((ValueError, OSError)):
        compiled(X.clone())  # a trace that stops leaves Dynamo's own cycles
    gc.collect()
    gc.disable()  # what refers to itself would stay
    try:
        for _ in range(2):
            given = X.clone()
            alive = weakref.ref(given)
            with pytest.raises((ValueError, OSError)):
                compiled(given)
            del given
            assert alive() is None
            gc.collect()
    finally:
        gc.enable()


def test_tasks_that_take_turns_do_not_mix_their_records() -> None:
    sinks = [Sink(), Sink()]
    compiled = [bcmend.compile(Talking(sink), backend="eager", fullgraph=True) for sink in sinks]

    async def call(number: int) -> None:
        for turn in range(3):
            compiled[number](X * (turn + 1 + number))
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(call(0), call(1))

    asyncio.run(both())
    for number, sink in enumerate(sinks):
        firsts = [text for text in sink.texts if text.startswith("first")]
        assert firsts == [f"first {6 * (turn + 1 + number)}" for turn in range(3)]
        assert len(sink.texts) == 3 * (2 + 3)


class Recursive(nn.Module):
    """Calls itself, in the graph as often as a number says."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.sink = sink

    def forward(self, x: Tensor, depth: int) -> Tensor:
        print("in", depth, file=self.sink)
        if depth:
            x = self(x + 1, depth - 1)
        if x.sum() > 100:
            raise ValueError("large")
        print("out", depth, file=self.sink)
        return x


@pytest.mark.parametrize("fullgraph", [True, False])
def test_calls_in_calls_deliver_in_order(fullgraph: bool) -> None:
    texts: list[list[str]] = []
    for is_mended in (False, True):
        sink = Sink()
        program: Any = Recursive(sink)
        if is_mended:
            program = bcmend.compile(program, backend="eager", fullgraph=fullgraph)
        program(X, 2)
        with pytest.raises(ValueError, match="large"):
            program(X * 100, 2)
        texts.append(sink.texts)
    assert texts[0] == texts[1]


def test_each_piece_of_a_broken_graph_delivers_in_order_and_once() -> None:
    sink = Sink()

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Talking(sink)

        def forward(self, x: Tensor) -> Tensor:
            print("begin", file=sink)
            x = self.part(x)
            torch._dynamo.graph_break()
            print("between", file=sink)
            x = self.part(-x)
            torch._dynamo.graph_break()
            print("end", file=sink)
            return x

    Broken()(X)
    eager, sink.texts = sink.texts, []
    compiled = bcmend.compile(Broken(), backend="eager")
    compiled(X)
    assert sink.texts == eager
    counters.clear()
    compiled(X)
    assert sink.texts == [*eager, *eager]
    assert counters["stats"]["unique_graphs"] == 0
