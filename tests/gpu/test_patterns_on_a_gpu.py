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
from tests.equivalence import Call, fresh, leave_unpatched, run_eagerly
from tests.samples import sampled

DEVICE: Final = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

#: What breaks on a GPU, in training alone where it is true: docs/limits.md says so.
BREAKS: Final = {
    "dropout-in-both-arms": True,
    "dropout-in-one-arm": True,
    "dropout-on-rows-in-a-layer-that-may-be-dropped": True,
    "flags-of-cudnn-on-the-cpu": False,
}
#: State of theirs is on the CPU until a call has replaced it, and the next one is compiled anew.
COMPILED_TWICE: Final = frozenset(
    (
        "attribute-of-a-plain-object",
        "attribute-stored-under-a-computed-name",
        "flag-that-is-its-own-condition",
        "output-store-and-check-in-one-arm",
    )
)
#: Kernels of the GPU add their numbers in no order, so that two calls differ by a rounding.
ROUNDED: Final = frozenset(("batch-norm-of-images-in-one-arm", "optional-terms-of-a-loss"))
WITH_INDUCTOR: Final = [each for each in PATTERNS if each.inductor]


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
    breaks = pattern.name in BREAKS and BREAKS[pattern.name] <= training
    is_compiled = backend != "inductor" or pattern.inductor_backward or not training
    whole = pattern.is_whole(training=training) and is_compiled and not breaks
    found = run(moved, backend=backend, fullgraph=whole, training=training)
    wrong = [f"patched, in eager execution: {each}" for each in found.eager_differences]
    wrong += [f"compiled: {each}" for each in found.differences]
    own = _of_stock(moved, backend, training) if wrong else set()
    wrong = [each for each in wrong if _place(each) not in own]
    graphs = None if pattern.graphs is None else pattern.graphs + (pattern.name in COMPILED_TWICE)
    if whole and found.graphs != graphs:
        wrong.append(f"{found.graphs} graphs, not {graphs}")
    if wrong and found.report is not None:
        wrong += [f"{each.name}: {each.refusal} ({each.detail})" for each in found.report.sites]
    assert not wrong, "\n".join(wrong)


def _of_stock(moved: Pattern, backend: str, training: bool) -> set[str]:
    """Return where stock differs from eager execution too: it rounds in its own way."""
    unpatched = replace(moved, way=leave_unpatched)
    stock = run(unpatched, backend=backend, fullgraph=False, training=training)
    return {_place(each) for each in stock.differences}


def _place(difference: str) -> str:
    """Return where a difference is: the call and what of it."""
    return ": ".join(difference.removeprefix("compiled: ").split(": ")[:2])


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
    if pattern.name in ROUNDED:
        pytest.skip("two calls of eager execution differ, too")
    check(pattern, backend="aot_eager", training=True)


def _name(pattern: Pattern) -> str:
    return pattern.name


@pytest.mark.parametrize("pattern", sampled(WITH_INDUCTOR, _name, of=6))
def test_it_equals_eager_execution_with_inductor(pattern: Pattern) -> None:
    check(pattern, backend="inductor", training=False)


@pytest.mark.parametrize(
    "pattern", sampled([each for each in WITH_INDUCTOR if each.training], _name, of=6)
)
def test_it_equals_eager_execution_with_inductor_in_training(pattern: Pattern) -> None:
    check(pattern, backend="inductor", training=True)


#: Calls of each pattern: the first one warms up, the second is recorded, others are replayed.
TIMES: Final = 2


@pytest.mark.parametrize("pattern", sampled(WITH_INDUCTOR, _name, of=6))
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_it_equals_eager_execution_with_cuda_graphs(pattern: Pattern, training: bool) -> None:
    if training and not pattern.training:
        pytest.skip("it is not tried in training")

    def inputs() -> Sequence[Call]:
        return [one for _ in range(TIMES) for one in pattern.inputs()]

    try:
        with torch._inductor.config.patch({"triton.cudagraphs": True}):
            check(replace(pattern, inputs=inputs), backend="inductor", training=training)
    except RuntimeError as error:
        if "overwritten by a subsequent run" not in str(error):
            raise
        pytest.skip("an attribute keeps a result, which the next call writes over")
