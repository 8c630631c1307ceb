"""Programs are code of a user: not of the package, which neither Dynamo nor bcmend traces."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import bcmend
from bcmend.liveness import loading, programs

FOLDER = Path(programs.__file__).parent


def test_the_code_of_programs_is_of_no_file_of_the_package() -> None:
    own = Path(bcmend.__file__).parent
    found = loading.programs()
    assert found
    for each in found:
        make: Any = each.make
        assert isinstance(make, FunctionType)
        file = Path(make.__code__.co_filename)
        assert own not in file.parents and file.parent == Path(loading.PLACE)
        assert not make.__module__.startswith("bcmend.")


def test_every_module_of_the_folder_has_programs() -> None:
    modules = {each.make.__module__ for each in loading.programs()}
    files = {file.stem for file in FOLDER.glob("*.py")} - {"__init__"}
    assert {name.removeprefix("bcmend_programs_") for name in modules} == files


def test_a_module_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(f"{programs.__name__}.")]:
        monkeypatch.delitem(sys.modules, name)  # other tests import every module of the package
    file = next(file for file in FOLDER.glob("*.py") if file.stem != "__init__")
    assert loading.load(file) is loading.load(file)
    assert f"bcmend_programs_{file.stem}" in sys.modules
    assert f"bcmend.liveness.programs.{file.stem}" not in sys.modules
