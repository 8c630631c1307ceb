"""Callables by qualified name and by identity."""

from __future__ import annotations

import json  # noqa: F401  names of it are looked for
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch

from bcmend.knowledge.qualified_names import Registered, is_qualified, missing_in, plain, resolved


class Meter:
    def read(self) -> None: ...

    @staticmethod
    def count() -> None: ...

    @classmethod
    def make(cls) -> None: ...


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("package.function", True),
        ("package.module.Class.method", True),
        ("function", False),
        ("", False),
        ("package.", False),
        ("package.not a name", False),
        (".function", False),
    ],
)
def test_the_form_of_a_qualified_name(name: str, expected: bool) -> None:
    assert is_qualified(name) is expected


def test_a_name_is_resolved_through_modules_and_classes() -> None:
    assert resolved("sys.exc_info") is sys.exc_info
    assert resolved("torch.nn.functional.relu") is torch.nn.functional.relu
    assert resolved("torch.nn.Module.forward") is torch.nn.Module.__dict__["forward"]
    assert resolved("sys.no_such_function") is None
    assert resolved("sys.exc_info.more") is None


def test_nothing_is_imported_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert resolved("colorsys.rgb_to_hsv") is None
    assert "colorsys" not in sys.modules


def test_the_longest_module_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = ModuleType("made_outer"), ModuleType("made_outer.inner")
    inner.value = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_outer", outer)
    monkeypatch.setitem(sys.modules, "made_outer.inner", inner)
    assert resolved("made_outer.inner.value") == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no.such.thing", ""),
        ("json.dumps", ""),
        ("json.dumpz", "json"),
        ("json.JSONEncoder.encode", ""),
        ("json.JSONEncoder.encod", "json.JSONEncoder"),
        ("json.tool.no_such_function", ""),  # json.tool is not imported
        ("json.toll.main", "json"),
        ("torch.nn.functional.relu", ""),
        ("torch.nn.functional.relo", "torch.nn.functional"),
        ("__main__.helper", ""),  # which may be defined later
        ("made_lazy.anything", ""),
        ("made_begun.anything", ""),
    ],
)
def test_a_name_that_an_imported_module_has_not(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    lazy, begun = ModuleType("made_lazy"), ModuleType("made_begun")
    lazy.__getattr__ = lambda name: name  # type: ignore[method-assign]
    begun.__spec__ = ModuleSpec("made_begun", None)
    begun.__spec__._initializing = True  # type: ignore[attr-defined]
    for each in (lazy, begun):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    assert missing_in(name) == expected
    assert "json.tool" not in sys.modules


def test_the_function_behind_a_static_or_class_method() -> None:
    assert plain(vars(Meter)["count"]) is Meter.count
    assert plain(vars(Meter)["make"]) is Meter.make.__func__
    assert plain(vars(Meter)["read"]) is Meter.read and plain(None) is None


def test_rows_by_name_and_by_object() -> None:
    rows: Registered[str] = Registered()
    rows.by_name["package.function"] = "by name"
    rows.add(Meter.read, "of all")
    assert rows.of_object(Meter.read) == "of all"
    assert rows.of_object(Meter.count) is None
    assert rows.targets() == ["package.function", Meter.read]
    assert rows.last_names() == {"function", "read"}
    rows.remove("package.function")
    rows.remove(Meter.read)
    rows.remove(Meter.read)
    assert rows.targets() == []


def test_a_bound_method_is_one_at_every_look() -> None:
    rows: Registered[str] = Registered()
    one, other = Meter(), Meter()
    rows.add(one.read, "of one")
    assert rows.of_object(one.read) == "of one"
    assert rows.of_object(other.read) is None and rows.of_object(Meter.read) is None
    function: Any = vars(Meter)["read"]
    assert rows.of_method(one, function) == "of one" and rows.of_method(other, function) is None
    rows.remove(one.read)
    assert rows.of_object(one.read) is None
