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

from bcmend.dynamo.contract import recorded

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


#: One for each release of torch; the first is that of the commands in the documentation.
CONSTRAINTS = ["constraints.txt", *sorted(each.name for each in ROOT.glob("constraints-torch-*"))]


def _lines(name: str) -> list[str]:
    """The lines of a requirements file, and of those that it names, without comments."""
    found = []
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("-c "):
            found += _lines(line.removeprefix("-c "))
        elif line and not line.startswith("#"):
            found.append(line)
    return found


def _pins(name: str = CONSTRAINTS[0]) -> dict[str, Version]:
    pinned = [line.split("==") for line in _lines(name)]
    return {canonicalize_name(package): Version(version) for package, version in pinned}


def _requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    written = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [wanted for wanted in map(Requirement, written) if wanted.name != PROJECT["name"]]


def _marked(name: str) -> list[str]:
    """The lines of the README's code block between the markers of that name."""
    pattern = rf"<!-- {name} -->\n```sh\n(.*?)\n```\n<!-- /{name} -->"
    (block,) = re.findall(pattern, README, flags=re.DOTALL)
    return block.splitlines()


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("wanted", _requirements(), ids=str)
def test_every_dependency_is_pinned_inside_its_range(wanted: Requirement, constraints: str):
    pin = _pins(constraints)[canonicalize_name(wanted.name)]
    assert pin in wanted.specifier
    assert any(bound.operator == ">=" for bound in wanted.specifier)


def test_the_range_of_torch_is_what_is_tested():
    """Each tested release has its constraints; no other that is recorded, or comes, is allowed."""
    (wanted,) = [each for each in _requirements() if each.name == "torch"]
    known = recorded.releases()
    tested = {each.version for each in known if each.pythons}
    assert {str(_pins(name)["torch"]) for name in CONSTRAINTS} == tested
    minors = {Version(each).minor for each in tested}
    for minor in range(min(minors) - 1, max(minors) + 2):
        assert wanted.specifier.contains(f"2.{minor}.0") is (minor in minors)
    assert {each.version for each in known if each.version in wanted.specifier} == tested


def test_the_pythons_that_are_named_are_those_that_are_tested():
    named = [re.fullmatch(r".* :: Python :: (3\.\d+)", each) for each in PROJECT["classifiers"]]
    tested = {python for each in recorded.releases() for python in each.pythons}
    assert {each[1] for each in named if each} == tested
    assert min(tested, key=Version) in PROJECT["requires-python"]


@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_every_pin_is_exact_and_written_once(constraints: str):
    lines = _lines(constraints)
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


def test_the_readme_names_the_constraints_of_every_release():
    assert [name for name in CONSTRAINTS if f"`{name}`" not in README] == []


def test_the_public_check_tests_every_release():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^ +constraints: \[(.*)\]$", workflow, re.M)
    assert listed.split(", ") == CONSTRAINTS
    newest = max(Version(each.version) for each in recorded.releases() if each.pythons)
    assert f"doctor --against {newest}" in workflow


def test_the_check_can_be_executed():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_links_of_the_readme_lead_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "bcmend" / "py.typed").is_file()
