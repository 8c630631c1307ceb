"""The files around the package agree with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import bcmend
from bcmend import releases
from bcmend.bytecode import behavior
from bcmend.dynamo.contract import recorded

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


#: The Pythons of the classifiers, as "3.11".
PYTHONS = [
    found[1]
    for each in PROJECT["classifiers"]
    if (found := re.fullmatch(r".* :: Python :: (3\.\d+)", each))
]
#: Pythons that are not among them, older and newer.
OTHERS = [each for each in (f"3.{minor}" for minor in range(8, 17)) if each not in PYTHONS]


def _pinned() -> list[Requirement]:
    """The lines of the constraints, without comments."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def _applies(wanted: Requirement, python: str) -> bool:
    there = {"python_version": python, "python_full_version": f"{python}.0"}
    return wanted.marker is None or wanted.marker.evaluate(there)


def _pins(python: str) -> dict[str, Version]:
    """The version of each package that the constraints choose for a Python."""
    found = [
        (canonicalize_name(each.name), Version(str(each.specifier).removeprefix("==")))
        for each in _pinned()
        if _applies(each, python)
    ]
    assert len(dict(found)) == len(found), "a package is pinned twice"
    return dict(found)


def _requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    written = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [wanted for wanted in map(Requirement, written) if wanted.name != PROJECT["name"]]


def _marked(name: str) -> list[str]:
    """The lines of the README's code block between the markers of that name."""
    pattern = rf"<!-- {name} -->\n```sh\n(.*?)\n```\n<!-- /{name} -->"
    (block,) = re.findall(pattern, README, flags=re.DOTALL)
    return block.splitlines()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("wanted", _requirements(), ids=str)
def test_every_dependency_is_pinned_inside_its_range(wanted: Requirement, python: str):
    if _applies(wanted, python):
        assert _pins(python)[canonicalize_name(wanted.name)] in wanted.specifier
    assert any(bound.operator == ">=" for bound in wanted.specifier)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_torch_that_is_chosen_for_a_python_is_tested_with_it(
    python: str, monkeypatch: pytest.MonkeyPatch
):
    """Asks `releases`, as an installation with these constraints on that Python would."""
    chosen = recorded.of_version(str(_pins(python)["torch"]))
    assert chosen is not None
    monkeypatch.setattr(behavior, "PYTHON", python)
    monkeypatch.setattr(torch, "__version__", chosen.version)
    monkeypatch.setattr(torch.version, "git_version", chosen.git_version)
    releases._standing.cache_clear()
    assert releases.is_tested()
    releases._standing.cache_clear()
    assert any(each.name == "torch" and _applies(each, python) for each in _requirements())


@pytest.mark.parametrize("python", OTHERS)
def test_no_other_python_is_installed_on(python: str):
    assert f"{python}.9" not in SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("python", PYTHONS)
def test_the_range_of_torch_is_what_is_tested_on_a_python(python: str):
    """No other release that is recorded, or comes, is allowed."""
    wanted = [each for each in _requirements() if each.name == "torch" and _applies(each, python)]
    (allowed,) = (each.specifier for each in wanted)
    known = recorded.releases()
    minors = {each.minor for each in known if python in each.pythons}
    oldest, newest = (Version(each.version).minor for each in (known[0], known[-1]))
    for minor in range(oldest - 1, newest + 2):
        assert (f"2.{minor}.0" in allowed) is (f"2.{minor}" in minors)


def test_the_pythons_that_are_named_are_those_that_are_tested():
    tested = {python for each in recorded.releases() for python in each.pythons}
    assert {*PYTHONS} == tested
    assert all(f"{each}.0" in SpecifierSet(PROJECT["requires-python"]) for each in PYTHONS)


def test_every_pin_is_exact():
    for each in _pinned():
        assert re.fullmatch(r"==[\w.]+", str(each.specifier)), each


def test_the_torch_free_requirements_are_pinned_and_free_of_torch():
    lines = (ROOT / ".ci" / "torch-free.txt").read_text(encoding="utf-8").splitlines()
    names = {canonicalize_name(line) for line in lines if not line.startswith("#")}
    assert names <= _pins(PYTHONS[0]).keys()
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
@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_check_runs_the_readme_s_commands(name: str):
    """Runs the function of .ci/run that looks a command up, and looks it up here too."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (function,) = re.findall(r"^readme_command\(\) \{\n.*?^\}\n", script, re.DOTALL | re.M)
    found = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{function}readme_command {name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == _marked(f"{name}-command")
    assert 'bash -euo pipefail -c "$command"' in script
    assert "for name in demo test; do" in script


def test_both_commands_of_the_readme_install_under_the_constraints():
    for name in ("demo-command", "test-command"):
        (command,) = _marked(name)
        assert " pip install -c constraints.txt " in command.replace("/", " ")


def test_the_public_check_tests_every_release_on_its_pythons():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    listed = re.findall(r'^ +- \{python: "(.*)", torch: (.*)\}$', workflow, re.M)
    known = [(python, each.version) for each in recorded.releases() for python in each.pythons]
    assert sorted(listed) == sorted(known)
    assert "- run: .ci/next torch\n" in workflow and "- run: .ci/next python\n" in workflow


def test_the_check_can_be_executed():
    assert all(os.access(ROOT / ".ci" / name, os.X_OK) for name in ("run", "next", "package"))


def test_the_version_is_the_same_wherever_it_stands():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## (\S+) \((\S+)\)$", changes, re.M)[0]
    cited = re.findall(r"^(?:version|date-released): (\S+)$", citation, re.M)
    assert tuple(cited) == newest
    assert newest[0] == PROJECT["version"] == bcmend.__version__
    for page in (README, (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")):
        assert re.findall(r"^versions +bcmend (\S+),", page, re.M) == [PROJECT["version"]]


def test_the_badges_are_what_is_tested():
    pythons, releases = PYTHONS, [each.minor for each in recorded.releases()]
    found = re.findall(r"badge/(\w+)-([\d.]+)%20to%20([\d.]+)-", README)
    ends = [("python", pythons[0], pythons[-1]), ("torch", releases[0], releases[-1])]
    assert found == ends


def test_what_is_published_has_been_checked():
    """Both the check and the workflow run the one script, and only what it built is published."""
    workflow = (ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    build, _, publish = workflow.partition("\n  publish:\n")
    assert '.ci/package dist "$GITHUB_REF_NAME"' in build and "id-token" not in build
    assert "needs: build" in publish and "id-token: write" in publish
    assert "secrets." not in workflow
    assert ".ci/package " in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_fragments_of_the_changelog_have_a_kind():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    kinds = [each["directory"] for each in settings["towncrier"]["type"]]
    folder = ROOT / settings["towncrier"]["directory"]
    names = {each.name for each in folder.iterdir()}
    assert "README.md" in names
    pattern = rf"[+\w-]+\.({'|'.join(kinds)})\.md"
    assert [each for each in names - {"README.md"} if not re.fullmatch(pattern, each)] == []
    start = settings["towncrier"]["start_string"]
    assert (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").count(start) == 1


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "bcmend" / "py.typed").is_file()
