"""Steps of commands: shown on a terminal, told to nobody else."""

from __future__ import annotations

import io
import sys

import pytest

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


def test_nobody_listens_after_the_block() -> None:
    with pytest.raises(ValueError, match="inside"), steps.shown("first"):
        raise ValueError("inside")
    assert steps._LISTENING.tell is None
