"""The names of the package, which are loaded on first use."""

from __future__ import annotations

import importlib

import pytest

import bcmend

_OF_FUNCTIONS = ("bcmend.api", "bcmend.installation", "bcmend.trials.")


@pytest.mark.parametrize("name", [n for n in bcmend.__all__ if n[0].isupper()])
def test_a_class_comes_from_the_module_that_defines_it(name: str) -> None:
    found = getattr(bcmend, name)
    assert found is getattr(importlib.import_module(found.__module__), name)
    assert found.__module__.startswith("bcmend.")


@pytest.mark.parametrize("name", [n for n in bcmend.__all__ if n[0].islower()])
def test_a_function_comes_from_a_module_of_functions(name: str) -> None:
    pytest.importorskip("torch")
    found = getattr(bcmend, name)
    assert found is getattr(importlib.import_module(found.__module__), name)
    assert found.__module__.startswith(_OF_FUNCTIONS)


@pytest.mark.parametrize("name", ["patches", "Mended", "__path", "_HOME"])
def test_another_name_is_no_attribute(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(bcmend, name)


def test_all_public_names_are_listed() -> None:
    assert set(bcmend.__all__) <= set(dir(bcmend)) and "__version__" in dir(bcmend)
