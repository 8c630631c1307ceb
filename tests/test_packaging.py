"""The files around the package agree with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _lines(name: str) -> list[str]:
    """The lines of a requirements file without comments."""
    written = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line for line in written if line and not line.startswith("#")]


def _pins() -> dict[str, Version]:
    pinned = [line.split("==") for line in _lines("constraints.txt")]
    return {canonicalize_name(name): Version(version) for name, version in pinned}


def _requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    written = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [wanted for wanted in map(Requirement, written) if wanted.name != PROJECT["name"]]


def _marked(name: str) -> list[str]:
    """The lines of the README's code block between the markers of that name."""
    pattern = rf"<!-- {name} -->\n```sh\n(.*?)\n```\n<!-- /{name} -->"
    (block,) = re.findall(pattern, README, flags=re.DOTALL)
    return block.splitlines()


@pytest.mark.parametrize("wanted", _requirements(), ids=str)
def test_every_dependency_is_pinned_inside_its_range(wanted: Requirement):
    pin = _pins()[canonicalize_name(wanted.name)]
    assert pin in wanted.specifier
    assert any(bound.operator == ">=" for bound in wanted.specifier)


def test_every_pin_is_exact_and_written_once():
    lines = _lines("constraints.txt")
    names = [canonicalize_name(line.split("==")[0]) for line in lines]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert len(set(names)) == len(names)


def test_the_torch_free_requirements_are_pinned_and_free_of_torch():
    names = {canonicalize_name(line) for line in _lines(".ci/torch-free.txt")}
    assert names <= _pins().keys()
    assert names.isdisjoint({"torch", "transformers"})


def test_the_extras_name_only_extras_that_there_are():
    extras = PROJECT["optional-dependencies"]
    named = {
        extra
        for lines in extras.values()
        for wanted in map(Requirement, lines)
        if wanted.name == PROJECT["name"]
        for extra in wanted.extras
    }
    assert named <= extras.keys()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_check_runs_the_readme_s_test_command():
    """Runs the function of .ci/run that looks the command up, and looks it up here too."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (function,) = re.findall(r"^readme_test_command\(\) \{\n.*?^\}\n", script, re.DOTALL | re.M)
    found = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{function}readme_test_command"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == _marked("test-command")
    assert 'bash -euo pipefail -c "$command"' in script


def test_both_commands_of_the_readme_install_under_the_constraints():
    for name in ("demo-command", "test-command"):
        (command,) = _marked(name)
        assert " pip install -c constraints.txt " in command.replace("/", " ")


def test_the_check_can_be_executed():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_links_of_the_readme_lead_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "bcmend" / "py.typed").is_file()
