"""Context variables, copies, and blocks that hold locks or flags, in code captured whole."""

from __future__ import annotations

import copy
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

import bcmend
from tests.equivalence import assert_equivalent, call

Program = Callable[..., Any]

DEPTH: ContextVar[Any] = ContextVar("DEPTH", default=3)
LOCK = threading.Lock()


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def _vectors() -> list[Any]:
    return [call(torch.tensor([1.0, 2.0, sign])) for sign in (3.0, -9.0)]


def _equal(program: Program, **options: Any) -> None:
    for backend in ("eager", "aot_eager"):
        options.update(backend=backend)
        options.setdefault("fullgraph", True)
        assert_equivalent(lambda: copy.deepcopy(program), _vectors, **options)


def _refusal(program: Program, *arguments: Any) -> str:
    """Say why a call of a program stays as it is."""
    with pytest.raises(Unsupported):
        bcmend.compile(program, backend="eager", fullgraph=True)(*arguments)
    found = [each for each in bcmend.report(program).sites if each.refusal]
    assert {each.refusal for each in found} == {"no-equal-substitute"}
    return " ".join(each.detail for each in found)


# Context variables, which have no substitute


class Shown:
    """An object whose text says what a context variable holds."""

    def __repr__(self) -> str:
        return f"depth {DEPTH.get()}"


def _set_around_a_branch(x: Tensor) -> Tensor:
    token = DEPTH.set(4)
    y = x * DEPTH.get() if x.sum() > 0 else x - DEPTH.get()
    DEPTH.reset(token)
    return y * DEPTH.get()


def _set_in_an_arm(x: Tensor) -> Tensor:
    token = None
    if x.sum() > 0:
        token = DEPTH.set(7)
    y = x * DEPTH.get()
    if token is not None:
        DEPTH.reset(token)
    return y


def _set_between_output(x: Tensor) -> Tensor:
    shown = Shown()
    token = DEPTH.set(8)
    print("inside", shown)
    DEPTH.reset(token)
    print("outside", shown)
    return x * 2


@pytest.mark.parametrize(
    "program",
    [
        _set_around_a_branch,
        _set_in_an_arm,
        _set_between_output,
    ],
)
def test_a_context_variable_breaks_the_graph(program: Program) -> None:
    with pytest.raises(Unsupported):
        bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
    bcmend.unpatch()
    torch._dynamo.reset()
    _equal(program, fullgraph=False, graphs=None, recompiles=None)
    _equal(program, fullgraph=False, graphs=None, recompiles=None, training=True)
    assert DEPTH.get() == 3


# Copies


def test_deep_copies() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        given = {"rows": [x, 3], "same": x, "other": x * 2}
        copied = copy.deepcopy(given)
        copied["rows"][0].add_(1)
        alone = copy.deepcopy(x)
        alone.mul_(2)
        return x + 1, copied, copied["rows"][0] is copied["same"], alone

    _equal(program)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.arange(6.0)[::2], "memory"),
        (lambda: torch.zeros(1).expand(3), "memory"),
        (lambda: torch.ones(3, requires_grad=True), "gradients"),
        (lambda: torch.nn.Parameter(torch.ones(3)), "parameter"),
    ],
)
def test_a_deep_copy_that_clone_would_not_equal_stays(make: Program, why: str) -> None:
    def program(x: Tensor) -> Tensor:
        return copy.deepcopy(x) * 2

    assert why in _refusal(program, make())


def test_deep_copies_that_share_memory_stay() -> None:
    def program(x: Tensor) -> Any:
        return copy.deepcopy([x, x.view(3, 1)])

    assert "same memory" in _refusal(program, torch.ones(3))
    bcmend.unpatch()
    _equal(program, fullgraph=False, graphs=None)


def test_flat_copies() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        y = copy.copy(x)
        y.add_(1)
        given = {"x": x}
        flat, items = copy.copy(given), copy.copy([x, 2])
        flat["y"] = y
        items.append(copy.copy("text"))
        return x * 2, y, y is x, given, flat, items

    _equal(program)


# Blocks


def test_tensor_of_an_array() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        array = numpy.random.rand(3)
        exact = torch.tensor(array)
        short = torch.tensor(array, dtype=torch.float32, device=torch.device("cpu"))
        if not x.requires_grad:
            array[0] = 5.0
        exact.add_(1)
        return x * exact, x + short, torch.from_numpy(array)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where a tensor is copied so
        _equal(program)
        _equal(program, training=True)


def test_flags_of_cudnn() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        with torch.backends.cudnn.flags(enabled=False, deterministic=True):
            y = x * 2
            if y.sum() > 0:
                y = y + 1
        return y, torch.nn.functional.relu(y)

    before = torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic
    _equal(program)
    _equal(program, training=True)
    assert (torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic) == before


def test_flags_of_cudnn_are_put_back_where_the_trace_stops() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            torch._dynamo.graph_break()
            return x * 2

    before = torch.backends.cudnn.enabled
    with pytest.raises(Unsupported):
        bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    assert torch.backends.cudnn.enabled is before
    bcmend.unpatch()
    _equal(program, fullgraph=False, graphs=None)
    assert torch.backends.cudnn.enabled is before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_flags_of_cudnn_stay_where_they_matter() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            return x * 2

    assert "CPU" in _refusal(program, torch.ones(2, device="cuda"))


class Once:
    """Before Python 3.12 a lock is held while such a property is computed and stored."""

    @functools.cached_property
    def factor(self) -> int:
        return 3


def test_the_lock_of_a_property_that_is_computed_once() -> None:
    def program(x: Tensor) -> tuple[Tensor, Any]:
        once = Once()
        if x.sum() > 0:
            x = x + 1
        return x * once.factor * once.factor, once

    _equal(program)


class Counter(torch.nn.Module):
    """Changes in a block what other threads may see, or nothing."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.count, self.seen = form, 0, []
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        with LOCK:
            if self.form == "attribute":
                self.count += 1
            elif self.form == "list":
                self.seen.append(1)
            elif self.form == "tensor":
                self.total.add_(x)
            elif self.form == "nothing":
                x = x + 1
            else:
                print("held", x)
        return x * 2


@pytest.mark.parametrize("form", ["attribute", "list", "tensor", "output", "nothing"])
def test_a_lock_breaks_the_graph(form: str) -> None:
    counter = Counter(form)
    with pytest.raises(Unsupported):
        bcmend.compile(counter, backend="eager", fullgraph=True)(torch.ones(3))
    assert "other threads" in str(bcmend.report(counter))
    assert not LOCK.locked()
    bcmend.unpatch()
    assert_equivalent(lambda: Counter(form), _vectors, fullgraph=False, graphs=None, recompiles=2)
