"""Modules are loaded, and classes made, by the side that is taken, and by no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.speculation.done_while_tracing import not_loaded

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


NAMES: list[str] = []
SEVEN = property(lambda self: 7)


class Noticed:
    value = 1

    def __init_subclass__(cls) -> None:
        NAMES.append(cls.__name__)

    def method(self) -> int:
        return 1


def _by_call(x: Tensor) -> Tensor:
    if x.sum() > 0:
        type("Made", (Noticed,), {})
    return x + len(NAMES)


def _by_statement(x: Tensor) -> Tensor:
    if x.sum() > 0:

        class Made(Noticed):
            pass

    return x + len(NAMES)


def _type_of_a_value(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + len(type(NAMES).__name__)
    return x


def _by_call_behind_others(x: Tensor) -> Tensor:
    before = len(NAMES)
    if x.sum() > -5:
        x = x + 1
        if x.sum() > 0:
            type("Made", (Noticed,), {})
    return x * 2 if len(NAMES) == before else x + 10


def _outcomes(run: Any) -> list[Any]:
    torch._dynamo.reset()
    NAMES.clear()
    return [(run(torch.full((2,), sign)).tolist(), list(NAMES)) for sign in (-1.0, 1.0, -1.0, -9.0)]


@pytest.mark.parametrize("program", [_by_call, _by_statement, _by_call_behind_others])
def test_a_class_is_made_by_the_side_that_is_taken(program: Any) -> None:
    expected = _outcomes(program)
    assert _outcomes(torch.compile(bcmend.patch(program), backend="eager")) == expected


@pytest.mark.parametrize("program", [_by_call, _by_call_behind_others])
def test_a_branch_that_makes_a_class_is_refused(program: Any) -> None:
    _outcomes(torch.compile(bcmend.patch(program), backend="eager"))
    assert {site.refusal for site in bcmend.report(program).sites} == {"arm-effects"}


def test_the_type_of_a_value_is_asked_for_in_an_arm() -> None:
    mended = torch.compile(bcmend.patch(_type_of_a_value), backend="eager", fullgraph=True)
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(mended(x), _type_of_a_value(x))


def _new_method(x: Tensor) -> Tensor:
    if x.sum() > 0:
        Noticed.method = lambda self: 9  # type: ignore[method-assign]
    return x + Noticed.__new__(Noticed).method()


def _value_becomes_a_method(x: Tensor) -> Tensor:
    if x.sum() > 0:
        Noticed.value = SEVEN  # type: ignore[assignment]
    return x + Noticed.__new__(Noticed).value


@pytest.mark.parametrize("program", [_new_method, _value_becomes_a_method])
def test_a_branch_that_replaces_what_objects_of_a_class_bind_is_refused(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo itself looks for such things in the class, and not among what is stored."""
    monkeypatch.setattr(Noticed, "method", Noticed.method)
    monkeypatch.setattr(Noticed, "value", 1)
    torch.compile(bcmend.patch(program), backend="eager")(torch.ones(2))
    (site,) = bcmend.report(program).sites
    assert (site.status, site.refusal) == ("refused", "arm-effects")


def test_a_plain_value_of_a_class_is_stored_by_the_side_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            Noticed.value = 5
        return x + 1

    monkeypatch.setattr(Noticed, "value", 1)
    mended = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    for sign, value in ((-1.0, 1), (1.0, 5)):
        mended(torch.full((2,), sign))
        assert Noticed.value == value
