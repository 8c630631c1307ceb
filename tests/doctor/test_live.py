"""`doctor --live` says what is wrong first, and its exit code says whether anything is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from bcmend import cli, releases
from bcmend.doctor import live
from bcmend.dynamo import hooks
from bcmend.errors import MissingInTorch
from bcmend.liveness import loading, runner
from bcmend.liveness.program import program
from bcmend.liveness.runner import Ran, RunResult, Seen


@program("A.called", "B.dead")
def _one() -> Callable[..., Any]:
    return lambda x: x + 1


def _found(difference: str = "", *not_called: str) -> RunResult:
    ran = Ran(_one, difference, 1, frozenset(["A.called"]), not_called, 0.1)
    of_b: tuple[str, ...] = () if not_called else ("_one",)
    return RunResult(
        (ran,), (Seen("A.called", "for a test", ("_one",)), Seen("B.dead", "too", of_b))
    )


@pytest.mark.parametrize(
    ("found", "code", "shown"),
    [
        (_found(), 0, ["equal   _one", "called  A.called  for a test  (_one)"]),
        (_found("call 0: 1, not 2"), 1, ["WRONG   _one: call 0: 1, not 2"]),
        (_found("", "B.dead"), 1, ["WRONG   _one: torch has not called B.dead", "DEAD    B.dead"]),
    ],
)
def test_what_is_shown(
    found: RunResult,
    code: int,
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner, "run", lambda programs: found)
    assert cli.main(["doctor", "--live"]) == code
    written = capsys.readouterr().out
    assert all(each in written for each in shown)


def test_what_is_wrong_comes_first() -> None:
    found = _found("", "A.called")
    _, *sections = "\n".join(
        live.lines(RunResult((*_found().ran, *found.ran), found.seen[::-1]))
    ).split("\n\n")
    first = [section.splitlines()[1].split() for section in sections]
    assert [each[0] for each in first] == ["WRONG", "DEAD"]


def test_programs_are_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @program("InstructionTranslatorBase.run")
    def branch() -> Callable[..., Any]:
        def body(x: Tensor) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

        return body

    monkeypatch.setattr(loading, "programs", lambda: (branch,))
    assert cli.main(["doctor", "--live"]) == 1  # other hooks are called by no program
    written = capsys.readouterr().out
    assert "equal   branch" in written and "  DEAD    " in written


def test_a_torch_that_bcmend_does_not_work_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(releases, "is_used", lambda: False)
        assert cli.main(["doctor", "--live"]) == 1
    assert capsys.readouterr().out == releases.sentence() + "\n"

    def fail() -> None:
        raise MissingInTorch("what it replaces is not there: A.b")

    with monkeypatch.context() as patch:
        patch.setattr(hooks.Registry, "require_targets", lambda self: fail())
        assert cli.main(["doctor", "--live"]) == 1
    assert "A.b" in capsys.readouterr().out
