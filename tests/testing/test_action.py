"""The GitHub action, the workflow that runs it, and the page that shows it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bcmend import cli

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
ACTION = "./.github/actions/bcmend"
WORKFLOW = ROOT / ".github" / "workflows" / "graphs.yml"
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def _read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


INPUTS: dict[str, dict[str, str]] = _read(ROOT / ACTION / "action.yml")["inputs"]
(STEP,) = _read(ROOT / ACTION / "action.yml")["runs"]["steps"]
USES: list[dict[str, str]] = [
    step["with"]
    for job in _read(WORKFLOW)["jobs"].values()
    for step in job["steps"]
    if step.get("uses") == ACTION
]


def _run(tmp_path: Path, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the script of the action with a Python that writes its arguments, a line each."""
    assert given.keys() <= INPUTS.keys()
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    stand_in.chmod(0o755)
    values = {name: given.get(name, each.get("default", "")) for name, each in INPUTS.items()}
    settings = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: values[found[1]], text)
        for name, text in STEP["env"].items()
    }
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    # as GitHub runs what has `shell: bash`
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]],
        env={**os.environ, **settings, "PATH": path},
        capture_output=True,
        text=True,
    )


def test_the_page_shows_the_workflow_and_every_input() -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == WORKFLOW.read_text(encoding="utf-8")
    table = PAGE.partition("| input | what |")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(INPUTS)


def test_the_workflow_gives_inputs_that_there_are() -> None:
    assert {each.get("command", "explain") for each in USES} == {"explain", "verify"}
    required = {name for name, each in INPUTS.items() if each.get("required")}
    assert all(required <= each.keys() <= INPUTS.keys() for each in USES)


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


@needs_bash
@pytest.mark.parametrize("given", USES, ids=lambda given: given.get("command", "explain"))
def test_the_action_runs_a_command_that_there_is(tmp_path: Path, given: dict[str, str]) -> None:
    done = _run(tmp_path, given)
    assert done.returncode == 0, done.stderr
    dash, module, *arguments = done.stdout.splitlines()
    assert (dash, module) == ("-m", "bcmend")
    parsed = cli._parser().parse_args(arguments)
    assert (parsed.command, parsed.format) == (given.get("command", "explain"), "github")
    assert (parsed.target, parsed.call) == (given["target"], given["call"])
    assert parsed.command == "verify" or parsed.fail_on_break


@needs_bash
def test_nothing_of_the_inputs_is_run(tmp_path: Path) -> None:
    target, call = "m:o", '-x, "$(touch made)" `touch made`; touch made'
    done = _run(tmp_path, {"target": target, "call": call, "arguments": "--backend * $(touch)"})
    first = ["-m", "bcmend", "explain", target, f"--call={call}", "--format", "github"]
    quick, given = ["--backend", "eager"], ["--backend", "*", "$(touch)"]
    assert done.stdout.splitlines() == [*first, *quick, *given, "--fail-on-break"]


@needs_bash
def test_another_command_is_refused(tmp_path: Path) -> None:
    done = _run(tmp_path, {"target": "m:o", "command": "demo"})
    assert done.returncode == 2 and done.stdout.startswith("::error title=bcmend::command is")


def test_what_the_workflow_explains_is_one_graph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    (given, *_) = USES
    arguments = [given["target"], "--call", given["call"], "--format", "github"]
    arguments += ["--backend", "eager"]
    assert cli.main(["explain", *arguments, "--fail-on-break"]) == 0
    assert capsys.readouterr().out.startswith("::notice ")
