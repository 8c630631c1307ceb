"""The static part of bcmend imports no torch, not even indirectly."""

from __future__ import annotations

import ast
import functools
import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    "bcmend.bytecode",
    "bcmend.cfg",
    "bcmend.analysis",
    "bcmend.rewrite",
    "bcmend.scan",
)
MODULES: Final = (
    "bcmend.errors",
    "bcmend.names",
    "bcmend.policy",
    "bcmend.reasons",
)


def _modules_of(package: str) -> list[str]:
    found = [package]
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        found.append(module.name)
    return found


def _all_modules() -> list[str]:
    return [*MODULES, *(name for package in PACKAGES for name in _modules_of(package))]


#: Imports each of the modules that it is given as the first one of bcmend.
_EACH_FIRST: Final = """
import importlib, json, sys, traceback
errors = {}
for name in sys.argv[1:]:
    for other in [each for each in sys.modules if each.partition(".")[0] == "bcmend"]:
        del sys.modules[other]
    try:
        importlib.import_module(name)
        errors[name] = "" if name in sys.modules else "it is not there"
    except BaseException:
        errors[name] = traceback.format_exc()
print(json.dumps(errors))
"""


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _imported_with(names: list[str]) -> set[str]:
    """Return the modules that a fresh process has after importing ``names``."""
    imports = "\n".join(f"import {name}" for name in names)
    done = _run(f"import sys\n{imports}\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@functools.cache
def _errors_of_each_as_the_first() -> dict[str, str]:
    """Return how the import of each module failed, or ""; other packages are imported once."""
    done = _run(_EACH_FIRST, *_all_modules())
    assert done.returncode == 0, done.stderr
    errors: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return errors


def test_every_module_of_the_packages_is_found() -> None:
    found = _all_modules()
    assert len(found) == len(set(found))
    assert {
        "bcmend.bytecode.decode",
        "bcmend.cfg.graph",
        "bcmend.analysis.facts",
        "bcmend.rewrite.pipeline",
        "bcmend.rewrite.passes.chains",
        "bcmend.rewrite.sites.plan",
        "bcmend.rewrite.writer.code_writer",
    } <= set(found)


def test_modules_that_are_imported_indirectly_are_seen() -> None:
    assert "colorsys" not in _imported_with(["bcmend.errors"])
    assert "json.decoder" in _imported_with(["json"])


def test_the_static_part_imports_no_torch() -> None:
    names = _all_modules()
    loaded = _imported_with(names)
    assert set(names) <= loaded
    assert "torch" not in loaded


def test_the_static_part_imports_no_dynamic_part() -> None:
    dynamic = ("bcmend.tracing", "bcmend.dynamo", "bcmend.delivery", "bcmend.patching")
    loaded = _imported_with(_all_modules())
    assert not [name for name in loaded if name.startswith(dynamic)]


@pytest.mark.parametrize("name", _all_modules())
def test_each_module_can_be_imported_first(name: str) -> None:
    """No module relies on another having been imported before: there is no circle."""
    error = _errors_of_each_as_the_first()[name]
    assert not error, error


@pytest.mark.parametrize("package", ["bytecode", "cfg", "analysis", "rewrite"])
def test_its_tests_need_no_torch(package: str) -> None:
    """They run on Pythons that no torch is installed for."""
    for path in sorted((ROOT / "tests" / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            assert "torch" not in {each.partition(".")[0] for each in names}, path
