"""The patterns of the corpus, with modules and arguments on a GPU; skipped where there is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

from corpus.patterns.pattern import Pattern, run
from corpus.patterns.registry import PATTERNS
from tests.equivalence import Call, fresh, run_eagerly
from tests.samples import is_of_a_sample

DEVICE: Final = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

#: A sixth of the patterns, always the same.
WITH_INDUCTOR: Final = [each for each in PATTERNS if is_of_a_sample(each.name, of=6)]


@pytest.fixture(autouse=True)
def _context_is_whole() -> Iterator[None]:
    """End the process in which a kernel has asserted: every later test would fail in it."""
    yield
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(error, file=sys.__stderr__, flush=True)
        os._exit(1)


def on_the_gpu(pattern: Pattern) -> Pattern:
    """Return the pattern with all that it is given, and the state of a module, on the GPU."""

    def make() -> Any:
        program = fresh(pattern.make)()
        return program.to(DEVICE) if isinstance(program, nn.Module) else program

    def inputs() -> Sequence[Call]:
        return [
            Call(tuple(map(_moved, one.arguments)), {k: _moved(v) for k, v in one.keywords.items()})
            for one in pattern.inputs()
        ]

    return replace(pattern, make=make, inputs=inputs)


def _moved(value: Any) -> Any:
    """Return the tensors in an argument on the GPU, with the strides that they have."""
    if isinstance(value, Tensor):
        if type(value) not in (Tensor, nn.Parameter) or value.is_sparse:
            return value.to(DEVICE)
        moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
        return moved.copy_(value.detach()).requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(map(_moved, value))
    if type(value) is dict:
        return {key: _moved(each) for key, each in value.items()}
    return value


def check(pattern: Pattern, *, backend: str, training: bool) -> None:
    """Compare a pattern on the GPU with eager execution there, and count its graphs."""
    moved = on_the_gpu(pattern)
    if _needs_the_cpu(moved.make, moved.inputs, training):
        pytest.skip("it makes tensors on the CPU")
    whole = pattern.is_whole(training=training)
    found = run(moved, backend=backend, fullgraph=whole, training=training)
    wrong = [f"patched, in eager execution: {each}" for each in found.eager_differences]
    wrong += [f"compiled: {each}" for each in found.differences]
    if whole and found.graphs != pattern.graphs:
        wrong.append(f"{found.graphs} graphs, not {pattern.graphs}")
    if wrong and found.report is not None:
        wrong += [f"{each.name}: {each.refusal} ({each.detail})" for each in found.report.sites]
    assert not wrong, "\n".join(wrong)


def _needs_the_cpu(make: Callable[[], Any], inputs: Any, training: bool) -> bool:
    """Return whether eager execution fails since tensors lie on two devices."""
    seen = run_eagerly(make, inputs, training=training, patched=False)
    return any("on the same device" in str(each.raised) for each in seen if each.raised)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda each: each.name)
def test_it_equals_eager_execution(pattern: Pattern) -> None:
    check(pattern, backend="eager", training=False)


@pytest.mark.parametrize(
    "pattern", [each for each in PATTERNS if each.training], ids=lambda each: each.name
)
def test_it_equals_eager_execution_in_training(pattern: Pattern) -> None:
    check(pattern, backend="aot_eager", training=True)


@pytest.mark.parametrize(
    "pattern", [each for each in WITH_INDUCTOR if each.inductor], ids=lambda each: each.name
)
def test_it_equals_eager_execution_with_inductor(pattern: Pattern) -> None:
    check(pattern, backend="inductor", training=False)
