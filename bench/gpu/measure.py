"""`python -m bench.gpu.measure PROGRAM FORM`: one program in one form, as JSON, a line a mode.

FORM is "stock" or "mended". It runs in a process of its own, with caches of its own, so that the
first call in the first mode is one of a fresh process. Eager execution of the same program, with
the same weights, is timed beside it in the same process.
"""

from __future__ import annotations

import fcntl
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch
from torch._dynamo.utils import counters

import bcmend
from bench.gpu.programs import Arguments, Program, program_named
from corpus.lines import as_line

DEVICE: Final = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDS: Final = 60
FORMS: Final = ("stock", "mended")
MODES: Final = ("default", "reduce-overhead")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured of one program in one form.

    `first` is the first call, where nothing is compiled yet, else `None`; `later` is the median of
    further ones, both in seconds until the GPU has finished, and `eager` the latter of eager
    execution. `waits` and `eager_waits` count how often
    one call waits for the GPU. `difference` is the largest from eager execution, over all
    calls that were compared, as a share of the largest number.
    """

    program: str
    form: str
    mode: str
    graphs: int
    first: float | None
    later: float
    eager: float
    waits: int
    eager_waits: int
    difference: float
    error: str | None = None


def _on_device(program: Program, arguments: Arguments) -> Arguments:
    return {
        name: each.to(DEVICE, program.dtype if each.is_floating_point() else None)
        for name, each in arguments.items()
    }


def build(program: Program) -> torch.nn.Module:
    """The module on the GPU; the same weights each time."""
    torch.manual_seed(0)
    module = program.build().to(DEVICE, program.dtype)
    return module.train(program.training)


def step_of(program: Program, module: torch.nn.Module, entry: Any) -> Callable[[Arguments], Any]:
    """What one call does: a forward, and where the program trains a step of an optimizer."""
    if not program.training:

        def infer(arguments: Arguments) -> Any:
            with torch.no_grad():
                return entry(**arguments)

        return infer
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def train(arguments: Arguments) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = entry(**arguments)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train


def largest_difference(first: Any, second: Any) -> float:
    """The largest difference between tensors of two results, as a share of the largest number."""
    ones, others = (torch.utils._pytree.tree_leaves(dict_of(each)) for each in (first, second))
    found = 0.0
    for one, other in zip(ones, others, strict=True):
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            size = one.float().abs().max().clamp(min=1e-12)
            found = max(found, float((one.float() - other.float()).abs().max() / size))
    return found


def dict_of(result: Any) -> Any:
    """A result whose classes differ for the tree of tensors, as a dictionary."""
    return dict(result) if isinstance(result, dict) else result


def copied(result: Any) -> Any:
    """A copy of all tensors of a result: the next call of a CUDA graph writes where they lie."""
    return torch.utils._pytree.tree_map(
        lambda each: each.clone() if isinstance(each, torch.Tensor) else each, dict_of(result)
    )


def waits_of(call: Callable[[], object]) -> int:
    """How often a call waits for the GPU, as torch counts it."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.set_warn_always(False)
    return sum("synchronizing" in str(each.message) for each in caught)


def seconds_of(call: Callable[[], object]) -> float:
    """How long a call takes until the GPU has finished."""
    torch.cuda.synchronize()
    start = perf_counter()
    call()
    torch.cuda.synchronize()
    return perf_counter() - start


@contextmanager
def alone() -> Iterator[None]:
    """While processes measure side by side, one of them at a time takes times."""
    with (Path(tempfile.gettempdir()) / "bcmend-bench-gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def measure(program: Program, form: str, mode: str) -> Measurement:
    """Run the program eagerly and compiled, in turn."""
    torch._dynamo.reset()
    counters.clear()
    eager_module, module = build(program), build(program)
    eager = step_of(program, eager_module, eager_module)
    if form == "mended":
        bcmend.patch(module)
    compiled = torch.compile(module, mode=mode, fullgraph=form == "mended", dynamic=False)
    step = step_of(program, module, compiled)
    calls = [_on_device(program, program.arguments(number)) for number in range(4)]
    difference, first = 0.0, 0.0
    for number, arguments in enumerate((*calls, *calls)):
        random.seed(number)
        expected = eager(arguments)
        random.seed(number)
        results: list[Any] = []
        taken = seconds_of(lambda given=arguments, kept=results: kept.append(step(given)))
        first = first or taken
        difference = max(difference, largest_difference(expected, copied(results[0])))
    later: list[float] = []
    beside: list[float] = []
    with alone():
        for number in range(ROUNDS):
            arguments = calls[number % len(calls)]
            random.seed(number)
            later.append(seconds_of(lambda given=arguments: step(given)))
            random.seed(number)
            beside.append(seconds_of(lambda given=arguments: eager(given)))
    return Measurement(
        program=program.name,
        form=form,
        mode=mode,
        graphs=counters["stats"]["unique_graphs"],
        first=first if mode == MODES[0] else None,
        later=median(later),
        eager=median(beside),
        waits=waits_of(lambda: step(calls[0])),
        eager_waits=waits_of(lambda: eager(calls[0])),
        difference=difference,
    )


def main(arguments: list[str]) -> int:
    """Measure what the command line names and print it."""
    name, form = arguments
    for mode in MODES:
        print(as_line(measure(program_named(name), form, mode)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
