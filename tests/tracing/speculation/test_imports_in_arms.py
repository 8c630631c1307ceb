"""Modules are loaded by the side that is taken, and by no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.speculation.imports_in_arms import not_loaded

NAME = "loaded_in_an_arm"


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (folder / "inner.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]
    bcmend.unpatch()
    torch._dynamo.reset()


def _load(name: str) -> None:
    __import__(name)


def test_what_is_not_loaded_would_be() -> None:
    assert not_loaded(NAME, {}, None, 0) == [NAME]
    _load(NAME)
    assert not_loaded(NAME, {}, None, 0) == []
    assert not_loaded(NAME, {}, ("VALUE", "*"), 0) == []
    assert not_loaded(NAME, {}, ("VALUE", "inner"), 0) == [f"{NAME}.inner"]
    assert not_loaded(f"{NAME}.inner", {}, None, 0) == [f"{NAME}.inner"]
    _load(f"{NAME}.inner")
    assert not_loaded(NAME, {}, ("inner",), 0) == []


def test_relative_imports_are_those_of_the_package() -> None:
    _load(NAME)
    names = {"__package__": NAME, "__name__": f"{NAME}.other"}
    assert not_loaded("inner", names, None, 1) == [f"{NAME}.inner"]
    assert not_loaded("", names, ("inner",), 1) == [f"{NAME}.inner"]
    assert not_loaded("inner", {"__name__": f"{NAME}.other"}, None, 1) == [f"{NAME}.inner"]


def test_a_module_that_is_no_package_loads_nothing_else() -> None:
    assert not_loaded("sys", {}, ("path", "missing"), 0) == []


def _imports(x: Tensor) -> Tensor:
    if x.sum() > 0:
        import loaded_in_an_arm  # type: ignore[import-not-found]

        x = x * loaded_in_an_arm.VALUE
    return x + 1


def test_an_arm_that_is_not_taken_loads_nothing() -> None:
    bcmend.patch(_imports)
    compiled = torch.compile(_imports, backend="eager")
    assert compiled(-torch.ones(2)).tolist() == [0.0, 0.0]
    assert NAME not in sys.modules
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert NAME in sys.modules


def test_an_arm_that_imports_what_is_loaded_is_mended() -> None:
    _load(NAME)
    bcmend.patch(_imports)
    compiled = torch.compile(_imports, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert compiled(-torch.ones(2)).tolist() == [0.0, 0.0]
