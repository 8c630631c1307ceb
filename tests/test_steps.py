"""Steps of commands: shown on a terminal, told to nobody else."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr

import pytest
import torch

import bcmend
from bcmend.reports import steps


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_are_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = _Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with steps.shown("first"):
        print("of the block")
        steps.step("second")
    assert "second" in terminal.getvalue()
    assert "of the block" not in terminal.getvalue()
    assert capsys.readouterr().out == "of the block\n"


def test_nothing_is_shown_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    steps.step("before")
    with steps.shown("first"):
        steps.step("second")
    assert capsys.readouterr() == ("", "")


def test_a_step_is_said_after_ten_seconds_and_so_are_later_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[tuple[float, Callable[[], None]]] = []

    class Timer(threading.Timer):
        def start(self) -> None:
            begun.append((self.interval, self.function))

    monkeypatch.setattr(threading, "Timer", Timer)
    with steps.shown("first"), steps.shown("second"), redirect_stderr(io.StringIO()):
        ((seconds, act),) = begun
        act()
        for text in ("second", "third", "third"):
            steps.step(text)
    assert seconds == 10
    expected = "bcmend: second ...\nbcmend: third ...\n"
    assert capsys.readouterr() == ("", expected)


def test_a_wait_in_a_script_says_what_is_going_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "_LONG", 0.0)
    bcmend.verify(torch.nn.ReLU(), torch.ones(2), backend="eager")
    assert "bcmend: " in capfd.readouterr().err
    assert steps._LISTENING.tell is None


def test_nobody_listens_after_the_block() -> None:
    with pytest.raises(ValueError, match="inside"), steps.shown("first"):
        raise ValueError("inside")
    assert steps._LISTENING.tell is None
