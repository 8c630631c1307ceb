"""Outside of ``torch.compile`` a patched model is the model that it was."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import bcmend

# What eager execution finds is the code that was written.
pytestmark = pytest.mark.usefixtures("mended_ahead")


class Branching(torch.nn.Module):
    """A branch, a guard and an output statement."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, scale: float = 2.0, *, shift: float = 0.5) -> torch.Tensor:
        """Scale, or shift."""
        if x.sum() > 100:
            raise ValueError(f"too large: {scale}")
        print("mean", x.mean().item())
        if x.mean() > 0:
            y = self.layer(x) * scale
        else:
            y = self.layer(x) + shift
        self.calls += 1
        return y


@pytest.fixture
def model() -> Iterator[Branching]:
    yield Branching()
    bcmend.unpatch()


UP, DOWN = torch.ones(2, 3), -torch.ones(2, 3)


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def _operations(call: Callable[[], object]) -> list[str]:
    with _Operations() as mode:
        call()
    return mode.seen


def _lines(call: Callable[[], object]) -> list[tuple[str, int]]:
    """Return the lines of this file that run in frames called ``forward``."""
    seen: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code.co_filename != __file__ or code.co_name != "forward":
            return None
        if event == "line":
            seen.append((code.co_name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


@pytest.mark.parametrize("x", [UP, DOWN])
def test_the_same_operations_run(
    model: Branching, x: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = model(x), capsys.readouterr().out
    operations = _operations(lambda: model(x))
    bcmend.patch(model)
    capsys.readouterr()
    result = model(x), capsys.readouterr().out
    assert torch.equal(result[0], expected[0]) and result[1] == expected[1]
    assert _operations(lambda: model(x)) == operations


@pytest.mark.parametrize("x", [UP, DOWN])
def test_the_same_lines_run(model: Branching, x: torch.Tensor) -> None:
    lines = _lines(lambda: model(x))
    assert lines
    bcmend.patch(model)
    if _lines(lambda: model(x)) != lines:
        pytest.fail("other lines were run")


def _described(function: Any) -> dict[str, object]:
    code = function.__code__
    names = ("co_name", "co_qualname", "co_filename", "co_firstlineno", "co_flags", "co_varnames")
    counts = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount")
    captured = ("co_freevars", "co_cellvars")
    return {
        "signature": inspect.signature(function),
        "defaults": function.__defaults__,
        "keyword defaults": function.__kwdefaults__,
        "name": (function.__name__, function.__qualname__, function.__module__, function.__doc__),
        "annotations": function.__annotations__,
        "source": inspect.getsource(function),
        **{name: getattr(code, name) for name in (*names, *counts, *captured)},
    }


def test_what_can_be_read_of_a_function_is_as_before(model: Branching) -> None:
    before = _described(Branching.forward)
    original = Branching.forward.__code__
    bcmend.patch(model)
    assert Branching.forward.__code__ is not original
    assert _described(Branching.forward) == before


def _raised(call: Callable[[], object]) -> tuple[object, ...]:
    with pytest.raises(ValueError) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    places = [(each.name, each.lineno, each.line) for each in frames if each.filename == __file__]
    return type(caught.value), caught.value.args, places[-1]


def test_a_traceback_is_as_before(model: Branching) -> None:
    large = torch.full((2, 3), 1000.0)
    expected = _raised(lambda: model(large))
    assert expected[2][0] == "forward"  # type: ignore[index]
    bcmend.patch(model)
    assert _raised(lambda: model(large)) == expected


def test_a_patched_module_is_copied_pickled_and_saved(
    model: Branching, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, expected = list(model.state_dict()), model(UP)
    bcmend.patch(model)
    assert list(model.state_dict()) == keys
    assert type(model) is Branching and model.__class__.__bases__ == (torch.nn.Module,)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [
        copy.deepcopy(model),
        copy.copy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ]
    for each in copies:
        assert type(each) is Branching and vars(each).keys() == vars(model).keys()
        assert torch.equal(each(UP), expected)
    fresh = Branching()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(UP), expected)


def test_a_pickled_function_is_found_by_name(model: Branching) -> None:
    bcmend.patch(model)
    assert pickle.loads(pickle.dumps(Branching.forward)) is Branching.forward
