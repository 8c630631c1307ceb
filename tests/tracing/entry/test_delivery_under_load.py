"""Many threads that call one mended model: each has its own records and its own exceptions."""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from collections import defaultdict

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import bcmend
from bcmend.patching import waiting
from bcmend.patching.waiting import Waiting

THREADS = 8
ONE_FAILS_OF = 10


class _Sink:
    """Keeps what each thread writes."""

    def __init__(self) -> None:
        self.lines: dict[int, list[str]] = defaultdict(list)

    def write(self, text: str) -> None:
        if text != "\n":
            self.lines[threading.get_ident()].append(text)


class _Part(nn.Module):
    def __init__(self, sink: _Sink) -> None:
        super().__init__()
        self.sink = sink

    def forward(self, number: Tensor, x: Tensor) -> Tensor:
        if number % 2 == 0:
            print(f"even {number.item()}", file=self.sink)
            x = x * 2
        else:
            print(f"odd {number.item()}", file=self.sink)
            x = x - 1
        return x


class _Model(nn.Module):
    """Writes in a part and in arms, and fails in one call of ten, between two of its outputs."""

    def __init__(self, sink: _Sink) -> None:
        super().__init__()
        self.sink, self.part = sink, _Part(sink)

    def forward(self, number: Tensor, x: Tensor) -> Tensor:
        print(f"begin {number.item()}", file=self.sink)
        x = self.part(number, x)
        if number % ONE_FAILS_OF == 0:
            raise ValueError(f"failed {number.item()}")
        print(f"end {number.item()}", file=self.sink)
        return x


def _expected(number: int) -> tuple[list[str], str, list[float] | None]:
    """What is written, what is raised and what is returned for one call of ``_Model``."""
    lines = [f"begin {number}", f"{'odd' if number % 2 else 'even'} {number}"]
    if number % ONE_FAILS_OF == 0:
        return lines, f"failed {number}", None
    value = 1.0 if number % 2 else 4.0
    return [*lines, f"end {number}"], "", [value, value]


class _Worker(threading.Thread):
    """Makes the calls with the numbers ``numbers`` and compares each with what it should be."""

    def __init__(self, model: nn.Module, numbers: range, sink: _Sink) -> None:
        super().__init__()
        self.model, self.numbers, self.sink = model, numbers, sink
        self.wrong: list[str] = []

    def run(self) -> None:
        for number in self.numbers:
            try:
                found: object = self._call(number)
            except Exception as error:
                found = f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}"
            if found != _expected(number):
                self.wrong.append(f"{number}: {found}")

    def _call(self, number: int) -> tuple[list[str], str, list[float] | None]:
        raised, result = "", None
        try:
            result = self.model(torch.tensor(number), torch.full((2,), 2.0)).tolist()
        except ValueError as error:
            raised = str(error)
        return self.sink.lines.pop(threading.get_ident(), []), raised, result


def _work(model: nn.Module, sink: _Sink, calls: int) -> None:
    workers = [
        _Worker(model, range(first, THREADS * calls, THREADS), sink) for first in range(THREADS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [wrong for worker in workers for wrong in worker.wrong] == []
    assert not sink.lines


def _growth(model: nn.Module, sink: _Sink, calls: int) -> int:
    """Return how many objects more there are after a round of ``calls`` calls by each thread."""
    gc.collect()
    before = len(gc.get_objects())
    _work(model, sink, calls)
    gc.collect()
    return len(gc.get_objects()) - before


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


@pytest.mark.parametrize(
    ("in_place", "calls"),
    [
        (False, 40),
        pytest.param(True, 40, marks=pytest.mark.slow),
        pytest.param(False, 2000, marks=pytest.mark.slow),
        pytest.param(True, 2000, marks=pytest.mark.slow),
    ],
)
def test_every_thread_gets_its_own_records_and_exceptions(calls: int, in_place: bool) -> None:
    sink = _Sink()
    model = _Model(sink)
    compiled = bcmend.compile(model, backend="eager", fullgraph=True)
    if in_place:
        model.compile(backend="eager", fullgraph=True)
        compiled = model
    _work(compiled, sink, 5)
    counters.clear()
    growths = [_growth(compiled, sink, calls) for _ in range(3)]
    assert counters["stats"]["unique_graphs"] == 0
    # What a call leaves it leaves in each round; what a cache takes once is no leak.
    assert min(growths) < THREADS * calls // 4, growths


def test_a_thread_that_begins_while_another_mends_the_code(monkeypatch) -> None:
    """Its frame has the original code, which Dynamo meets when the other has mended it."""

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1

    mended = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    found: list[object] = []

    def call() -> None:
        try:
            found.append(mended(-torch.ones(2)).tolist())
        except Exception as error:
            found.append(error)

    other = threading.Thread(target=call)
    mend = Waiting.mend

    def mend_when_the_other_waits(subject: Waiting, owner: int) -> None:
        assert not waiting.mend([program.__code__])  # as when patching asks what waits beside
        other.start()
        while not _waits_for_the_compiler(other):
            time.sleep(0.01)
        mend(subject, owner)

    monkeypatch.setattr(Waiting, "mend", mend_when_the_other_waits)
    assert torch.equal(mended(torch.ones(2)), torch.full((2,), 2.0))
    other.join()
    assert found == [[-2.0, -2.0]]


def _waits_for_the_compiler(thread: threading.Thread) -> bool:
    """Return whether a thread has begun to have a frame compiled, and gets no further."""
    frame = sys._current_frames().get(thread.ident or 0)
    last = None if frame is None else frame.f_lasti
    time.sleep(0.05)
    again = sys._current_frames().get(thread.ident or 0)
    if frame is None or again is not frame or frame.f_lasti != last:
        return False
    names = [each.f_code.co_qualname for each, _ in traceback.walk_stack(frame)]
    return "CatchErrorsWrapper.__call__" in names or "_convert" in names
