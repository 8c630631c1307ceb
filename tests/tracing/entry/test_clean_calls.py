"""Calls that trace nothing leave nothing to clear up for the next one, and it clears up nothing."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.knowledge.own_code import FILES_BEGIN
from bcmend.tracing.search import assumptions, budget, epochs
from bcmend.tracing.search.calls import CURRENT
from bcmend.tracing.sites import site_table, suspects
from tests.equivalence import Call, assert_equivalent, call, fresh


def _make() -> Any:
    def program(x: Tensor, flag: bool = False) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        return x + 1 if flag else x - 1

    return program


def _program() -> Any:
    """Return the program as code that nothing has compiled."""
    return fresh(_make)()


def _compiled(function: Any, backend: Any = "eager") -> Any:
    bcmend.patch(function)
    return torch.compile(function, backend=backend, fullgraph=True)


def _called_before(function: Any, x: Tensor) -> Any:
    """Return a compiled function that has been called three times."""
    program = _compiled(function)
    for _ in range(3):
        program(x)
    return program


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is cleared up, one item for each time."""
    found: list[str] = []
    for owner, name in (
        (site_table, "clear_recent"),
        (assumptions, "begin_call"),
        (budget, "forget"),
        (suspects, "convict"),
    ):
        inner = getattr(owner, name)

        def noted(*given: Any, _inner: Any = inner, _name: str = name) -> Any:
            found.append(_name)
            return _inner(*given)

        monkeypatch.setattr(owner, name, noted)
    return found


def test_the_fourth_call_clears_up_nothing(cleared: list[str]) -> None:
    x = torch.ones(3)
    program = _called_before(_program(), x)
    assert set(cleared) == {"clear_recent", "begin_call", "forget", "convict"}
    cleared.clear()
    for _ in range(3):
        assert torch.equal(program(-x), -x - 1)
    assert cleared == []


def test_a_call_behind_another_trace_clears_up(cleared: list[str]) -> None:
    x = torch.ones(3)
    other, program = _compiled(_program()), _called_before(_program(), x)
    other(x)
    cleared.clear()
    program(x)
    assert "clear_recent" in cleared and "begin_call" in cleared
    cleared.clear()
    program(x)
    assert cleared == []


def test_a_call_behind_a_trace_of_its_own_clears_up(cleared: list[str]) -> None:
    x = torch.ones(3)
    program = _called_before(_program(), x)
    cleared.clear()
    assert torch.equal(program(x, True), x * 2 + 1)  # traced again, in a clean call
    assert "convict" in cleared and "forget" in cleared
    cleared.clear()
    program(x)
    assert "clear_recent" in cleared


def test_what_another_thread_has_left_is_not_taken_for_clean(cleared: list[str]) -> None:
    x = torch.ones(3)
    program = _called_before(_program(), x)
    cleared.clear()
    thread = threading.Thread(target=program, args=(x,))
    thread.start()
    thread.join()
    assert "clear_recent" in cleared


def test_another_compilation_clears_up(cleared: list[str]) -> None:
    function = _program()
    x = torch.ones(3)
    _called_before(function, x)
    cleared.clear()
    torch.compile(function, backend="aot_eager", fullgraph=True)(x)
    assert "clear_recent" in cleared


def test_a_failure_in_a_clean_call_is_acted_on() -> None:
    """A back end that refuses the second variant takes the site out for that one."""

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        if any(node.target is torch.where for node in module.graph.nodes) and len(inputs) > 1:
            raise NotImplementedError("no select of two inputs")
        return module.forward

    def make() -> Any:
        def program(x: Tensor, y: Tensor | None = None) -> Tensor:
            if x.sum() > 0:
                x = x * 2
            return x if y is None else x + y

        return program

    plain = make()
    program = fresh(make)()
    bcmend.patch(program)
    compiled = torch.compile(program, backend=backend)
    x = torch.ones(3)
    for given in ((x,), (x,), (-x,), (x, x), (-x, x), (x,), (x, x)):
        assert torch.equal(compiled(*given), plain(*given))


def test_what_raises_in_a_clean_call() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            if (x < 0).any():
                raise ValueError("negative")
            print("seen")
            return x.sqrt()

        return program

    def inputs() -> list[Call]:
        x = torch.ones(3)
        return [call(each) for each in (x, x * 2, x, -x, x, x, -x, x)]

    assert_equivalent(make, inputs)


def test_a_clean_call_holds_no_compiler() -> None:
    class Backend:
        def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Any:
            return module.forward

    function = _program()
    backend = Backend()
    gone = weakref.ref(backend)
    program = _compiled(function, backend)
    for _ in range(3):
        program(torch.ones(3))
    torch._dynamo.reset()
    del program, backend
    gc.collect()
    assert gone() is None


def test_epochs_end_when_something_is_learnt() -> None:
    program = _compiled(_program())
    before = epochs.EPOCHS.number
    program(torch.ones(3))
    assert epochs.EPOCHS.number > before
    before = epochs.EPOCHS.number
    program(torch.ones(3))
    assert epochs.EPOCHS.number == before
    assert CURRENT.epoch == before


def test_calls_that_are_compared_are_never_clean(cleared: list[str]) -> None:
    function = _program()
    bcmend.patch(function, policy=bcmend.Policy(verify="first"))
    program = torch.compile(function, backend="eager", fullgraph=True)
    x = torch.ones(3)
    for _ in range(4):
        program(x)
    cleared.clear()
    program(x)
    assert "clear_recent" in cleared


def test_a_call_is_clean_where_others_are_compared(cleared: list[str]) -> None:
    other = _program()
    bcmend.patch(other, policy=bcmend.Policy(verify="first"))
    torch.compile(other, backend="eager", fullgraph=True)(torch.ones(3))
    program = _called_before(_program(), torch.ones(3))
    cleared.clear()
    program(torch.ones(3))
    assert cleared == []


def _branch(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def _check(x: Tensor) -> Tensor:
    if (x > 100).any():
        raise ValueError("too large")
    return x + 1


def _number(x: Tensor) -> Tensor:
    return x[:2] if int(x[0].item()) > 3 else x + 1


def _print(x: Tensor) -> Tensor:
    if x.sum() > 1e9:
        print("large", x)
    return x + 1


class _Store(torch.nn.Module):
    last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.last = x + 1
        return x * 2


@pytest.mark.parametrize(
    ("program", "at_most"),
    [(_branch, 7), (_check, 16), (_number, 14), (_print, 10), (_Store(), 31)],
    ids=["branch", "check", "number", "print", "store"],
)
def test_a_later_call_makes_few_python_calls_of_bcmend(program: Any, at_most: int) -> None:
    x, found = torch.ones(3), list[str]()
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    for _ in range(5):
        compiled(x)

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FILES_BEGIN):
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        compiled(x)
    finally:
        sys.setprofile(None)
    assert 4 <= len(found) <= at_most, found
