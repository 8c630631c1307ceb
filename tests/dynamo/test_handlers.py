"""The protocol of handlers: an answer, or ``PASS`` to the next one and in the end to Dynamo."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat, frames, handlers, hooks
from bcmend.dynamo.handlers import PASS, Call

TX: Any = SimpleNamespace()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> hooks.Registry:
    """Return an empty registry; every frame counts as one of patched code."""
    empty = hooks.Registry()
    monkeypatch.setattr(hooks, "REGISTRY", empty)
    monkeypatch.setattr(handlers, "TENSOR_METHODS", {})
    monkeypatch.setattr(frames, "covers", lambda tx: True)
    return empty


class _Model:
    def read(self, tx: Any, *args: Any, **kwargs: Any) -> Any:
        return "Dynamo", args, kwargs


@pytest.mark.parametrize(("answer", "expected"), [("ours", "ours"), (PASS, ("Dynamo", (1,), {}))])
def test_a_handler_of_a_method_answers_or_passes(
    registry: hooks.Registry, answer: Any, expected: Any
) -> None:
    calls: list[Call] = []

    @handlers.method(_Model, "read", "a test")
    def handler(call: Call) -> Any:
        calls.append(call)
        return answer

    registry.install()
    try:
        model = _Model()
        assert model.read(TX, 1) == expected
    finally:
        registry.uninstall()
    assert calls == [Call(TX, "read", model, (1,), {})]


def test_methods_of_tensors_ask_from_the_highest_place_until_one_answers(
    registry: hooks.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def declare(mark: str, place: int, answer: Any) -> None:
        @handlers.tensor_method("item", place=place)
        def handler(call: Call) -> Any:
            asked.append(mark)
            return answer

    declare("low", 0, "low")
    declare("high", 2, PASS)
    declare("middle", 1, "middle")
    monkeypatch.setattr(compat, "can_dispatch_torch_function", lambda *arguments: False)
    inner = lambda *arguments: "Dynamo"  # noqa: E731
    tensor: Any = object()
    assert handlers._call_tensor_method(inner, tensor, TX, "item", [], {}) == "middle"
    assert asked == ["high", "middle"]
    assert handlers._call_tensor_method(inner, tensor, TX, "exp", [], {}) == "Dynamo"


def test_tensors_with_a_torch_function_are_not_answered_for(
    registry: hooks.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers.tensor_method("item")(lambda call: pytest.fail("asked"))
    monkeypatch.setattr(compat, "can_dispatch_torch_function", lambda *arguments: True)
    found = handlers._call_tensor_method(lambda *_: "Dynamo", object(), TX, "item", [], {})
    assert found == "Dynamo"


def _row(registry: hooks.Registry, before: Any) -> Any:
    (row,) = registry.rows
    assert row.key is torch.neg
    return row.make(before)


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("passes", [True, False])
def test_a_handler_of_a_function_is_asked_before_dynamos_or_only_without_one(
    registry: hooks.Registry, is_last: bool, known: bool, passes: bool
) -> None:
    @handlers.function(torch.neg, "a test", is_last=is_last)
    def handler(call: Call) -> Any:
        assert call.name == "neg" and call.function is torch.neg and call.args == (1,)
        return PASS if passes else "ours"

    before = (lambda called, tx, *arguments: "Dynamo") if known else None
    found = _row(registry, before)("called", TX, 1)
    if known and (is_last or passes):
        assert found == "Dynamo"
    else:
        assert found == (None if passes else "ours")


def test_other_frames_are_left_to_dynamo(
    registry: hooks.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "covers", lambda tx: False)
    handlers.function(torch.neg, "a test")(lambda call: pytest.fail("asked"))
    assert _row(registry, lambda *arguments: "Dynamo")("called", TX, 1) == "Dynamo"
    assert repr(PASS) == "PASS"
