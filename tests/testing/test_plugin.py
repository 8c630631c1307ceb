"""Sessions of pytest that find the plugin by its entry point, as in a user's project."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

USES = """
import pytest, torch
import bcmend
from tests.testing import models

ONES = torch.ones(3)

def test_branch(one_graph):
    one_graph(models.Branch(), ONES)

def test_opens(one_graph):
    one_graph(models.Opens(), ONES)

def test_equal(same_as_eager):
    assert same_as_eager(models.Branch(), ONES).equal

def test_differs(same_as_eager):
    bcmend.register_capture(models.step, lambda x: x * 3)
    same_as_eager(models.Steps(), ONES)

@pytest.mark.graph_breaks(max=1)
def test_so_many():
    torch.compile(models.Branch(), backend="eager")(ONES)

@pytest.mark.graph_breaks(max=0)
def test_too_many():
    torch.compile(models.Branch(), backend="eager")(ONES)

@pytest.mark.graph_breaks(max=0)
def test_fails_itself():
    torch.compile(models.Branch(), backend="eager")(ONES)
    assert ONES is None
"""

WRONG = """
import pytest

@pytest.mark.graph_breaks
def test_no_limit(): pass

@pytest.mark.graph_breaks(2)
def test_no_name(): pass

@pytest.mark.graph_breaks(max=-1)
def test_negative(): pass

@pytest.mark.graph_breaks(max="2")
def test_text(): pass
"""


@pytest.fixture(autouse=True)
def installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the package installed as a wheel installs it: with entry points and a list of files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = pytester.mkdir("installed") / "bcmend_as_a_wheel-0.dist-info"
    folder.mkdir()
    entries = project["entry-points"]["pytest11"]
    lines = ["[pytest11]", *(f"{name} = {module}" for name, module in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: bcmend-as-a-wheel\nVersion: 0\n")
    files = [each.relative_to(ROOT).as_posix() for each in (ROOT / "bcmend").rglob("*.py")]
    (folder / "RECORD").write_text("".join(f"{each},,\n" for each in files))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder.parent), str(ROOT)]))


def _run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--strict-markers", "-W", "error", *arguments)


def test_fixtures_and_the_marker_pass_and_fail(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES)
    found = _run(pytester, "--show-capture=no")
    found.assert_outcomes(passed=3, failed=4)
    found.stdout.fnmatch_lines(
        [
            "*Opens is not captured in one graph",
            "*models.py:*forward*",
            "*Steps: differs in 2 calls*",
            "1 graph break, at most 0 allowed",
            "1. *models.py:*forward",
            "*GB0170 Data-dependent branching",
            "*assert ONES is None",
        ]
    )
    assert "bcmend/testing" not in found.stdout.str()


def test_a_wrong_marker_is_an_error_that_says_what_is_right(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WRONG)
    found = _run(pytester)
    found.assert_outcomes(errors=4)
    use = "the marker takes max=... alone: @pytest.mark.graph_breaks(max=2)"
    limit = "@pytest.mark.graph_breaks(max=...) takes a number of breaks, 0 or more, got "
    assert found.stdout.str().count(f"\n{use}\n") == 2
    found.stdout.fnmatch_lines([f"{limit}-1", f"{limit}'2'"])


def test_the_example_of_the_documentation_passes(pytester: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    example, *_ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    pytester.makepyfile(example)
    _run(pytester).assert_outcomes(passed=3)


def test_a_project_that_does_not_use_it_imports_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_else_is_imported(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("bcmend")
            assert "torch" not in sys.modules
            own = {each for each in sys.modules if each.startswith("bcmend")}
            assert own == {"bcmend", "bcmend.testing", "bcmend.testing.plugin"}
        """
    )
    _run(pytester).assert_outcomes(passed=1)
    found = pytester.runpytest_subprocess("--markers")
    found.stdout.fnmatch_lines(["@pytest.mark.graph_breaks(max): *"])


def test_a_session_can_be_without_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(one_graph): pass")
    found = _run(pytester, "-p", "no:bcmend")
    found.assert_outcomes(errors=1)
    found.stdout.fnmatch_lines(["*fixture 'one_graph' not found"])


def test_the_package_may_be_imported_before_pytest(pytester: pytest.Pytester) -> None:
    """As by `bcmend run -m pytest`: pytest warns of packages that it cannot rewrite any more."""
    pytester.makepyfile("def test_it(): pass")
    program = "import sys, bcmend, pytest; sys.exit(pytest.main(['-W', 'error']))"
    found = pytester.run(sys.executable, "-c", program)
    assert found.ret == 0
    found.assert_outcomes(passed=1)
