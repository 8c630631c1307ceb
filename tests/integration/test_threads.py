"""Patching, compiling and calling in several threads at once, and frames that outlive a patch."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Stepping(nn.Module):
    def steps(self, x: Tensor) -> Iterator[Tensor]:
        y = x + 1 if x.sum() > 0 else x - 1
        yield y
        yield y * 2 if y.max() > 2 else y * 3

    def forward(self, x: Tensor) -> list[Tensor]:
        return list(self.steps(x))


@pytest.mark.parametrize("begun", [0, 1])
def test_a_generator_that_was_made_before_is_run_to_its_end(begun: int) -> None:
    model = bcmend.patch(Stepping())
    x = torch.full((2,), 3.0)
    steps = model.steps(x)
    found = [next(steps) for _ in range(begun)]
    bcmend.unpatch()
    found += steps
    assert [each.tolist() for each in found] == [[4.0, 4.0], [8.0, 8.0]]
    del steps


REACHED, GOES_ON = threading.Event(), threading.Event()


@torch.compiler.disable
def _pause() -> None:
    REACHED.set()
    GOES_ON.wait(60)


class Pausing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1 if x.sum() > 0 else x - 1
        _pause()
        return y * 2 if y.max() > 1 else y * 3


def test_a_call_that_is_under_way_goes_on_when_its_model_is_unpatched() -> None:
    model, results = bcmend.patch(Pausing()), []
    compiled = torch.compile(model, backend="eager")
    REACHED.clear(), GOES_ON.clear()
    thread = threading.Thread(target=lambda: results.append(compiled(-torch.ones(2))))
    thread.start()
    assert REACHED.wait(60)
    bcmend.unpatch()
    GOES_ON.set()
    thread.join()
    assert [each.tolist() for each in results] == [[-6.0, -6.0]]


class _PerThread(threading.local):
    """A stream that keeps what each thread writes apart."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)


OUT = _PerThread()


class Talking(nn.Module):
    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: Tensor, tag: str) -> Tensor:
        y = x * 2 + self.step if x.sum() > 0 else x - self.step
        if (x > 100).any():
            raise ValueError(tag)
        for bound in range(2):
            if y.max() > bound:
                y = y * 1.5
        print(tag, y.sum(), file=OUT)
        return y


INPUTS = (torch.ones(3), -torch.ones(2), torch.full((4,), 7.0), torch.full((2,), 101.0))


def _outcome(call: Callable[[], Tensor]) -> Any:
    OUT.written.clear()
    try:
        result: Any = call().tolist()
    except ValueError as error:
        result = repr(error)
    return result, "".join(OUT.written)


@pytest.mark.parametrize("patches", [False, True])
def test_threads_that_call_compile_patch_and_unpatch_do_not_disturb_each_other(
    patches: bool,
) -> None:
    models = [Talking(step) for step in (1.0, 2.0)]
    plain = [Talking(step) for step in (1.0, 2.0)]
    for model in models:
        bcmend.patch(model)
    wrong: list[object] = []

    def work(number: int) -> None:
        draw = random.Random(number)
        torch.set_grad_enabled(False)
        for turn in range(20):
            at, x, tag = draw.randrange(2), draw.choice(INPUTS), f"{number}-{turn % 2}"
            if patches and turn % 5 == number:
                (bcmend.unpatch if draw.random() < 0.5 else bcmend.patch)(models[at])
            compiled = torch.compile(models[at], backend="eager")
            found = _outcome(lambda: compiled(x, tag))  # noqa: B023  is called here
            expected = _outcome(lambda: plain[at](x, tag))  # noqa: B023
            if found != expected:
                wrong.append((found, expected))

    threads = [threading.Thread(target=_noting(wrong, work), args=(each,)) for each in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _noting(wrong: list[object], work: Callable[[int], None]) -> Callable[[int], None]:
    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            wrong.append(error)
            raise

    return run
