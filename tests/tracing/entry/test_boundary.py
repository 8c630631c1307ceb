"""One call of a boundary, with bodies in plain Python that fill the buffer themselves."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import bcmend
from bcmend.delivery.records import Buffer
from bcmend.tracing.entry.boundary import run
from bcmend.tracing.sites import body_states


def _fail(message: str) -> None:
    raise ValueError(message)


def _writes(log: list[str], text: str) -> Any:
    return ("site", None, False, log.append, (text,))


def test_records_are_delivered_when_the_body_has_returned() -> None:
    log: list[str] = []

    def body(value: int, buffer: Buffer, numbers: tuple[object, ...]) -> int:
        buffer.append(_writes(log, "record"))
        log.append("body")
        return value + 1

    assert run(body, (1,)) == 2
    assert log == ["body", "record"]


def test_records_come_before_the_exception_that_ends_the_body() -> None:
    log: list[str] = []

    def body(buffer: Buffer, numbers: tuple[object, ...]) -> None:
        buffer.append(_writes(log, "before"))
        raise KeyError("later")

    with pytest.raises(KeyError, match="later") as caught:
        run(body, ())
    assert log == ["before"]
    assert caught.value.__context__ is None


def test_a_failed_guard_wins_over_a_later_exception() -> None:
    def body(buffer: Buffer, numbers: tuple[object, ...]) -> None:
        buffer.append(("guard", torch.tensor(True), True, _fail, ("first",)))
        raise KeyError("later")

    with pytest.raises(ValueError, match="first") as caught:
        run(body, ())
    assert caught.value.__context__ is None


def test_what_an_outer_call_recorded_is_delivered_before_an_inner_one_begins() -> None:
    log: list[str] = []

    def inner(buffer: Buffer, numbers: tuple[object, ...]) -> None:
        log.append("inner begins")
        buffer.append(_writes(log, "inner record"))

    def outer(buffer: Buffer, numbers: tuple[object, ...]) -> None:
        buffer.append(_writes(log, "outer record"))
        run(inner, ())
        buffer.append(_writes(log, "last record"))

    run(outer, ())
    assert log == ["outer record", "inner begins", "inner record", "last record"]


def test_every_thread_has_its_own_buffer() -> None:
    logs: dict[str, list[str]] = {name: [] for name in "abcd"}
    barrier = threading.Barrier(len(logs))

    def body(name: str, buffer: Buffer, numbers: tuple[object, ...]) -> None:
        for turn in range(20):
            buffer.append(_writes(logs[name], f"{name}{turn}"))
            barrier.wait()

    threads = [threading.Thread(target=run, args=(body, (name,))) for name in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert logs == {name: [f"{name}{turn}" for turn in range(20)] for name in logs}


_FAILING = torch.fx.symbolic_trace(lambda x, index: x[index]).forward


class _Graph:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls == 1:
            _FAILING(torch.ones(2), torch.tensor(7))
        return "as eager does"


@pytest.mark.parametrize("repeatable", [True, False, None])
def test_a_call_is_made_again_only_where_its_graph_left_no_trace(
    repeatable: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _Graph()
    monkeypatch.setitem(globals(), "__compiled_fn_0", graph)

    def body(buffer: Buffer, numbers: tuple[object, ...]) -> Any:
        return __compiled_fn_0()  # type: ignore[name-defined]  # noqa: F821

    body_states.state_of(body.__code__, is_body=True).repeatable = repeatable
    if repeatable:
        assert run(body, ()) == "as eager does"
        assert graph.calls == 2
    else:
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            run(body, ())
        assert graph.calls == 1


def _raises_itself(buffer: Buffer, numbers: tuple[object, ...]) -> None:
    _STARTED.append(__compiled_fn_0())  # type: ignore[name-defined]  # noqa: F821
    raise IndexError("behind the graph")


def _raises_inside_of_another(buffer: Buffer, numbers: tuple[object, ...]) -> None:
    _STARTED.append(__compiled_fn_0())  # type: ignore[name-defined]  # noqa: F821
    _fail("behind the graph")


_STARTED: list[object] = []


@pytest.mark.parametrize("body", [_raises_itself, _raises_inside_of_another])
def test_a_call_that_fails_behind_its_graph_is_not_made_again(
    body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def graph() -> None: ...

    monkeypatch.setitem(globals(), "__compiled_fn_0", graph)
    monkeypatch.setitem(globals(), "_STARTED", started := [])
    body_states.state_of(body.__code__, is_body=True).repeatable = True
    with pytest.raises((IndexError, ValueError), match="behind the graph"):
        run(body, ())
    assert started == [None]


def test_a_call_that_fails_before_any_effect_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _Graph()
    graph.calls = 1
    monkeypatch.setitem(globals(), "__compiled_fn_0", graph)
    kept: list[object] = []

    def body(buffer: Buffer, numbers: tuple[object, ...]) -> Any:
        graph_out_0 = __compiled_fn_0()  # type: ignore[name-defined]  # noqa: F821
        if graph.calls == 2:
            kept.mark = graph_out_0  # type: ignore[attr-defined]
        return graph_out_0

    body_states.state_of(body.__code__, is_body=True).repeatable = True
    assert run(body, ()) == "as eager does"
    assert graph.calls == 3


def test_effects_are_not_repeated_where_one_of_them_fails() -> None:
    """A gradient that does not fit is found when the graph has run and others are stored."""

    def make() -> Any:
        weight, log = torch.ones(3, requires_grad=True), []

        def program(x: torch.Tensor) -> torch.Tensor:
            y = x * weight.detach()
            if y.sum() > 0:
                y = y + 1
            log.append(1)
            weight.grad = torch.cat([y, y])
            return y

        return program, log

    program, log = make()
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    for turn in range(1, 4):
        with pytest.raises(RuntimeError, match="assign a gradient"):
            compiled(torch.ones(3))
        assert log == [1] * turn
